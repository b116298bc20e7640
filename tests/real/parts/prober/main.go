// prober: Kubernetes' own probe packages as a client, and apps for them to ask.
//
//	prober probe COUNT KIND HOST PORT PATH    KIND: http, https, tcp, grpc; the results as JSON: {"success": 3}
//	prober serve ADDRESS...                   http on 8080, https on 8443, grpc's health on 8082 of each
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/kubernetes/pkg/probe"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"
)

const patience = 5 * time.Second

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// As the kubelet does: a prober for each kind, a connection for each probe.
func ask(kind, host string, port int, path string) (probe.Result, string, error) {
	switch kind {
	case "tcp":
		return tcpprobe.New().Probe(host, port, patience)
	case "grpc":
		return grpcprobe.New().Probe(host, "", port, patience)
	}
	where := &url.URL{Scheme: kind, Host: net.JoinHostPort(host, strconv.Itoa(port)), Path: path}
	request, err := httpprobe.NewProbeRequest(where, http.Header{})
	must(err)
	return httpprobe.New(false).Probe(request, patience)
}

func askMany(count, kind, host, port, path string) {
	n, err := strconv.Atoi(count)
	must(err)
	number, err := strconv.Atoi(port)
	must(err)
	results := map[string]int{}
	for range n {
		result, said, err := ask(kind, host, number, path)
		must(err)
		if result != probe.Success {
			fmt.Fprintln(os.Stderr, said)
		}
		results[string(result)]++
	}
	must(json.NewEncoder(os.Stdout).Encode(results))
}

func certificate() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	what := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, what, what, &key.PublicKey, key)
	must(err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func listen(address, port string) net.Listener {
	l, err := net.Listen("tcp", net.JoinHostPort(address, port))
	must(err)
	return l
}

func serve(addresses []string) {
	pages := http.NewServeMux()
	pages.HandleFunc("/ok", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	pages.HandleFunc("/down", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	pages.Handle("/redirect", http.RedirectHandler("/ok", http.StatusFound))
	secret := &tls.Config{Certificates: []tls.Certificate{certificate()}}
	wellness := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(wellness, health.NewServer())
	for _, address := range addresses {
		go http.Serve(listen(address, "8080"), pages)
		go http.Serve(tls.NewListener(listen(address, "8443"), secret), pages)
		go wellness.Serve(listen(address, "8082"))
	}
	fmt.Println("serving")
	select {}
}

func main() {
	switch {
	case len(os.Args) == 7 && os.Args[1] == "probe":
		askMany(os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6])
	case len(os.Args) > 2 && os.Args[1] == "serve":
		serve(os.Args[2:])
	default:
		log.Fatal("usage: prober probe COUNT KIND HOST PORT PATH | prober serve ADDRESS...")
	}
}
