// inject: pods through istiod's own injection code, then through Kubernetes' Pod Security.
//
// Input: what istiod's chart renders (the keys `config` and `values` of its ConfigMap) and pods as JSON, one a line.
// Output: one JSON object a line: {"pod", "warnings"} or {"error"}, and what Pod Security forbids.
// Native sidecars are ENABLE_NATIVE_SIDECARS, as for istiod.
// -serve ADDRESS: istiod's webhook at /inject instead, with -cert and -key, for tests/bench/webhook.py.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"log"
	"net/http"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"

	meshconfig "istio.io/api/mesh/v1alpha1"
	"istio.io/istio/pilot/pkg/model"
	"istio.io/istio/pkg/config/mesh"
	"istio.io/istio/pkg/config/mesh/meshwatcher"
	"istio.io/istio/pkg/kube/inject"
	"istio.io/istio/pkg/kube/multicluster"
	istiolog "istio.io/istio/pkg/log"
)

type result struct {
	Pod       json.RawMessage `json:"pod,omitempty"`
	Error     string          `json:"error,omitempty"`
	Warnings  []string        `json:"warnings,omitempty"`
	Forbidden []string        `json:"forbidden,omitempty"`
}

type injector struct {
	config    inject.Config
	mesh      *meshconfig.MeshConfig
	values    inject.ValuesConfig
	evaluator policy.Evaluator
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func read(file string) []byte {
	text, err := os.ReadFile(file)
	must(err)
	return text
}

// run is what `istioctl kube-inject` does, which is what istiod's webhook does.
func (i *injector) run(pod []byte) (r result) {
	var out bytes.Buffer
	warn := func(s string) { r.Warnings = append(r.Warnings, strings.TrimSpace(s)) }
	if err := inject.IntoResourceFile(nil, i.config.Templates, i.values, "default", i.mesh,
		bytes.NewReader(pod), &out, warn); err != nil {
		return result{Error: err.Error()}
	}
	text, err := yaml.YAMLToJSON(bytes.TrimSuffix(out.Bytes(), []byte("---\n")))
	if err != nil {
		return result{Error: err.Error()}
	}
	r.Pod = text
	r.Forbidden = i.forbidden(text)
	return r
}

func (i *injector) forbidden(text []byte) (all []string) {
	var pod corev1.Pod
	must(json.Unmarshal(text, &pod))
	for _, check := range i.evaluator.EvaluatePod(api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()},
		&pod.ObjectMeta, &pod.Spec) {
		if !check.Allowed {
			all = append(all, check.ForbiddenReason+": "+check.ForbiddenDetail)
		}
	}
	return all
}

// raw runs one template alone: for pods that istiod never asks it about.
func (i *injector) raw(name string, pod []byte) result {
	var p corev1.Pod
	var out bytes.Buffer
	must(json.Unmarshal(pod, &p))
	values := map[string]any{}
	data := &inject.SidecarTemplateData{ObjectMeta: p.ObjectMeta, Spec: p.Spec, Values: values}
	if err := i.config.Templates[name].Execute(&out, data); err != nil {
		return result{Error: err.Error()}
	}
	return result{}
}

// serve is what istiod does with /inject, without the rest of istiod.
func serve(address, config, values, cert, key string, m *meshconfig.MeshConfig) {
	store := model.NewFakeStore()
	env := model.Environment{ConfigStore: store, Watcher: meshwatcher.NewTestWatcher(m)}
	env.SetPushContext(model.NewPushContext())
	env.Init()
	watcher, err := inject.NewFileWatcher(config, values)
	must(err)
	mux := http.NewServeMux()
	_, err = inject.NewWebhook(inject.WebhookParameters{Watcher: watcher, Env: &env, Mux: mux,
		MultiCluster: multicluster.NewFakeController()})
	must(err)
	must(http.ListenAndServeTLS(address, cert, key, mux))
}

func main() {
	address := flag.String("serve", "", "serve istiod's webhook there")
	cert := flag.String("cert", "", "certificate of it")
	key := flag.String("key", "", "key of it")
	config := flag.String("config", "", "injector's configuration")
	values := flag.String("values", "", "values of istiod's chart")
	meshFile := flag.String("mesh", "", "mesh configuration; none: the defaults")
	raw := flag.String("raw", "", "run this template alone")
	flag.Parse()

	said := istiolog.DefaultOptions()
	said.OutputPaths = []string{"stderr"}
	must(istiolog.Configure(said))
	var i injector
	var err error
	i.config, err = inject.UnmarshalConfig(read(*config))
	must(err)
	i.values, err = inject.NewValuesConfig(string(read(*values)))
	must(err)
	i.mesh = mesh.DefaultMeshConfig()
	if *meshFile != "" {
		i.mesh, err = mesh.ApplyMeshConfigDefaults(string(read(*meshFile)))
		must(err)
	}
	if *address != "" {
		serve(*address, *config, *values, *cert, *key, i.mesh)
	}
	i.evaluator, err = policy.NewEvaluator(policy.DefaultChecks(), nil)
	must(err)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		if *raw != "" {
			must(out.Encode(i.raw(*raw, in.Bytes())))
		} else {
			must(out.Encode(i.run(in.Bytes())))
		}
	}
	must(in.Err())
}
