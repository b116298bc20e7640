// asker.go - COUNTS PAUSE_MS NAME=ADDRESS... : what asker.c does, by Go's own resolver.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

func ask(name, address string) (right, wrong bool) {
	found, err := net.DefaultResolver.LookupIP(context.Background(), "ip4", name)
	if e, is := err.(*net.DNSError); is {
		if e.IsNotFound {
			fmt.Fprintln(os.Stderr, time.Now().UnixMilli(), name, err)
		}
		return false, e.IsNotFound
	}
	for _, ip := range found {
		if ip.String() != address {
			fmt.Fprintln(os.Stderr, time.Now().UnixMilli(), name, "another address:", ip)
			return false, true
		}
	}
	return len(found) > 0, len(found) == 0
}

func main() {
	counts := map[string]int64{"right": 0, "wrong": 0, "none": 0, "foreign_right": 0, "foreign_none": 0, "refused": 0, "in_a_row": 0, "longest_ms": 0}
	file, err := os.OpenFile(os.Args[1], os.O_WRONLY|os.O_CREATE, 0666)
	if err != nil {
		panic(err)
	}
	pause, _ := strconv.Atoi(os.Args[2])
	var forget atomic.Bool
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		for range signals {
			forget.Store(true)
		}
	}()
	for i := 0; ; i++ {
		text, address, _ := strings.Cut(os.Args[3+i%(len(os.Args)-3)], "=")
		name, foreign := strings.CutPrefix(text, "-")
		began := time.Now()
		right, wrong := ask(name, address)
		if forget.Swap(false) {
			counts["longest_ms"] = 0
		}
		counts["longest_ms"] = max(counts["longest_ms"], time.Since(began).Milliseconds())
		counts["in_a_row"]++
		if !right {
			counts["in_a_row"] = 0
		}
		switch {
		case foreign && right:
			counts["foreign_right"]++
		case foreign:
			counts["foreign_none"]++
		case right:
			counts["right"]++
		case wrong:
			counts["wrong"]++
		default:
			counts["none"]++
		}
		said, _ := json.Marshal(counts)
		file.WriteAt([]byte(fmt.Sprintf("%-512s", said)), 0)
		time.Sleep(time.Duration(pause) * time.Millisecond)
	}
}
