/* config.h - what injection is told of the mesh, in Istio's words, and of the nodes.
 *
 * Captured files fit: `values` is the key of that name of istiod's ConfigMap
 * istio-sidecar-injector, `meshConfig` the key `mesh` of its ConfigMap istio.  Only what injection
 * uses is read; other keys pass.  A value that istiod's chart always has is the chart's default
 * where global.proxy is missing.  Our own part, `agentd`, is closed: an unknown key is refused.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

struct err;

struct inject_config {
	json_t *values, *mesh; /* objects */
	json_t *sandboxes;     /* runtime classes that cannot be meshed */
	json_t *planes;        /* further control planes of the nodes: host:port */
	const char *network, *cluster_domain, *template_name, *redirect_mode;
	bool ipv6;   /* Envoy's own address has this family */
	bool native; /* the container is a sidecar of initContainers, unless a pod says no */
	bool istio_cni;
	bool hide_from_istiod; /* a label tells istiod's injector to pass the pod over */
	json_t *annotations;   /* a webhook's: each pod gets them; of `values`, or NULL */
	json_t *own;           /* holds the texts */
};

/* Each may be NULL: {values, meshConfig, agentd}.  NULL: refused. */
struct inject_config *inject_config_new(json_t *values, json_t *mesh, json_t *own, struct err *e);
/* Of one map with these three; another key is refused.  A null is an empty one. */
struct inject_config *inject_config_of(json_t *all, struct err *e);
void inject_config_free(struct inject_config **c);

/* A member by its path, "global.proxy.image"; NULL: there is none, or it is null. */
json_t *inject_at(const json_t *o, const char *path);
/* A scalar as text; NULL: missing, null, empty, or not a scalar.  The caller frees it. */
char *inject_text(const json_t *o, const char *path);
/* The same of a value; NULL: not a scalar. */
char *inject_scalar(const json_t *v);
bool inject_true(const json_t *o, const char *path); /* true or "true" */
