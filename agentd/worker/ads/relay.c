/* relay.c - see relay.h.
 *
 * Envoy's request -> the first, and each that has a node, gets our node; others go on as they came
 *   -> after the first for listeners: the subscriptions of agentd's own, and the health.
 * istiod's response -> a local type: its handler, and an ACK or NACK; extensions: rewritten
 *   (wasm.h); another Envoy type: on as it came, but one that takes everything away right after a
 *   reconnect waits (hold.h); others: dropped without an ACK.
 *
 * Reading stops where writing is slow, in both directions.  A message that was already asked for
 * comes even after rpc_pause(): one on top of the limit.  An Envoy that leaves its queue full for
 * long is ended, and its connection with it: it holds one of istiod's push slots
 * (istiod-live.md 1.1, 1.12).
 */
#include "relay.h"
#include "account.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "hold.h"
#include "mesh/node.h"
#include "metrics.h"
#include "rpc/rpc.h"
#include "said.h"
#include "wasm.h"
#include "worker/istiod/istiod.h"
#include "worker/pods/limits.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

LOG_SCOPE("xds");

enum {
	TO_ISTIOD_MAX = 1 << 20,
	LOOK_MS = 1000, /* at a queue that is full */
};

struct ads_relay {
	struct ads_relay_options o;
	struct limits *limits;
	struct ads_local locals;
	struct ads_account account;
	struct ads_wasm wasm;
	unsigned wasm_told; /* wasm.changes when the owner heard of them */
	struct ads_hold *hold;
	bool asked, subscribed;  /* a request, and ours, went up on this stream */
	bool probed;             /* `sick` is true */
	char sick[ERR_MSG_SIZE]; /* why the workload is not healthy; "": it is */
	struct loop_timer full;
	unsigned full_s; /* how long Envoy's queue is full */
};

/* --- Envoy to istiod --- */

static void send_buffer(struct rpc_stream *to, struct evbuffer *b)
{
	size_t len = evbuffer_get_length(b);

	rpc_send(to, evbuffer_pullup(b, -1), len);
	evbuffer_free(b);
}

static int send_with_our_node(const struct ads_relay *r, struct pbwire msg, struct err *e)
{
	const struct ads_pair *pair = r->o.pair;
	struct evbuffer *out = evbuffer_new();
	struct discovery_node ours = {.id = node_id(r->o.node)};

	ours.metadata = node_metadata_struct(r->o.node, &ours.metadata_size);
	if (discovery_replace_node(out, pair->flavour, msg, &ours, e)) {
		evbuffer_free(out);
		return -1;
	}
	send_buffer(pair->up, out);
	return 0;
}

static void say_health(const struct ads_relay *r)
{
	struct evbuffer *out = evbuffer_new();

	discovery_put_health(out, r->o.pair->flavour, *r->sick ? r->sick : NULL);
	send_buffer(r->o.pair->up, out);
}

void ads_relay_health(struct ads_relay *r, const char *why)
{
	r->probed = true;
	(void)snprintf(r->sick, sizeof(r->sick), "%s", why ? why : "");
	if (r->subscribed)
		say_health(r);
}

static void tell_plugins(struct ads_relay *r)
{
	if (r->wasm_told == r->wasm.changes)
		return;
	r->wasm_told = r->wasm.changes;
	r->o.plugins(r->o.ctx);
}

/* 1: it went up with our node; 0: it can go up as it is. */
static int read_request(
    struct ads_relay *r, struct discovery_request *q, struct pbwire msg, struct err *e)
{
	if (discovery_read_request(q, r->o.pair->flavour, msg, e))
		return -1;
	ads_metrics_count(r->o.metrics, r->o.metrics->requests);
	ads_metrics_answered(r->o.metrics, ads_account_request(&r->account, q));
	ads_hold_request(r->hold, q);
	ads_wasm_request(&r->wasm, r->o.pair->flavour, q, msg);
	tell_plugins(r);
	if (r->asked && !q->has_node)
		return 0;
	return send_with_our_node(r, msg, e) ? -1 : 1;
}

static void request_went_up(struct ads_relay *r, const struct discovery_request *q)
{
	const struct ads_pair *pair = r->o.pair;

	r->asked = true;
	if (!r->subscribed && strcmp(q->type_url, TYPE_LISTENER) == 0) {
		r->subscribed = true;
		ads_local_subscribe(&r->locals, pair->flavour, pair->up);
		if (r->probed)
			say_health(r);
	}
	if (rpc_queued(pair->up) > TO_ISTIOD_MAX)
		rpc_pause(pair->down, true);
}

int ads_relay_request(struct ads_relay *r, const struct rpc_msg *m, struct err *e)
{
	struct discovery_request q;
	int sent = read_request(r, &q, discovery_reader(m), e);

	if (sent < 0)
		return -1;
	if (!sent)
		rpc_forward(r->o.pair->up, m);
	request_went_up(r, &q);
	return 0;
}

int ads_relay_repeat(struct ads_relay *r, const struct ads_said_msg *said, struct err *e)
{
	struct discovery_request q;
	struct iovec whole;
	int sent = read_request(r, &q, ads_said_reader(said, &whole), e);

	if (sent < 0)
		return -1;
	if (!sent)
		rpc_send(r->o.pair->up, said->bytes, said->len);
	request_went_up(r, &q);
	return 0;
}

void ads_relay_up_writable(const struct ads_relay *r)
{
	rpc_pause(r->o.pair->down, false);
}

/* --- a slow Envoy --- */

static bool is_full(const struct ads_relay *r)
{
	return (int64_t)rpc_queued(r->o.pair->down) > limits_value(r->limits, LIMIT_QUEUED);
}

/* 15 s: Envoy digests 5,000 clusters in 5 s (istiod-live.md 1.2). */
static void on_look(void *ctx)
{
	struct ads_relay *r = ctx;
	const struct ads_pair *pair = r->o.pair;
	auto_free char *why = NULL;

	if (!is_full(r)) {
		rpc_pause(pair->up, false);
		return;
	}
	if (++r->full_s < r->o.plane->unread_stream_s) {
		loop_timer_in(r->o.loop, &r->full, LOOK_MS, on_look, r);
		return;
	}
	why = mem_printf("Envoy left %zu bytes unread for %u s: its stream was ended",
	    rpc_queued(pair->down), r->full_s);
	r->o.unread(r->o.ctx, why);
}

void ads_relay_crowded(struct ads_relay *r, int64_t unread_ms)
{
	auto_free char *why = NULL;

	if (unread_ms < (int64_t)r->o.plane->unread_stream_s * 1000)
		return;
	why = mem_printf(
	    "Envoy left %zu bytes unread for %lld s, and other pods' pushes waited for the "
	    "memory: its stream was ended",
	    rpc_queued(r->o.pair->down), (long long)(unread_ms / 1000));
	r->o.unread(r->o.ctx, why);
}

static void look_at_queue(struct ads_relay *r)
{
	if (!is_full(r))
		return;
	rpc_pause(r->o.pair->up, true);
	if (r->full.armed)
		return;
	r->full_s = 0;
	limits_hit(r->limits, LIMIT_QUEUED);
	loop_timer_in(r->o.loop, &r->full, LOOK_MS, on_look, r);
}

void ads_relay_down_writable(struct ads_relay *r)
{
	loop_timer_stop(&r->full);
	if (r->o.pair->up)
		rpc_pause(r->o.pair->up, false);
}

/* --- istiod to Envoy --- */

static bool is_for_envoy(const char *type_url)
{
	static const char envoys[] = TYPE_PREFIX "envoy.";

	return strncmp(type_url, envoys, strlen(envoys)) == 0 ||
	       strcmp(type_url, TYPE_PREFIX "istio.workload.Workload") == 0;
}

/* What was held goes on after all. */
static void on_pass(void *ctx, const void *bytes, size_t len)
{
	struct ads_relay *r = ctx;

	rpc_send(r->o.pair->down, bytes, len);
	look_at_queue(r);
}

static void extensions_to_envoy(
    struct ads_relay *r, const struct discovery_response *d, const struct rpc_msg *m)
{
	const struct ads_pair *pair = r->o.pair;
	const struct local_stream at = {pair->flavour, pair->up, &r->account};
	struct account_type *t = ads_account_response(&r->account, d);
	struct evbuffer *out = evbuffer_new();
	struct err e;
	int rc = ads_wasm_response(&r->wasm, pair->flavour, discovery_reader(m), out, &e);

	if (rc > 0)
		send_buffer(pair->down, take(out));
	else if (rc == 0)
		rpc_forward(pair->down, m);
	else
		ads_local_answer(&at, t, d, e.msg);
	if (out)
		evbuffer_free(out);
	look_at_queue(r);
	tell_plugins(r);
}

static bool to_envoy(
    struct ads_relay *r, const struct discovery_response *d, const struct rpc_msg *m)
{
	if (!strcmp(d->type_url, TYPE_EXTENSION)) {
		extensions_to_envoy(r, d, m);
		return true;
	}
	ads_account_response(&r->account, d);
	switch (ads_hold_response(r->hold, r->o.pair->flavour, d, m)) {
	case ADS_HOLD_PASS:
		rpc_forward(r->o.pair->down, m);
		look_at_queue(r);
		break;
	case ADS_HOLD_HELD:
		ads_metrics_count(r->o.metrics, r->o.metrics->held_pushes);
		break;
	case ADS_HOLD_ANEW:
		return false;
	}
	return true;
}

bool ads_relay_response(
    struct ads_relay *r, const struct discovery_response *d, const struct rpc_msg *m)
{
	const struct local_stream at = {r->o.pair->flavour, r->o.pair->up, &r->account};

	if (ads_local_take(&r->locals, &at, d, m))
		return true;
	if (is_for_envoy(d->type_url))
		return to_envoy(r, d, m);
	log_warn(r->o.label, "istiod sent %s, which neither Envoy nor agentd uses: dropped",
	    d->type_url);
	return true;
}

/* --- the ends --- */

void ads_relay_up_ended(struct ads_relay *r)
{
	r->asked = r->subscribed = false;
	ads_account_stream_ended(&r->account);
	ads_wasm_stream_ended(&r->wasm);
	ads_hold_stream_ended(r->hold);
}

void ads_relay_down_ended(struct ads_relay *r)
{
	loop_timer_stop(&r->full);
}

struct ads_relay *ads_relay_new(const struct ads_relay_options *o)
{
	struct ads_relay *r = mem_zalloc(sizeof(*r));
	const struct ads_hold_options hold = {
	    o->loop, o->plane->hold_empty_push_s, o->label, o->log, on_pass, r};

	r->o = *o;
	r->account.label = o->label;
	r->account.log = o->log;
	r->account.loop = o->loop;
	r->hold = ads_hold_new(&hold);
	return r;
}

void ads_relay_free(struct ads_relay **relay)
{
	struct ads_relay *r = take(*relay);

	if (!r)
		return;
	loop_timer_stop(&r->full);
	ads_local_clear(&r->locals);
	ads_hold_free(&r->hold);
	ads_account_clear(&r->account);
	ads_wasm_clear(&r->wasm);
	free(r);
}

void ads_relay_limit(struct ads_relay *r, struct limits *l)
{
	r->limits = l;
}

void ads_relay_take(struct ads_relay *r, const char *type_url, local_handler handler, void *ctx)
{
	ads_local_add(&r->locals, type_url, handler, ctx);
}

unsigned ads_relay_refused(const struct ads_relay *r)
{
	return ads_account_refused(&r->account);
}

const struct ads_wasm *ads_relay_wasm(const struct ads_relay *r)
{
	return &r->wasm;
}

json_t *ads_relay_dump(const struct ads_relay *r)
{
	return ads_account_dump(&r->account);
}

size_t ads_relay_held(const struct ads_relay *r)
{
	return ads_hold_size(r->hold);
}

const char *ads_relay_why_held(const struct ads_relay *r)
{
	return ads_hold_why(r->hold);
}

enum served ads_relay_served(const struct ads_relay *r, struct err *why)
{
	const char *held = ads_relay_why_held(r);
	const enum served s = ads_account_served(&r->account, why);

	if (s != SERVED_YES || !*held)
		return s;
	err_set(why, ERR_UNAVAILABLE, "%s", held);
	return SERVED_HELD;
}
