/* inject.h - a pod becomes one of agentd's: Envoy's container and agentd's volume are added.  Pure.
 *
 * The result is that of istiod's own injector running helm/agentd/files/injection-template.yaml
 * (injection.md 4, 5), from typed values and without a text template.  Beyond that one:
 *
 * - what a node would refuse at mount is refused here, in a node's words;
 * - the annotation sidecar.istio.io/status holds what takes the whole back: inject_take_back(
 *   inject_pod(x)) is x, and inject_pod(inject_pod(x)) is inject_pod(x), also where a pod changes
 *   its own istio-proxy.
 *
 * A pod is a JSON object {metadata, spec} as the Kubernetes API knows it.  It is hostile: each
 * member's type is looked at before it is used.  Its texts hold no NUL (jansson reads none).
 * Nothing of the pod that goes in is changed.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

struct err;
struct inject_config; /* config.h */

/* Items of each list and map that is read; bytes of JSON or YAML in an annotation that is read, and
 * of the pod's own istio-proxy, which is written into one.  More is refused by name. */
enum { INJECT_ITEMS_MAX = 1000, INJECT_TEXT_MAX = 64 << 10 };

/* The object that made the pod (injection.md 3); every text is borrowed and never NULL. */
struct inject_owner {
	const char *api_version, *kind, *name, *ns;
};

/* Shall it be injected, and by which rule (injection.md 2, as far as it is the pod's). */
struct inject_rule {
	bool yes;
	const char *why;  /* "label sidecar.istio.io/inject is \"false\"" */
	const char *skip; /* Istio's words for it: "has host networking enabled"; NULL: yes */
	bool by_default;  /* yes, but the pod says nothing of it */
};
struct inject_rule inject_rule_of(const json_t *pod, const char *ns);

/* A new pod; NULL: refused, for one reason.  Texts are added to the array `warnings`. */
json_t *inject_pod(const struct inject_config *c, const struct inject_owner *o, const json_t *pod,
    json_t *warnings, struct err *e);

/* The pod as it was before inject_pod(); a copy of one that was not injected.  NULL: refused, for
 * another injector's work is not ours to take back. */
json_t *inject_take_back(const json_t *pod, struct err *e);
bool inject_is_injected(const json_t *pod); /* by whomever */
