/* xds.h - one discovery stream as Envoy has it: ask, be answered, ACK. */
#pragma once
#include "h2.h"

#define TYPE_PREFIX "type.googleapis.com/envoy."
#define TYPE_CDS TYPE_PREFIX "config.cluster.v3.Cluster"
#define TYPE_LDS TYPE_PREFIX "config.listener.v3.Listener"
#define TYPE_EDS TYPE_PREFIX "config.endpoint.v3.ClusterLoadAssignment"
#define TYPE_SDS TYPE_PREFIX "extensions.transport_sockets.tls.v3.Secret"

enum { XDS_TEXT = 256 };

struct xds_events {
	void (*answered)(void *ctx, size_t size); /* version, nonce, type are those of the answer */
	void (*closed)(void *ctx);
};

/* Embed it zeroed. */
struct xds {
	struct h2_stream *stream; /* NULL: closed */
	struct xds_events ev;
	void *ctx;
	char version[XDS_TEXT], type[XDS_TEXT], nonce[XDS_TEXT];
	struct { /* the message that is coming in; its bytes are looked at and forgotten */
		uint8_t head[5];
		size_t have, size, left;
		int state;
		unsigned tag, shift;
		uint64_t varint;
		size_t body, kept;
	} in;
};

void xds_open_sds(struct xds *x, struct h2 *h, const struct xds_events *ev, void *ctx);
void xds_open_ads(struct xds *x, struct h2 *h, const struct xds_events *ev, void *ctx);

struct xds_ask {
	const char *type, *name; /* name NULL: all */
	size_t node;             /* bytes of the node that the request carries; 0: none */
	bool ack;                /* it is also the ACK of the last answer */
	bool last;
};
void xds_ask(struct xds *x, const struct xds_ask *a);
