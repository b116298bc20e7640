/* pieces.h - what Envoy's own listeners and clusters are made of.  Private to worker/envoy.
 *
 * Each function makes new JSON and takes the JSON it is given.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

struct node;

#define PIECES_TYPE(name) "type.googleapis.com/envoy." name
enum { PIECES_CONNECT_MS = 250 };

const char *pieces_loopback(const struct node *n); /* where Envoy's admin and the pod's apps are */
json_t *pieces_address(const char *ip, unsigned port);

/* STATIC, with one endpoint. */
json_t *pieces_cluster(const char *name, int connect_ms, json_t *address);
json_t *pieces_named(json_t *list, const char *name); /* borrowed; NULL: there is none */

/* It speaks HTTP/2; `requests`: of one connection, 0: any. */
void pieces_speak_http2(json_t *cluster, int requests);
/* The secret of this name, which agentd is asked for.  Envoy waits for a certificate of the mesh as
 * long as it takes; for one in files ("file-root:PATH"), 15 s. */
json_t *pieces_secret(const char *name);
/* An exact path and the cluster that it goes to. */
json_t *pieces_route(const char *path, const char *cluster);

/* {"name": .., "typed_config": config with its @type}: the form of every extension. */
json_t *pieces_extension(const char *name, const char *type, json_t *config);

/* HTTP by these routes; `filters` stand before the router, NULL: none. */
json_t *pieces_http(const char *stat_prefix, json_t *routes, json_t *filters);

/* On all addresses; of the other family, too, when dual-stack is asked for and the pod has both.
 * An operator must reach it while the data plane is overloaded.  `http` is pieces_http()'s. */
json_t *pieces_listener(const struct node *n, unsigned port, json_t *http);
char *pieces_listener_name(const struct node *n, unsigned port); /* caller frees */
