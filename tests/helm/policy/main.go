// policy: pods before a ValidatingAdmissionPolicy, by the API server's own evaluator.
//
// Input: a policy as JSON (a file), pods as JSON, one a line.  Output: a JSON object a line: whether the policy matched, and the
// messages of what it denies.  -version: the API server whose CEL there is.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"log"
	"os"

	v1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

type result struct {
	Matched bool     `json:"matched"`
	Denied  []string `json:"denied,omitempty"`
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// compile is what the plug-in does with a policy that comes; a new one is compiled for the version before the server's.
func compile(p *v1.ValidatingAdmissionPolicy, v *version.Version) validating.Validator {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(v))
	must(err)
	with := cel.OptionalVariableDeclarations{HasAuthorizer: true}
	var variables []cel.NamedExpressionAccessor
	var validations, messages, matches []cel.ExpressionAccessor
	for _, x := range p.Spec.Variables {
		variables = append(variables, &validating.Variable{Name: x.Name, Expression: x.Expression})
	}
	compiler.CompileAndStoreVariables(variables, with, environment.NewExpressions)
	for _, x := range p.Spec.Validations {
		validations = append(validations, &validating.ValidationCondition{Expression: x.Expression, Message: x.Message, Reason: x.Reason})
		var message cel.ExpressionAccessor
		if x.MessageExpression != "" {
			message = &validating.MessageExpressionCondition{MessageExpression: x.MessageExpression}
		}
		messages = append(messages, message)
	}
	for i := range p.Spec.MatchConditions {
		matches = append(matches, (*matchconditions.MatchCondition)(&p.Spec.MatchConditions[i]))
	}
	matcher := matchconditions.NewMatcher(compiler.CompileCondition(matches, with, environment.NewExpressions), p.Spec.FailurePolicy,
		"policy", "validate", p.Name)
	return validating.NewValidator(compiler.CompileCondition(validations, with, environment.NewExpressions), matcher,
		compiler.CompileCondition(nil, with, environment.NewExpressions),
		compiler.CompileCondition(messages, cel.OptionalVariableDeclarations{}, environment.NewExpressions), p.Spec.FailurePolicy, nil)
}

func ask(v validating.Validator, text []byte) (r result) {
	var pod corev1.Pod
	must(json.Unmarshal(text, &pod))
	kind, pods := corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithResource("pods")
	attributes := admission.NewAttributesRecord(&pod, nil, kind, pod.Namespace, pod.Name, pods, "", admission.Create, nil, false, nil)
	all := v.Validate(context.Background(), pods, &admission.VersionedAttributes{Attributes: attributes, VersionedObject: &pod,
		VersionedKind: kind}, nil, nil, celconfig.RuntimeCELCostBudget, nil)
	r.Matched = len(all.Decisions) > 0
	for _, d := range all.Decisions {
		if d.Action == validating.ActionDeny {
			r.Denied = append(r.Denied, d.Message)
		}
	}
	return r
}

func main() {
	file := flag.String("policy", "", "a ValidatingAdmissionPolicy as JSON")
	server := flag.String("version", "1.36", "of the API server")
	chained := flag.String("chain", "", "policies and bindings for the plug-ins, as JSON (plugins.go)")
	flag.Parse()

	if *chained != "" {
		stop := make(chan struct{})
		defer close(stop)
		c := newChain(*chained, stop)
		answer(func(text []byte) any { return c.ask(text) })
		return
	}
	var policy v1.ValidatingAdmissionPolicy
	text, err := os.ReadFile(*file)
	must(err)
	must(json.Unmarshal(text, &policy))
	v := compile(&policy, version.MustParseGeneric(*server).SubtractMinor(1))
	answer(func(text []byte) any { return ask(v, text) })
}

// answer writes a line for each that comes.
func answer(one func([]byte) any) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 8<<20)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		must(out.Encode(one(in.Bytes())))
	}
	must(in.Err())
}
