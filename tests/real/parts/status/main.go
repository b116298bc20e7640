// status: Istio's own status server beside a pod's Envoy, and Prometheus' own parsers of a page of metrics.
//
//	status serve PORT ADDRESS PROBERS   as pilot-agent starts it; what it is told to do goes to standard output, a word a line
//	status read CONTENT-TYPE            standard input, as a scrape: {"series": 3, "families": 2}, or {"error": ...}
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"strconv"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/textparse"

	"istio.io/istio/pilot/cmd/pilot-agent/status"
	dns "istio.io/istio/pkg/dns/proto"
	istio "istio.io/istio/pkg/model"
)

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func serve(port, address, probers string) {
	number, err := strconv.ParseUint(port, 10, 16)
	must(err)
	say := func(word string) func() { return func() { fmt.Println(word) } }
	server, err := status.NewServer(status.Options{
		PodIP: address, KubeAppProbers: probers, NodeType: istio.SidecarProxy, StatusPort: uint16(number), AdminPort: 15000,
		EnvoyPrometheusPort: 15090, Context: context.Background(), FetchDNS: func() *dns.NameTable { return nil },
		EnableProfiling: true, Shutdown: func(error) { fmt.Println("quit") }, TriggerDrain: say("drain"), DisableDrain: func() {},
	})
	must(err)
	server.Run(context.Background())
}

// series is what Prometheus itself would store.
func series(page []byte, contentType string) (n int, err error) {
	parser, err := textparse.New(page, contentType, nil, textparse.ParserOptions{})
	if err != nil {
		return 0, err
	}
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if entry == textparse.EntrySeries {
			n++
		}
	}
}

// families is what other programs in Go read: the text format alone.
func families(page []byte) (int, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	found, err := parser.TextToMetricFamilies(bytes.NewReader(page))
	return len(found), err
}

func read(contentType string) map[string]any {
	page, err := io.ReadAll(os.Stdin)
	must(err)
	found := map[string]any{}
	if found["series"], err = series(page, contentType); err != nil {
		return map[string]any{"error": err.Error()}
	}
	if found["families"], err = families(page); err != nil {
		return map[string]any{"error": err.Error()}
	}
	return found
}

func main() {
	switch {
	case len(os.Args) == 5 && os.Args[1] == "serve":
		serve(os.Args[2], os.Args[3], os.Args[4])
	case len(os.Args) == 3 && os.Args[1] == "read":
		must(json.NewEncoder(os.Stdout).Encode(read(os.Args[2])))
	default:
		log.Fatal("usage: status serve PORT ADDRESS PROBERS | status read CONTENT-TYPE")
	}
}
