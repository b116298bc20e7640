/* env.h - a pod's declared environment, read by the closed list; the hostile half of node.c.
 *
 * Private to mesh/node*.c.  The list is the table in env.c; docs/ENVIRONMENT.md says
 * it in words.
 */
#pragma once
#include "node.h"

struct env {
	struct node_settings settings;
	json_t *metadata; /* what the pod adds to Envoy's node metadata; no reserved key in it */
	json_t *static_labels;         /* ISTIO_METAJSON_LABELS or NULL */
	json_t *labels, *annotations;  /* effective: the source's win over declared ones */
	json_t *proxy_config;          /* effective ProxyConfig in proto JSON */
	json_t *leftovers;             /* as node_leftovers() says */
	json_t *ignored, *unsupported; /* its two arrays, borrowed */
	char istio_version[24];        /* "x.y.z" or "" */
};

int env_read(struct env *n, const struct pod_spec *p, const struct node_context *c,
    struct err *e); /* `n` holds nothing after a refusal */
void env_clear(struct env *n);

/* A JSON object without duplicate keys, at most 32 deep; NULL: refused. */
json_t *env_parse_object(const char *key, const char *value, struct err *e);
/* A copy with all keys sorted: equal content, equal bytes. */
json_t *env_sorted(const json_t *v);
