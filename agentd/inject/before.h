/* before.h - a pod that runs with istiod's own sidecar, as it was before istiod's injector.
 *
 * For looking, not for writing: what the annotation sidecar.istio.io/status lists is taken out, the
 * pod's own istio-proxy and its probes are put back (injection.md 4).  Labels and the annotations
 * of metrics stay as the injector made them: no rule of ours depends on them.
 */
#pragma once
#include <jansson.h>

struct inject_before {
	json_t *pod;          /* a new one */
	json_t *proxy;        /* the istio-proxy that was added; NULL: none was */
	json_t *proxy_config; /* what it is told as PROXY_CONFIG; an object, or NULL */
	unsigned probes;      /* how many were put back */
};

struct inject_config;

/* All parts that are not NULL are the caller's; each member's type is looked at. */
void inject_before(struct inject_before *b, const json_t *pod);
void inject_before_clear(struct inject_before *b);
/* Of the mesh and the values, what `c` is silent about is what the proxy is told: PROXY_CONFIG, its
 * trust domain, mesh, cluster and CA.  `c` gets a mesh and values of its own: the caller's.  Where
 * the mesh is known, the address of the proxy's own istiod is forgotten. */
void inject_before_tells(const struct inject_before *b, struct inject_config *c);
