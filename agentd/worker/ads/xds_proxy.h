/* xds_proxy.h - one pod's ADS stream, carried to istiod and back as the bytes it came in.
 *
 * relay.h decides about each message.  A second stream of the pod ends the first with OK.  Either
 * side's end ends the other.
 *
 * While istiod is away, or refuses for want of room (UNAVAILABLE, RESOURCE_EXHAUSTED, nothing
 * answered yet), Envoy's stream is held and opened again.  Envoy sees all other refusals.  After
 * each, the pod's next try waits: 0.5 s, doubling to 8 s, +-20 %, until istiod answers.
 */
#pragma once
#include "local.h"
#include "worker/pods/served.h"
#include <jansson.h>
#include <stdbool.h>

struct err;
struct istiod;
struct limits;
struct node;
struct pod;
struct rpc_msg;
struct rpc_stream;
struct token;
struct xds_proxy;

struct xds_owner {
	/* The pod's token, read again for every stream; NULL and `e` when none is valid now. */
	const struct token *(*token)(void *ctx, struct err *e);
	void (*plugins)(void *ctx); /* what xds_proxy_wasm() has changed */
	void *ctx;
};
/* `p` and `n` outlive the proxy. */
struct xds_proxy *xds_proxy_new(
    const struct pod *p, const struct node *n, struct istiod *i, const struct xds_owner *owner);
/* How much may wait for Envoy, and where it is counted; borrowed.  Before the first stream. */
void xds_proxy_limit(struct xds_proxy *x, struct limits *l);
size_t xds_proxy_queued(const struct xds_proxy *x); /* bytes that wait for Envoy now */
void xds_proxy_free(struct xds_proxy **x);
/* Before the first stream; not NULL: the order of these calls is the order of the subscriptions. */
void xds_proxy_take(struct xds_proxy *x, const char *type_url, local_handler handler, void *ctx);
/* Whoever wants to hear of it; may be NULL.  Before the first stream. */
struct xds_listener {
	void (*answered)(void *ctx); /* the first response of a stream */
	/* A stream ended before that; `why` as xds_proxy_dump() has it. */
	void (*refused)(void *ctx, const char *why);
	void *ctx;
};
void xds_proxy_listen(struct xds_proxy *x, const struct xds_listener *l);
/* As ads_relay_health() says. */
void xds_proxy_health(struct xds_proxy *x, const char *why);
/* Takes the stream if the method is one of ADS's. */
bool xds_proxy_incoming(struct xds_proxy *x, struct rpc_stream *st, const char *method);
/* The pod's token changed: the next try need not wait. */
void xds_proxy_token_changed(struct xds_proxy *x);
/* How the pod's stream is; `why` with HELD and REFUSED. */
enum xds_stream {
	XDS_NONE,    /* Envoy is not here */
	XDS_OPENS,   /* Envoy is, and istiod has not answered yet */
	XDS_SERVED,  /* istiod answered */
	XDS_HELD,    /* istiod is away, or has no room: Envoy waits and has what it had */
	XDS_REFUSED, /* istiod refused the last one, and no other has been answered since */
};
enum xds_stream xds_proxy_stream(const struct xds_proxy *x, const char **why);
bool xds_proxy_connected(const struct xds_proxy *x); /* istiod answered on the present stream */
/* What the pod has of its stream, now. */
enum served xds_proxy_served(const struct xds_proxy *x, struct err *why);
unsigned xds_proxy_refused(const struct xds_proxy *x); /* types whose last push Envoy refused */
const struct ads_wasm *xds_proxy_wasm(const struct xds_proxy *x); /* wasm.h */
/* connected (istiod answered on the present stream), held (Envoy is here, istiod is not), flavour,
 * node_id, opened, displaced, unread, types{url: {version, nonce, acked, nacked, refused,
 * last_nack}}, remote_wasm{name: why}, why_not, retry_at (Unix seconds, 0: no back-off) */
json_t *xds_proxy_dump(const struct xds_proxy *x);
