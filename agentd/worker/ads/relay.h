/* relay.h - the messages between one Envoy and istiod, carried on as the bytes they came in.
 *
 * The relay reads the type URL and the nonce of each message.  The first request, and each that has
 * a node, gets our node id and metadata (architecture decisions.md 6).  Of extensions, Wasm filters
 * are changed (wasm.h).  Types of ads_relay_take()
 * are subscribed to right after Envoy's first LDS request, answered (ACK or NACK) here and never
 * shown to Envoy; foreign types are dropped (istio-agent.md 1.4-1.5).  A first push that removes
 * all clusters or listeners is held for 30 s (hold.h).
 *
 * Pushes queue for a slow Envoy up to 8 MiB (LIMIT_QUEUED).  Then istiod is not read until there is
 * room.  An Envoy that makes no room for 15 s (unread_stream_s) loses its stream; so does one that
 * reads nothing for so long while other pods' pushes wait for memory (base/rpc/ledger.h).
 *
 * The relay neither opens nor ends streams.  Its owner does (xds_proxy.h), and tells the relay.
 */
#pragma once
#include "local.h"
#include "worker/pods/served.h"
#include <jansson.h>

struct ads_metrics;
struct ads_relay;
struct ads_said_msg;
struct ads_wasm;
struct istiod_options;
struct limits;
struct log_budget;
struct loop;
struct node;

/* Two streams that are one to Envoy; NULL: not open now. */
struct ads_pair {
	struct rpc_stream *down; /* from Envoy */
	struct rpc_stream *up;   /* to istiod */
	enum discovery_flavour flavour;
};

/* All borrowed, and outlive the relay. */
struct ads_relay_options {
	struct loop *loop;
	const struct ads_pair *pair;
	const struct istiod_options *plane;
	const struct node *node;
	const char *label; /* of the pod, for the log */
	struct log_budget *log;
	const struct ads_metrics *metrics;
	void (*unread)(void *ctx, const char *why); /* Envoy does not read: end it */
	void (*plugins)(void *ctx);                 /* what ads_relay_wasm() has changed */
	void *ctx;
};

struct ads_relay *ads_relay_new(const struct ads_relay_options *o);
void ads_relay_free(struct ads_relay **r);
/* Before the first stream. */
void ads_relay_limit(struct ads_relay *r, struct limits *l);
void ads_relay_take(struct ads_relay *r, const char *type_url, local_handler handler, void *ctx);

/* The workload's health, from now on; `why` NULL: it is healthy.  istiod is told now, if Envoy has
 * asked for listeners, and on each new stream when it has (istio-agent.md 0.3,
 * bare-metal-identity.md 5). */
void ads_relay_health(struct ads_relay *r, const char *why);

/* Both streams are there.  Forwards a request as it comes, or one that had to wait. -1: it is
 * malformed and was not forwarded. */
int ads_relay_request(struct ads_relay *r, const struct rpc_msg *m, struct err *e);
int ads_relay_repeat(struct ads_relay *r, const struct ads_said_msg *said, struct err *e);
/* False: both streams must be opened again, because istiod would not repeat the held push. */
bool ads_relay_response(
    struct ads_relay *r, const struct discovery_response *d, const struct rpc_msg *m);
/* The queue towards one side is empty again: the other side is read again. */
void ads_relay_up_writable(const struct ads_relay *r);
void ads_relay_down_writable(struct ads_relay *r);
/* Others wait for what Envoy has not read for so long: an Envoy that makes no room is ended. */
void ads_relay_crowded(struct ads_relay *r, int64_t unread_ms);
/* The stream to istiod is over; so is Envoy's. */
void ads_relay_up_ended(struct ads_relay *r);
void ads_relay_down_ended(struct ads_relay *r);

/* {url: {version, nonce, acked, nacked, refused, last_nack}} */
unsigned ads_relay_refused(const struct ads_relay *r);            /* account.h */
const struct ads_wasm *ads_relay_wasm(const struct ads_relay *r); /* wasm.h */
json_t *ads_relay_dump(const struct ads_relay *r);
size_t ads_relay_held(const struct ads_relay *r);          /* bytes of pushes */
const char *ads_relay_why_held(const struct ads_relay *r); /* a push; "": none is */
/* What became of the pushes of the present stream. */
enum served ads_relay_served(const struct ads_relay *r, struct err *why);
