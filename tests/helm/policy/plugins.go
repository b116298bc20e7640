package main

// -chain FILE: pods through MutatingAdmissionPolicies, then ValidatingAdmissionPolicies, by the API server's own two plug-ins: bindings,
// selectors, conditions, patches and words are theirs.
//
// FILE: {"mutating", "mutatingBindings", "validating", "validatingBindings": [...], "namespaces": {name: labels}}.  Input: pods as JSON,
// one a line, each with its namespace.  Output: {"pod", "error"} a line.

import (
	"context"
	"encoding/json"
	"os"
	"time"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/discovery"
	dynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/openapi"
	"k8s.io/client-go/openapi/openapitest"
)

type chain struct {
	Mutating           []v1.MutatingAdmissionPolicy          `json:"mutating"`
	MutatingBindings   []v1.MutatingAdmissionPolicyBinding   `json:"mutatingBindings"`
	Validating         []v1.ValidatingAdmissionPolicy        `json:"validating"`
	ValidatingBindings []v1.ValidatingAdmissionPolicyBinding `json:"validatingBindings"`
	Namespaces         map[string]map[string]string          `json:"namespaces"`

	mutate   *mutating.Plugin
	validate *validating.Plugin
	objects  admission.ObjectInterfaces
}

type outcome struct {
	Pod   *corev1.Pod `json:"pod,omitempty"`
	Error string      `json:"error,omitempty"`
}

// A fake client that has Kubernetes' own schemas, too.
type client struct{ *fake.Clientset }
type schemas struct{ discovery.DiscoveryInterface }

func (c client) Discovery() discovery.DiscoveryInterface { return schemas{c.Clientset.Discovery()} }
func (schemas) OpenAPIV3() openapi.Client                { return openapitest.NewEmbeddedFileClient() }

var _ kubernetes.Interface = client{}

// whole is what an API server's defaults do.
func whole(m *v1.MatchResources) {
	policy := v1.Equivalent
	m.MatchPolicy = &policy
	if m.NamespaceSelector == nil {
		m.NamespaceSelector = &metav1.LabelSelector{}
	}
	if m.ObjectSelector == nil {
		m.ObjectSelector = &metav1.LabelSelector{}
	}
}

func (c *chain) known() (all []runtime.Object) {
	for i := range c.Mutating {
		whole(c.Mutating[i].Spec.MatchConstraints)
		all = append(all, &c.Mutating[i])
	}
	for i := range c.MutatingBindings {
		whole(c.MutatingBindings[i].Spec.MatchResources)
		all = append(all, &c.MutatingBindings[i])
	}
	for i := range c.Validating {
		whole(c.Validating[i].Spec.MatchConstraints)
		all = append(all, &c.Validating[i])
	}
	for i := range c.ValidatingBindings {
		if m := c.ValidatingBindings[i].Spec.MatchResources; m != nil {
			whole(m)
		}
		all = append(all, &c.ValidatingBindings[i])
	}
	for name, labels := range c.Namespaces {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}})
	}
	return all
}

func (c *chain) start(stop <-chan struct{}) {
	api := client{fake.NewClientset(c.known()...)}
	factory := informers.NewSharedInformerFactory(api, 0)
	scheme := runtime.NewScheme()
	must(corev1.AddToScheme(scheme))
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	c.objects = admission.NewObjectInterfacesFromScheme(scheme)
	anybody := authorizer.AuthorizerFunc(func(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionDeny, "", nil
	})
	var err error
	c.mutate, err = mutating.NewPlugin(nil)
	must(err)
	c.validate, err = validating.NewPlugin(nil)
	must(err)
	c.mutate.SetEnabled(true)
	c.validate.SetEnabled(true)
	for _, p := range []interface {
		SetExternalKubeClientSet(kubernetes.Interface)
		SetExternalKubeInformerFactory(informers.SharedInformerFactory)
		SetRESTMapper(meta.RESTMapper)
		SetAuthorizer(authorizer.Authorizer)
		SetDrainedNotification(<-chan struct{})
		ValidateInitialization() error
		WaitForReady() bool
	}{c.mutate, c.validate} {
		p.SetExternalKubeClientSet(api)
		p.SetExternalKubeInformerFactory(factory)
		p.SetRESTMapper(mapper)
		p.SetAuthorizer(anybody)
		p.SetDrainedNotification(stop)
	}
	c.mutate.SetDynamicClient(dynamic.NewSimpleDynamicClient(scheme))
	c.validate.SetDynamicClient(dynamic.NewSimpleDynamicClient(scheme))
	must(c.mutate.ValidateInitialization())
	must(c.validate.ValidateInitialization())
	factory.Start(stop)
	factory.WaitForCacheSync(stop)
	for !c.mutate.WaitForReady() || !c.validate.WaitForReady() {
		time.Sleep(10 * time.Millisecond)
	}
}

func (c *chain) ask(text []byte) (o outcome) {
	var pod corev1.Pod
	must(json.Unmarshal(text, &pod))
	kind, pods := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	attributes := admission.NewAttributesRecord(&pod, nil, kind, pod.Namespace, pod.Name, pods, "", admission.Create, &metav1.CreateOptions{}, false,
		&user.DefaultInfo{Name: "system:serviceaccount:kube-system:replicaset-controller"})
	err := c.mutate.Admit(context.Background(), attributes, c.objects)
	if err == nil {
		err = c.validate.Validate(context.Background(), attributes, c.objects)
	}
	if err != nil {
		o.Error = err.Error()
	} else {
		o.Pod = attributes.GetObject().(*corev1.Pod)
	}
	return o
}

func newChain(file string, stop <-chan struct{}) *chain {
	var c chain
	text, err := os.ReadFile(file)
	must(err)
	must(json.Unmarshal(text, &c))
	c.start(stop)
	return &c
}
