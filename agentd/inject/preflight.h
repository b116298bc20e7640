/* preflight.h - the pods of a cluster, one after the other: which of them could be agentd's, and
 * what would be different.  By workload: pods of one owner are one row.
 *
 * The rules are injection's own (inject.h): each pod is looked at as it was before istiod's
 * injector (before.h), and injected.  What is added here is said of the pod that runs: probes that
 * the kubelet asks itself again, files that Envoy reads itself, the end of a Job, plugins whose
 * module nobody fetches.
 *
 * Where the configuration has no mesh, what a pod's istio-proxy is told (PROXY_CONFIG) is taken for
 * it; where it has no image, any will do.
 */
#pragma once
#include <jansson.h>

struct err;
struct inject_config;
struct preflight;

/* What is kept of all pods: more than 100,000 workloads.  More is refused. */
enum { PREFLIGHT_KEPT_MAX = 512 << 20, PREFLIGHT_TEXTS_MAX = 8 };

/* Takes the configuration. */
struct preflight *preflight_new(struct inject_config *c);
void preflight_free(struct preflight **p);

/* A Pod, or a WasmPlugin of Istio's in any order with them; all else is passed over.  An object of
 * the API without a kind is a Pod.  The signature is that of items.h. */
int preflight_take(json_t *object, struct err *e, void *p);

/* {"workloads": [{"kind", "namespace", "name", "pods": 3, "verdict", "refused": [..], "changes":
 *   [..]}], "verdicts": {"cannot": 0, "changes": 1, ..}}; the caller's.  Texts are printable ASCII.
 *
 * Verdicts, the worst of a workload's pods, in this order: "cannot" (why: refused), "changes" (how:
 * changes), "moves" as it is, "moved" is agentd's already, "outside" has no sidecar of istiod's
 * injector.  The rows are in this order, too.  Each list has at most PREFLIGHT_TEXTS_MAX. */
json_t *preflight_answer(const struct preflight *p);
