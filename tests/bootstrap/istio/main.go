// istio: the bootstrap that Istio's own agent would write for a pod, and ours in the same form.
//
// Input: one case a line: {"env", "labels", "annotations", "ips", "ours"}; ours is a bootstrap. The argument is Istio's template.
// Output: {"istio", "ours"} or {"error"}: both read as Envoy reads them (strictly, as protobuf), and written in one way.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strconv"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"istio.io/istio/pilot/cmd/pilot-agent/config"
	"istio.io/istio/pilot/pkg/features"
	"istio.io/istio/pkg/bootstrap"
	_ "istio.io/istio/pkg/config/xds"
	istiolog "istio.io/istio/pkg/log"
)

type pod struct {
	Env         map[string]string `json:"env"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	IPs         []string          `json:"ips"`
	Ours        json.RawMessage   `json:"ours"`
}

type result struct {
	Istio json.RawMessage `json:"istio,omitempty"`
	Ours  json.RawMessage `json:"ours,omitempty"`
	Error string          `json:"error,omitempty"`
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// downward is what the kubelet writes of a map.
func downward(name string, m map[string]string) {
	var text bytes.Buffer
	for k, v := range m {
		fmt.Fprintf(&text, "%s=%q\n", k, v)
	}
	must(os.MkdirAll("etc/istio/pod", 0o700))
	must(os.WriteFile(filepath.Join("etc/istio/pod", name), text.Bytes(), 0o600))
}

func number(key string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(key)); err == nil {
		return n
	}
	return otherwise
}

func yes(key string, otherwise bool) bool {
	if b, err := strconv.ParseBool(os.Getenv(key)); err == nil {
		return b
	}
	return otherwise
}

// agent does what pilot-agent does before it starts Envoy. What Istio reads once, at its start, is set for each pod.
func (p *pod) agent(template string) ([]byte, error) {
	os.Clearenv()
	for k, v := range p.Env {
		must(os.Setenv(k, v))
	}
	downward("labels", p.Labels)
	downward("annotations", p.Annotations)
	features.DeltaXds = yes("ISTIO_DELTA_XDS", true)
	features.EnableDualStack = yes("ISTIO_DUAL_STACK", false)
	features.EnvoyStatusPortEnableProxyProtocol = yes("ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL", false)
	bootstrap.StripFragment = yes("HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED", true)
	proxy, err := config.ConstructProxyConfig("./none", "istio-proxy", os.Getenv("PROXY_CONFIG"), 0)
	if err != nil {
		return nil, err
	}
	node, err := bootstrap.GetNodeMetaData(bootstrap.MetadataOptions{
		ID:                          fmt.Sprintf("sidecar~%s~%s.%s~%[3]s.svc.cluster.local", p.IPs[0], os.Getenv("POD_NAME"), os.Getenv("POD_NAMESPACE")),
		Envs:                        os.Environ(),
		InstanceIPs:                 p.IPs,
		ProxyConfig:                 proxy,
		PilotSubjectAltName:         []string{config.GetPilotSan(proxy.DiscoveryAddress)},
		EnvoyStatusPort:             number("ENVOY_STATUS_PORT", 15021),
		EnvoyPrometheusPort:         number("ENVOY_PROMETHEUS_PORT", 15090),
		ExitOnZeroActiveConnections: yes("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", false),
		EnvoySkipDeprecatedLogs:     true,
		WorkloadIdentitySocketFile:  "socket",
	})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = bootstrap.New(bootstrap.Config{Node: node}).WriteTo(template, &out)
	return out.Bytes(), err
}

// canonical reads it as YAML, for Istio's template has a comma too many.
func canonical(text []byte) (json.RawMessage, error) {
	var b bootstrapv3.Bootstrap
	strict, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = protojson.Unmarshal(strict, &b)
	}
	if err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{UseProtoNames: true}.Marshal(&b)
}

func (p *pod) run(template string) (r result) {
	text, err := p.agent(template)
	if err == nil {
		r.Istio, err = canonical(text)
	}
	if err != nil {
		return result{Error: "istio: " + err.Error()}
	}
	if r.Ours, err = canonical(p.Ours); err != nil {
		return result{Error: "ours: " + err.Error()}
	}
	return r
}

func main() {
	said := istiolog.DefaultOptions()
	said.OutputPaths = []string{"stderr"}
	must(istiolog.Configure(said))
	dir, err := os.MkdirTemp("", "istio")
	must(err)
	defer os.RemoveAll(dir)
	must(os.Chdir(dir))
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 4<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var p pod
		must(json.Unmarshal(in.Bytes(), &p))
		must(out.Encode(p.run(os.Args[1])))
	}
	must(in.Err())
}
