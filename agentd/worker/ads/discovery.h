/* discovery.h - the few fields that agentd reads of a discovery request or response.
 *
 * Field numbers differ between state-of-the-world and delta (grpc-core.md 3).  Every length is
 * bounded; resources are never touched.  Messages come as a pbwire reader at their first byte.
 */
#pragma once
#include "base/pbwire.h"
#include <stdbool.h>

struct err;
struct evbuffer;
struct rpc_msg;

#define TYPE_PREFIX "type.googleapis.com/"
#define TYPE_CLUSTER TYPE_PREFIX "envoy.config.cluster.v3.Cluster"
#define TYPE_LISTENER TYPE_PREFIX "envoy.config.listener.v3.Listener"
#define TYPE_SECRET TYPE_PREFIX "envoy.extensions.transport_sockets.tls.v3.Secret"
#define TYPE_NAME_TABLE TYPE_PREFIX "istio.networking.nds.v1.NameTable"
#define TYPE_PROXY_CONFIG TYPE_PREFIX "istio.mesh.v1alpha1.ProxyConfig"
#define TYPE_HEALTH TYPE_PREFIX "istio.v1.HealthInformation"

enum {
	DISCOVERY_TYPE_SIZE = 160,
	DISCOVERY_NONCE_SIZE = 160,
	DISCOVERY_WHY_SIZE = 256,
	DISCOVERY_NAME_SIZE = 4096 + 1,
	/* Of a request: a pod writes them, and each is work (security-rules.md G9). */
	DISCOVERY_FIELDS_MAX = 200000,
};

enum discovery_flavour { DISCOVERY_SOTW, DISCOVERY_DELTA };

struct pbwire discovery_reader(const struct rpc_msg *m);

struct discovery_request {
	char type_url[DISCOVERY_TYPE_SIZE];
	char nonce[DISCOVERY_NONCE_SIZE]; /* response_nonce */
	bool has_node, has_node_id;
	bool nack;
	char nack_why[DISCOVERY_WHY_SIZE]; /* printable */
	unsigned had; /* delta: resources of an earlier stream; state of the world: 1 if any */
};
int discovery_read_request(
    struct discovery_request *q, enum discovery_flavour f, struct pbwire msg, struct err *e);

struct discovery_response {
	char type_url[DISCOVERY_TYPE_SIZE];
	char nonce[DISCOVERY_NONCE_SIZE];
	char version[DISCOVERY_NONCE_SIZE]; /* "" if longer; delta: system_version_info */
	unsigned resources;
	unsigned removed; /* delta only; meaningless in the other flavour */
};
/* The fields that are read have the same numbers in both flavours. */
int discovery_read_response(struct discovery_response *r, struct pbwire msg, struct err *e);

/* The first resource of a response of either flavour, when it is of that type.  1: here it is; 0:
 * it is there, and empty; -1: none, or another. */
int discovery_first_resource(struct pbwire msg, const char *type, struct pbwire *out);

/* The names in a request, in the order of the wire. */
enum discovery_verb {
	DISCOVERY_SUBSCRIBE,
	DISCOVERY_UNSUBSCRIBE, /* delta only */
	DISCOVERY_HAVE,        /* delta only: of an earlier stream, in `version` */
};
struct discovery_name {
	enum discovery_verb verb;
	const char *name;    /* at most 4,096 bytes */
	const char *version; /* "" if longer than DISCOVERY_NONCE_SIZE */
};
/* -1 ends the walk; `each` has filled `e`. */
typedef int (*discovery_each)(void *ctx, const struct discovery_name *n, struct err *e);
int discovery_each_name(
    enum discovery_flavour f, struct pbwire msg, discovery_each each, void *ctx, struct err *e);

struct discovery_node {
	const char *id;
	const void *metadata; /* a packed google.protobuf.Struct */
	size_t metadata_size;
};
/* The same request with node.id and node.metadata replaced.  A node may be on the wire in pieces:
 * every piece is taken out, and one node of all their other fields, and ours, is put at the end;
 * every other byte is kept, in order.  Nothing is written to `out` on error. */
int discovery_replace_node(struct evbuffer *out, enum discovery_flavour f, struct pbwire msg,
    const struct discovery_node *ours, struct err *e);

/* An ACK, or with `why` a NACK (code INTERNAL), of a response that agentd handled itself. */
void discovery_put_ack(struct evbuffer *out, enum discovery_flavour f,
    const struct discovery_response *r, const char *why);
/* A subscription of agentd's own: the type and nothing else. */
void discovery_put_subscribe(struct evbuffer *out, enum discovery_flavour f, const char *type_url);
/* A report of the workload's health, which has no answer; `why` NULL: it is healthy
 * (bare-metal-identity.md 5). */
void discovery_put_health(struct evbuffer *out, enum discovery_flavour f, const char *why);
