/* xds_proxy.c - see xds_proxy.h.
 *
 * incoming -> an older stream is ended -> accepted and held (not read) -> back-off, if the last
 * stream failed -> a turn at istiod -> the token -> the same method opened there -> Envoy is read.
 * Envoy's request -> the first, and each that has a node, gets our node; others go on as they came
 *   -> after the first for listeners: the subscriptions of agentd's own.
 * istiod's response -> a local type: its handler, and an ACK or NACK; an Envoy type: on as it came,
 *   but one that takes everything away right after a reconnect waits (empty_push.h); others:
 *   dropped without an ACK.
 * The end of either side -> the end of the other, with the same status; but istiod's refusal for
 *   want of capacity, before it answered anything -> Envoy is held, back-off, a turn, and all that
 *   Envoy said so far once more.
 *
 * Nothing is cached: after every end Envoy starts anew and tells all it has (istio-agent.md 0.1).
 * What Envoy said is kept only until istiod's first answer (up to that it holds no nonce of
 * istiod's, so it can be said again as it was), and only up to a limit: one who said more is ended.
 * What is kept beyond a stream is for people: counters, last NACKs.
 *
 * Reading stops where writing is slow, in both directions.  A message that was already asked for
 * comes even after rpc_pause(): one on top of the limit, and one that has to wait here for istiod.
 * An Envoy that leaves its queue full for long is ended, and its connection with it: it holds one
 * of istiod's push slots (istiod-live.md 1.1, 1.12).
 */
#include "xds_proxy.h"
#include "account.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "hold.h"
#include "local.h"
#include "metrics.h"
#include "said.h"
#include "worker/base/back_off.h"
#include "worker/base/loop.h"
#include "worker/base/rpc/server.h"
#include "worker/crypto/token.h"
#include "worker/envoy/node.h"
#include "worker/istiod/istiod.h"
#include "worker/istiod/stream_end.h"
#include "worker/pods/limits.h"
#include "worker/pods/pod.h"

#include <event2/buffer.h>
#include <stdio.h>
#include <string.h>

LOG_SCOPE("xds");

enum {
	TO_ISTIOD_MAX = 1 << 20,
	KEPT_MAX = 1 << 20, /* of what Envoy said before it was answered */
	LOOK_MS = 1000,     /* at a queue that is full */
};

#define SERVICE "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
static const char *const methods[] = {
    [DISCOVERY_SOTW] = SERVICE "StreamAggregatedResources",
    [DISCOVERY_DELTA] = SERVICE "DeltaAggregatedResources",
};
static const char *const flavours[] = {[DISCOVERY_SOTW] = "sotw", [DISCOVERY_DELTA] = "delta"};

struct xds_proxy {
	struct loop *loop;
	const struct pod *pod;
	const struct node *node;
	struct istiod *istiod;
	struct limits *limits;
	xds_token token;
	void *token_ctx;
	struct ads_local locals;

	/* The present stream; `down` NULL: none. */
	struct rpc_stream *down, *up;
	struct istiod_turn *turn;
	struct istiod_lease *lease;
	struct ads_said said; /* by Envoy, until istiod answers */
	bool said_more;       /* than is kept */
	struct loop_timer full;
	unsigned full_s; /* how long `down`'s queue is full */
	enum discovery_flavour flavour;
	bool asked, subscribed, answered; /* a request, ours, and a response went through */

	struct ads_account account;
	struct ads_hold *empty_push;
	struct back_off back_off; /* of the pod, whichever stream failed */
	json_int_t opened, displaced, unread;
	char why_not[ERR_MSG_SIZE];
	struct log_budget log;
	struct ads_metrics metrics;
};

static void count_end(const struct xds_proxy *x, struct metric *ends, int status, const char *why)
{
	ads_metrics_count_end(&x->metrics, ends, status, why);
}

/* --- the end --- */

static void set_why_not(struct xds_proxy *x, const char *why)
{
	if (*why && strcmp(x->why_not, why) != 0)
		log_warn(x->pod->label, "%s", why);
	snprintf(x->why_not, sizeof(x->why_not), "%s", why);
}

/* What Envoy said is wrong: a pod can cause that as often as it likes. */
static void blame_envoy(struct xds_proxy *x, const char *why)
{
	log_warn_limited(&x->log, x->pod->label, "%s", why);
	snprintf(x->why_not, sizeof(x->why_not), "%s", why);
}

/* The half towards istiod; Envoy's stays. */
static void end_up(struct xds_proxy *x)
{
	istiod_turn_cancel(&x->turn);
	istiod_lease_end(&x->lease);
	rpc_close(&x->up, RPC_CANCELLED, "");
	x->asked = x->subscribed = x->answered = false;
	ads_account_stream_ended(&x->account);
	ads_hold_stream_ended(x->empty_push);
}

/* Nothing of the stream is left afterwards; both slots may be empty already. */
static void end_stream(struct xds_proxy *x, int status, const char *why)
{
	end_up(x);
	rpc_close(&x->down, status, why);
	loop_timer_stop(&x->full);
	ads_said_clear(&x->said);
	x->said_more = false;
}

/* --- holding Envoy --- */

static void on_turn(void *ctx, struct rpc_channel *c);

/* Once the back-off of the pod is over; whoever is there then gets the turn. */
static void on_back_off_over(void *ctx)
{
	struct xds_proxy *x = ctx;

	if (x->down && !x->up && !x->turn)
		istiod_turn(x->istiod, &x->turn, &x->pod->uid, on_turn, x);
}

static void back_off(struct xds_proxy *x)
{
	back_off_start(x->loop, &x->back_off, on_back_off_over, x);
}

/* Everything that Envoy said can be said again: it was answered nothing, and all of it is kept. */
static bool may_hold(const struct xds_proxy *x)
{
	return x->down && !x->answered && !x->said_more;
}

static void hold(struct xds_proxy *x)
{
	end_up(x);
	rpc_pause(x->down, true);
	if (!back_off_waits(&x->back_off))
		istiod_turn(x->istiod, &x->turn, &x->pod->uid, on_turn, x);
}

static void on_up_closed(void *ctx, int status, const char *why)
{
	struct xds_proxy *x = ctx;
	struct err e = {0};

	if (status == RPC_UNAVAILABLE && !x->answered)
		ads_metrics_count(&x->metrics, x->metrics.failures);
	else
		count_end(x, x->metrics.istiod_ends, status, why);
	if (status != RPC_OK)
		err_set(&e, ERR_UNAVAILABLE, "istiod: %s: %s", rpc_status_name(status), why);
	set_why_not(x, e.msg);
	if (stream_end_did_harm(why))
		istiod_blame(x->istiod, &x->pod->uid, why);
	if (!x->answered || !stream_end_is_plain_end(status))
		back_off(x);
	if (stream_end_is_busy(status) && may_hold(x))
		hold(x);
	else
		end_stream(x, status, why);
}

/* GOAWAY: back on another connection, unseen by Envoy if nothing was answered yet. */
static void on_move(void *ctx)
{
	static const char why[] = "istiod ends the connection: the stream moves to another one";
	struct xds_proxy *x = ctx;

	count_end(x, x->metrics.istiod_ends, RPC_OK, why);
	if (may_hold(x))
		hold(x);
	else
		end_stream(x, RPC_OK, why);
}

static void on_down_closed(void *ctx, int status, const char *why)
{
	struct xds_proxy *x = ctx;

	count_end(x, x->metrics.envoy_ends, status, why);
	end_stream(x, status, why);
}

static void on_down_half_closed(void *ctx, struct rpc_stream *down)
{
	struct xds_proxy *x = ctx;

	(void)down;
	count_end(x, x->metrics.envoy_ends, RPC_OK, "");
	end_stream(x, RPC_OK, "");
}

/* --- Envoy to istiod --- */

static void send_buffer(struct rpc_stream *to, struct evbuffer *b)
{
	size_t len = evbuffer_get_length(b);

	rpc_send(to, evbuffer_pullup(b, -1), len);
	evbuffer_free(b);
}

static int send_with_our_node(struct xds_proxy *x, struct pbwire msg, struct err *e)
{
	struct evbuffer *out = evbuffer_new();
	struct discovery_node ours = {.id = node_id(x->node)};

	ours.metadata = node_metadata_struct(x->node, &ours.metadata_size);
	if (discovery_replace_node(out, x->flavour, msg, &ours, e)) {
		evbuffer_free(out);
		return -1;
	}
	send_buffer(x->up, out);
	return 0;
}

/* A request as it comes (`m`), or one that had to wait (`said`). */
static int carry_up(struct xds_proxy *x, struct pbwire msg, const struct rpc_msg *m,
    const struct ads_said_msg *said, struct err *e)
{
	struct discovery_request q;

	if (discovery_read_request(&q, x->flavour, msg, e))
		return -1;
	ads_metrics_count(&x->metrics, x->metrics.requests);
	ads_account_request(&x->account, &q);
	ads_hold_request(x->empty_push, &q);
	if (!x->asked || q.has_node) {
		if (send_with_our_node(x, msg, e))
			return -1;
	} else if (m) {
		rpc_forward(x->up, m);
	} else {
		rpc_send(x->up, said->bytes, said->len);
	}
	x->asked = true;
	if (!x->subscribed && strcmp(q.type_url, TYPE_LISTENER) == 0) {
		x->subscribed = true;
		ads_local_subscribe(&x->locals, x->flavour, x->up);
	}
	return 0;
}

static void take_request(struct xds_proxy *x, struct pbwire msg, const struct rpc_msg *m,
    const struct ads_said_msg *said)
{
	struct err e;

	if (carry_up(x, msg, m, said, &e)) {
		blame_envoy(x, e.msg);
		count_end(x, x->metrics.envoy_ends, RPC_INVALID_ARGUMENT, e.msg);
		end_stream(x, RPC_INVALID_ARGUMENT, e.msg);
		return;
	}
	if (rpc_queued(x->up) > TO_ISTIOD_MAX)
		rpc_pause(x->down, true);
}

/* Until istiod answers: for the turn, and for the next if istiod has no room. */
static void keep(struct xds_proxy *x, const struct rpc_msg *m)
{
	if (x->said_more)
		return;
	/* The first is kept whatever its size: it waits for its turn. */
	if (x->up && x->said.size + rpc_msg_size(m) > KEPT_MAX) {
		x->said_more = true;
		ads_said_clear(&x->said);
		return;
	}
	ads_said_add(&x->said, m);
}

static void on_down_message(void *ctx, struct rpc_stream *down, struct rpc_msg *m)
{
	struct xds_proxy *x = ctx;

	(void)down;
	if (!x->answered)
		keep(x, m);
	if (x->up)
		take_request(x, discovery_reader(m), m, NULL);
}

static void on_up_writable(void *ctx, struct rpc_stream *up)
{
	struct xds_proxy *x = ctx;

	(void)up;
	rpc_pause(x->down, false);
}

/* --- istiod to Envoy --- */

static bool is_for_envoy(const char *type_url)
{
	static const char envoys[] = TYPE_PREFIX "envoy.";

	return strncmp(type_url, envoys, strlen(envoys)) == 0 ||
	       strcmp(type_url, TYPE_PREFIX "istio.workload.Workload") == 0;
}

/* 15 s: Envoy digests 5,000 clusters in 5 s (istiod-live.md 1.2). */
static void end_unread(struct xds_proxy *x)
{
	auto_free char *why =
	    mem_printf("Envoy left %zu bytes unread for %u s: its stream was ended",
		rpc_queued(x->down), x->full_s);

	x->unread++;
	ads_metrics_count(&x->metrics, x->metrics.unread_ends);
	set_why_not(x, why);
	rpc_abort(&x->down);
	end_stream(x, RPC_UNAVAILABLE, why);
}

static bool is_full(const struct xds_proxy *x)
{
	return (int64_t)rpc_queued(x->down) > limits_value(x->limits, LIMIT_QUEUED);
}

static void on_look(void *ctx)
{
	struct xds_proxy *x = ctx;

	if (!is_full(x)) {
		rpc_pause(x->up, false);
		return;
	}
	if (++x->full_s >= istiod_options(x->istiod)->unread_stream_s)
		end_unread(x);
	else
		loop_timer_in(x->loop, &x->full, LOOK_MS, on_look, x);
}

static void stop_reading_istiod(struct xds_proxy *x)
{
	rpc_pause(x->up, true);
	if (x->full.armed)
		return;
	x->full_s = 0;
	limits_hit(x->limits, LIMIT_QUEUED);
	loop_timer_in(x->loop, &x->full, LOOK_MS, on_look, x);
}

static void look_at_queue(struct xds_proxy *x)
{
	if (is_full(x))
		stop_reading_istiod(x);
}

static void on_pass(void *ctx, const void *bytes, size_t len)
{
	struct xds_proxy *x = ctx;

	rpc_send(x->down, bytes, len);
	look_at_queue(x);
}

static void to_envoy(
    struct xds_proxy *x, const struct discovery_response *r, const struct rpc_msg *m)
{
	ads_account_response(&x->account, r);
	switch (ads_hold_response(x->empty_push, x->flavour, r, m)) {
	case ADS_HOLD_PASS:
		rpc_forward(x->down, m);
		look_at_queue(x);
		break;
	case ADS_HOLD_HELD:
		ads_metrics_count(&x->metrics, x->metrics.held_pushes);
		break;
	case ADS_HOLD_ANEW:
		end_stream(x, RPC_UNAVAILABLE, "istiod knows more now: tell it what is here");
		break;
	}
}

static void carry_down(
    struct xds_proxy *x, const struct discovery_response *r, const struct rpc_msg *m)
{
	const struct local_stream at = {x->flavour, x->up, &x->account};

	if (ads_local_take(&x->locals, &at, r, m))
		return;
	if (is_for_envoy(r->type_url))
		to_envoy(x, r, m);
	else
		log_warn(
		    x->pod->label, "istiod sent %s, which nobody here takes: dropped", r->type_url);
}

static void on_up_message(void *ctx, struct rpc_stream *up, struct rpc_msg *m)
{
	struct xds_proxy *x = ctx;
	struct discovery_response r;
	struct err e;

	(void)up;
	ads_metrics_count(&x->metrics, x->metrics.responses);
	if (discovery_read_response(&r, discovery_reader(m), &e)) {
		err_wrap(&e, "istiod");
		count_end(x, x->metrics.istiod_ends, RPC_INTERNAL, e.msg);
		set_why_not(x, e.msg);
		end_stream(x, RPC_INTERNAL, e.msg);
		return;
	}
	if (!x->answered)
		ads_said_clear(&x->said);
	x->answered = true;
	back_off_succeeded(&x->back_off);
	set_why_not(x, "");
	carry_down(x, &r, m);
}

static void on_down_writable(void *ctx, struct rpc_stream *down)
{
	struct xds_proxy *x = ctx;

	(void)down;
	loop_timer_stop(&x->full);
	if (x->up)
		rpc_pause(x->up, false);
}

/* --- the beginning --- */

static int open_up(struct xds_proxy *x, struct rpc_channel *c, int *status, struct err *e)
{
	static const struct rpc_events events = {
	    .message = on_up_message, .writable = on_up_writable, .closed = on_up_closed};
	const struct token *token = x->token(x->token_ctx, e);

	*status = RPC_UNAUTHENTICATED;
	if (!token)
		return -1;
	*status = RPC_UNAVAILABLE;
	return istiod_open(x->istiod, c, &x->up, methods[x->flavour], token->jwt, 0, &events, x, e);
}

/* What Envoy said while it was held; it may end the stream. */
static void say_all(struct xds_proxy *x)
{
	const struct ads_said_msg *s;

	for (s = x->said.first; s; s = x->up ? s->next : NULL) {
		struct iovec whole;

		take_request(x, ads_said_reader(s, &whole), NULL, s);
	}
}

static void on_turn(void *ctx, struct rpc_channel *c)
{
	struct xds_proxy *x = ctx;
	struct err e;
	int status;

	if (open_up(x, c, &status, &e)) {
		ads_metrics_count(&x->metrics, x->metrics.failures);
		set_why_not(x, e.msg);
		back_off(x);
		end_stream(x, status, e.msg);
		return;
	}
	istiod_lease(x->istiod, &x->lease, c, on_move, x);
	rpc_pause(x->down, false);
	say_all(x);
}

/* Envoy's new connection, or a second client on the pod's socket; two of those fight for ever. */
static void displace(struct xds_proxy *x)
{
	x->displaced++;
	if ((x->displaced & (x->displaced - 1)) == 0)
		log_warn(x->pod->label, "a new ADS stream displaces the old one (%lld times now)",
		    (long long)x->displaced);
	count_end(x, x->metrics.envoy_ends, RPC_OK, "");
	end_stream(x, RPC_OK, "displaced by a new stream of this pod");
}

static void begin(struct xds_proxy *x, struct rpc_stream *st, enum discovery_flavour flavour)
{
	static const struct rpc_events events = {
	    on_down_message, on_down_writable, on_down_half_closed, on_down_closed};

	if (x->down)
		displace(x);
	x->opened++;
	x->flavour = flavour;
	rpc_accept(st, &x->down, &events, x);
	hold(x);
}

bool xds_proxy_incoming(struct xds_proxy *x, struct rpc_stream *st, const char *method)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
		if (strcmp(method, methods[i]) == 0) {
			begin(x, st, (enum discovery_flavour)i);
			return true;
		}
	return false;
}

void xds_proxy_token_changed(struct xds_proxy *x)
{
	if (!back_off_waits(&x->back_off))
		return;
	back_off_stop(&x->back_off);
	on_back_off_over(x);
}

struct xds_proxy *xds_proxy_new(
    const struct pod *p, const struct node *n, struct istiod *i, xds_token token, void *ctx)
{
	struct xds_proxy *x = mem_zalloc(sizeof(*x));
	const struct ads_hold_options hold = {
	    istiod_loop(i), istiod_options(i)->hold_empty_push_s, p->label, &x->log, on_pass, x};

	x->loop = istiod_loop(i);
	x->pod = p;
	x->account.label = p->label;
	x->account.log = &x->log;
	x->empty_push = ads_hold_new(&hold);
	x->node = n;
	x->istiod = i;
	x->token = token;
	x->token_ctx = ctx;
	ads_metrics_init(&x->metrics, p);
	return x;
}

void xds_proxy_limit(struct xds_proxy *x, struct limits *l)
{
	x->limits = l;
}

size_t xds_proxy_queued(const struct xds_proxy *x)
{
	return x->down ? rpc_queued(x->down) : 0;
}

void xds_proxy_free(struct xds_proxy **proxy)
{
	struct xds_proxy *x = take(*proxy);

	if (!x)
		return;
	end_stream(x, RPC_UNAVAILABLE, "the pod is going");
	back_off_stop(&x->back_off);
	ads_local_clear(&x->locals);
	ads_hold_free(&x->empty_push);
	ads_account_clear(&x->account);
	free(x);
}

void xds_proxy_take(struct xds_proxy *x, const char *type_url, local_handler handler, void *ctx)
{
	ads_local_add(&x->locals, type_url, handler, ctx);
}

/* What it waits for now goes before what went wrong last. */
static void tell_why_not(const struct xds_proxy *x, char *out, size_t size)
{
	const char *away = istiod_why_not(x->istiod), *why = x->why_not;

	if (x->up && !x->answered)
		snprintf(out, size, "istiod did not answer yet%s%s", *why ? "; before: " : "", why);
	else if (*why || !x->down)
		snprintf(out, size, "%s", why);
	else if (x->answered)
		snprintf(out, size, "%s", ads_hold_why(x->empty_push));
	else
		snprintf(out, size, "%s", *away ? away : "waiting for a turn at istiod");
}

bool xds_proxy_connected(const struct xds_proxy *x)
{
	return x->answered;
}

json_t *xds_proxy_dump(const struct xds_proxy *x)
{
	char why[ERR_MSG_SIZE + 40];
	json_int_t retry_at = back_off_waits(&x->back_off) ? x->back_off.until_ms / 1000 : 0;

	tell_why_not(x, why, sizeof(why));
	return json_pack("{s:b, s:b, s:s, s:s, s:I, s:I, s:I, s:o, s:s, s:I}", "connected",
	    x->answered, "held", x->down && !x->up, "flavour", flavours[x->flavour], "node_id",
	    node_id(x->node), "opened", x->opened, "displaced", x->displaced, "unread", x->unread,
	    "types", ads_account_dump(&x->account), "why_not", why, "retry_at", retry_at);
}
