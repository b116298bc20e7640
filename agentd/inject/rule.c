/* rule.c - shall a pod be injected (injection.md 2). */
#include "inject_internal.h"
#include <string.h>

/* The label wins; an empty one says nothing. */
static const char *wish_of(const json_t *metadata, const char **from)
{
	static const char *const maps[] = {"labels", "annotations"};
	static const char *const names[] = {"label", "annotation"};

	for (unsigned i = 0; i < 2; i++) {
		const char *v = json_string_value(
		    json_object_get(json_object_get(metadata, maps[i]), INJECT_WISH));

		*from = names[i];
		if (v && *v)
			return v;
	}
	return NULL;
}

struct inject_rule inject_rule_of(const json_t *pod, const char *ns)
{
	static const char *const never[] = {
	    "kube-system", "kube-public", "kube-node-lease", "local-path-storage"};
	static const char disabled[] = "has sidecar injection disabled";
	const char *from, *wish = wish_of(json_object_get(pod, "metadata"), &from);

	if (inject_true(pod, "spec.hostNetwork"))
		return (struct inject_rule){
		    false, "hostNetwork", "has host networking enabled", false};
	for (unsigned i = 0; i < sizeof(never) / sizeof(*never); i++)
		if (!strcmp(never[i], ns))
			return (struct inject_rule){
			    false, "a namespace of Kubernetes' own", disabled, false};
	if (wish && !strcmp(wish, "false"))
		return (struct inject_rule){false,
		    *from == 'l' ? "label sidecar.istio.io/inject is \"false\""
				 : "annotation sidecar.istio.io/inject is \"false\"",
		    disabled, false};
	return (struct inject_rule){true,
	    wish && !strcmp(wish, "true") ? "sidecar.istio.io/inject is \"true\"" : "by default",
	    NULL, !wish || strcmp(wish, "true") != 0};
}
