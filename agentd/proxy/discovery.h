/* discovery.h - what of a discovery request or response is read without decoding the rest.
 *
 * Field numbers differ between state-of-the-world and delta (grpc-core.md 3).  Every length is
 * bounded; resources are never touched.
 */
#pragma once
#include "../base/pbwire.h"
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

enum { DISCOVERY_TYPE_SIZE = 160, DISCOVERY_NONCE_SIZE = 160, DISCOVERY_WHY_SIZE = 256 };

enum discovery_flavour { DISCOVERY_SOTW, DISCOVERY_DELTA };

struct discovery_request {
	char type_url[DISCOVERY_TYPE_SIZE];
	char nonce[DISCOVERY_NONCE_SIZE];   /* response_nonce */
	bool has_node;
	struct pbwire node;                 /* the payload of field `node` */
	bool nack;
	char nack_why[DISCOVERY_WHY_SIZE];  /* printable */
};
int discovery_read_request(struct discovery_request *q, enum discovery_flavour f,
    const struct iovec *iov, size_t n, struct err *e);

struct discovery_response {
	char type_url[DISCOVERY_TYPE_SIZE];
	char nonce[DISCOVERY_NONCE_SIZE];
	char version[DISCOVERY_NONCE_SIZE]; /* cut; delta: system_version_info */
	unsigned resources;
};
int discovery_read_response(struct discovery_response *r, enum discovery_flavour f,
    const struct iovec *iov, size_t n, struct err *e);

/* The names a secret request asks for. */
typedef int (*discovery_name)(void *ctx, const char *name, bool unsubscribe);
int discovery_each_name(enum discovery_flavour f, const struct iovec *iov, size_t n,
    discovery_name each, void *ctx, struct err *e);

/* The same request with node.id and node.metadata replaced (every occurrence dropped, ours appended)
 * and every other byte of it kept. */
int discovery_replace_node(struct evbuffer *out, const struct iovec *iov, size_t n, const char *id,
    const void *metadata, size_t metadata_size, struct err *e);

/* An ACK, or with `why` a NACK (code INTERNAL), of a response that agentd handled itself. */
void discovery_put_ack(struct evbuffer *out, enum discovery_flavour f,
    const struct discovery_response *r, const char *why);
/* A subscription of agentd's own: the type and nothing else. */
void discovery_put_subscribe(struct evbuffer *out, const char *type_url);
