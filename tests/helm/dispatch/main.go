// dispatch: pods through MutatingWebhookConfigurations, by kube-apiserver's own dispatcher, without a cluster.
//
// Input: a file {"configurations": [...], "namespaces": {name: labels}, "services": {"ns/name": "host:port"}} and questions, one a
// line: {"pod", "namespace", "dryRun", "update"}.  Output: a line each: {"pod", "error", "code", "warnings"}.  -times N: each question
// N times, by -parallel goroutines; then {"failed", "errors", "p50_ms", "p99_ms"} instead.
// -pause D: so long between two of a goroutine.  A line {"configurations": [...]} takes the place of those that were.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/url"
	"os"
	"sort"
	"sync"
	"time"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
)

type world struct {
	Configurations []v1.MutatingWebhookConfiguration `json:"configurations"`
	Namespaces     map[string]map[string]string      `json:"namespaces"`
	Services       map[string]string                 `json:"services"`
}

type question struct {
	Pod            *corev1.Pod                       `json:"pod"`
	Namespace      string                            `json:"namespace"`
	DryRun         bool                              `json:"dryRun"`
	Update         bool                              `json:"update"`
	Configurations []v1.MutatingWebhookConfiguration `json:"configurations"`
}

type answer struct {
	Pod      *corev1.Pod `json:"pod,omitempty"`
	Error    string      `json:"error,omitempty"`
	Code     int32       `json:"code,omitempty"`
	Warnings []string    `json:"warnings,omitempty"`
}

type many struct {
	Failed int            `json:"failed"`
	Errors map[string]int `json:"errors,omitempty"`
	P50    float64        `json:"p50_ms"`
	P99    float64        `json:"p99_ms"`
}

func (a *answer) AddWarning(_, text string) { a.Warnings = append(a.Warnings, text) }

func (w *world) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	address, ok := w.Services[namespace+"/"+name]
	if !ok {
		return nil, fmt.Errorf("no service %s/%s", namespace, name)
	}
	return &url.URL{Scheme: "https", Host: address}, nil
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// objects is a scheme that knows Pods and has no defaults.
func objects() admission.ObjectInterfaces {
	scheme := runtime.NewScheme()
	must(corev1.AddToScheme(scheme))
	return admission.NewObjectInterfacesFromScheme(scheme)
}

func (w *world) plugin(stop <-chan struct{}) (*mutating.Plugin, *fake.Clientset) {
	var known []runtime.Object
	for name, labels := range w.Namespaces {
		known = append(known, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	for i := range w.Configurations {
		known = append(known, &w.Configurations[i])
	}
	client := fake.NewSimpleClientset(known...)
	factory := informers.NewSharedInformerFactory(client, 0)
	plugin, err := mutating.NewMutatingWebhook(nil)
	must(err)
	plugin.SetServiceResolver(w)
	plugin.SetExternalKubeClientSet(client)
	plugin.SetExternalKubeInformerFactory(factory)
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	must(plugin.ValidateInitialization())
	return plugin, client
}

func ask(plugin *mutating.Plugin, o admission.ObjectInterfaces, q *question) (a answer) {
	pod := q.Pod.DeepCopy()
	kind, pods := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	operation, options := admission.Create, runtime.Object(&metav1.CreateOptions{})
	var old runtime.Object
	if q.Update {
		operation, options, old = admission.Update, &metav1.UpdateOptions{}, q.Pod.DeepCopy()
	}
	attributes := admission.NewAttributesRecord(pod, old, kind, q.Namespace, pod.Name, pods, "", operation, options, q.DryRun,
		&user.DefaultInfo{Name: "system:serviceaccount:kube-system:replicaset-controller"})
	err := plugin.Admit(warning.WithWarningRecorder(context.Background(), &a), attributes, o)
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		a.Code = status.ErrStatus.Code
	}
	if err != nil {
		a.Error = err.Error()
	} else {
		a.Pod = attributes.GetObject().(*corev1.Pod)
	}
	return a
}

func askMany(plugin *mutating.Plugin, o admission.ObjectInterfaces, q *question, times, parallel int, pause time.Duration) (m many) {
	var lock sync.Mutex
	var all sync.WaitGroup
	var took []float64
	m.Errors = map[string]int{}
	for p := range parallel {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := p; i < times; i += parallel {
				if i != p {
					time.Sleep(pause)
				}
				start := time.Now()
				a := ask(plugin, o, q)
				lock.Lock()
				took = append(took, float64(time.Since(start).Microseconds())/1000)
				if a.Error != "" {
					m.Failed++
					m.Errors[a.Error]++
				}
				lock.Unlock()
			}
		}()
	}
	all.Wait()
	sort.Float64s(took)
	m.P50, m.P99 = took[len(took)/2], took[len(took)*99/100]
	return m
}

func replace(client *fake.Clientset, configurations []v1.MutatingWebhookConfiguration) {
	api := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	for i := range configurations {
		_, err := api.Update(context.Background(), &configurations[i], metav1.UpdateOptions{})
		must(err)
	}
}

func main() {
	file := flag.String("world", "", "what there is, as JSON")
	times := flag.Int("times", 0, "ask each question so often")
	parallel := flag.Int("parallel", 1, "at a time")
	pause := flag.Duration("pause", 0, "between two of them")
	flag.Parse()

	var w world
	text, err := os.ReadFile(*file)
	must(err)
	must(json.Unmarshal(text, &w))
	stop := make(chan struct{})
	defer close(stop)
	plugin, client := w.plugin(stop)
	o := objects()
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 8<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var q question
		must(json.Unmarshal(in.Bytes(), &q))
		switch {
		case q.Configurations != nil:
			replace(client, q.Configurations)
			must(out.Encode(answer{}))
		case *times > 0:
			must(out.Encode(askMany(plugin, o, &q, *times, *parallel, *pause)))
		default:
			must(out.Encode(ask(plugin, o, &q)))
		}
	}
	must(in.Err())
}
