/* xds_proxy.c - see xds_proxy.h.
 *
 * incoming -> an older stream is ended -> accepted and held (not read) -> back-off, if the last
 * stream failed -> a turn at istiod -> the token -> the same method opened there -> Envoy is read.
 * The end of either side -> the end of the other, with the same status; but istiod's refusal for
 *   want of capacity, before it answered anything -> Envoy is held, back-off, a turn, and all that
 *   Envoy said so far once more.
 *
 * relay.h decides about each message in between.
 *
 * Nothing is cached: after every end Envoy starts again and tells all it has (istio-agent.md 0.1).
 * What Envoy said is kept only until istiod's first answer (up to that it holds no nonce of
 * istiod's, so it can be said again as it was), and only up to a limit: an Envoy that said more
 * loses its stream.  Only counters and the last NACKs outlive a stream, for agentctl.
 *
 * A message that was asked for already comes even after rpc_pause(): it waits here for istiod.
 */
#include "xds_proxy.h"
#include "base/back_off.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "mesh/node.h"
#include "metrics.h"
#include "relay.h"
#include "rpc/server.h"
#include "said.h"
#include "wasm.h"
#include "worker/crypto/token.h"
#include "worker/istiod/istiod.h"
#include "worker/istiod/stream_end.h"
#include "worker/pods/pod.h"

#include <stdio.h>
#include <string.h>

LOG_SCOPE("xds");

enum {
	KEPT_MAX = 1 << 20,     /* of Envoy's messages before the first answer */
	RETURNS_MS = 60 * 1000, /* an older bootstrap lets Envoy wait for 30 s */
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
	struct xds_owner owner;
	struct xds_listener listener;
	struct ads_relay *relay;

	struct ads_pair pair; /* the present streams */
	struct istiod_turn *turn;
	struct istiod_lease *lease;
	struct ads_said said; /* by Envoy, until istiod answers */
	bool said_more;       /* than is kept */
	bool answered;        /* a response came */
	bool refused;         /* the last end was: Envoy cannot be held until it is over */
	bool denied;        /* the last stream, for no want of room, and none was answered since */
	int64_t changed_ms; /* uptime: when the streams began or ended last */

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
		log_warn(x->pod->spec.label, "%s", why);
	snprintf(x->why_not, sizeof(x->why_not), "%s", why);
}

/* The half towards istiod; Envoy's stays. */
static void end_up(struct xds_proxy *x)
{
	istiod_turn_cancel(&x->turn);
	istiod_lease_end(&x->lease);
	rpc_close(&x->pair.up, RPC_CANCELLED, "");
	x->answered = false;
	x->changed_ms = loop_uptime_ms(x->loop);
	ads_relay_up_ended(x->relay);
}

/* Nothing of the stream is left afterwards; both slots may be empty already. */
static void end_stream(struct xds_proxy *x, int status, const char *why)
{
	end_up(x);
	rpc_close(&x->pair.down, status, why);
	ads_relay_down_ended(x->relay);
	ads_said_clear(&x->said);
	x->said_more = false;
}

/* --- holding Envoy --- */

static void on_turn(void *ctx, struct rpc_channel *c);

/* Once the back-off of the pod is over; the Envoy that is there then gets the turn. */
static void on_back_off_over(void *ctx)
{
	struct xds_proxy *x = ctx;

	if (x->pair.down && !x->pair.up && !x->turn)
		istiod_turn(x->istiod, &x->turn, &x->pod->spec.uid, on_turn, x);
}

static void back_off(struct xds_proxy *x)
{
	back_off_start(x->loop, &x->back_off, on_back_off_over, x);
}

/* Everything that Envoy said can be said again: it was answered nothing, and all of it is kept. */
static bool may_hold(const struct xds_proxy *x)
{
	return x->pair.down && !x->answered && !x->said_more;
}

static void hold(struct xds_proxy *x)
{
	end_up(x);
	rpc_pause(x->pair.down, true);
	if (!back_off_waits(&x->back_off))
		istiod_turn(x->istiod, &x->turn, &x->pod->spec.uid, on_turn, x);
}

static void on_up_closed(void *ctx, int status, const char *why)
{
	struct xds_proxy *x = ctx;
	const bool refused = !x->answered && status != RPC_OK;
	struct err e = {0};

	if (status == RPC_UNAVAILABLE && !x->answered)
		ads_metrics_count(&x->metrics, x->metrics.failures);
	else
		count_end(x, x->metrics.istiod_ends, status, why);
	if (refused)
		ads_metrics_refused(&x->metrics, status);
	x->refused = !stream_end_is_busy(status) && !stream_end_is_plain_end(status);
	if (status != RPC_OK)
		err_set(&e, ERR_UNAVAILABLE, "istiod: %s: %s", rpc_status_name(status), why);
	set_why_not(x, e.msg);
	x->denied |= refused && !stream_end_is_busy(status);
	if (stream_end_did_harm(why))
		istiod_blame(x->istiod, &x->pod->spec.uid, why);
	if (!x->answered || !stream_end_is_plain_end(status))
		back_off(x);
	if (stream_end_is_busy(status) && may_hold(x))
		hold(x);
	else
		end_stream(x, status, why);
	if (refused && x->listener.refused)
		x->listener.refused(x->listener.ctx, x->why_not);
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

/* A pod can cause this as often as it likes, and so could fill the node's log. */
static void end_malformed(struct xds_proxy *x, const char *why)
{
	log_warn_limited(&x->log, x->pod->spec.label, "%s", why);
	snprintf(x->why_not, sizeof(x->why_not), "%s", why);
	x->refused = true;
	count_end(x, x->metrics.envoy_ends, RPC_INVALID_ARGUMENT, why);
	end_stream(x, RPC_INVALID_ARGUMENT, why);
}

/* Until istiod answers: for the turn, and for the next if istiod has no room. */
static void keep(struct xds_proxy *x, const struct rpc_msg *m)
{
	if (x->said_more)
		return;
	/* The first is kept whatever its size: it waits for its turn. */
	if (x->pair.up && x->said.size + rpc_msg_size(m) > KEPT_MAX) {
		x->said_more = true;
		ads_said_clear(&x->said);
		return;
	}
	ads_said_add(&x->said, m);
}

/* What waits for istiod, and pushes that wait for better ones, are held for this pod
 * (security-rules.md G7). */
static void charge(const struct xds_proxy *x)
{
	if (x->pair.down)
		rpc_keeps(x->pair.down, x->said.size + ads_relay_held(x->relay) +
					    (x->pair.up ? rpc_queued(x->pair.up) : 0));
}

static void on_down_message(void *ctx, struct rpc_stream *down, struct rpc_msg *m)
{
	struct xds_proxy *x = ctx;
	struct err e;

	(void)down;
	if (!x->answered)
		keep(x, m);
	if (x->pair.up && ads_relay_request(x->relay, m, &e))
		end_malformed(x, e.msg);
	charge(x);
}

static void on_up_writable(void *ctx, struct rpc_stream *up)
{
	struct xds_proxy *x = ctx;

	(void)up;
	ads_relay_up_writable(x->relay);
	charge(x);
}

/* --- istiod to Envoy --- */

static void on_unread(void *ctx, const char *why)
{
	struct xds_proxy *x = ctx;

	x->unread++;
	ads_metrics_count(&x->metrics, x->metrics.unread_ends);
	set_why_not(x, why);
	x->refused = true;
	rpc_abort(&x->pair.down);
	end_stream(x, RPC_UNAVAILABLE, why);
}

static void on_plugins(void *ctx)
{
	const struct xds_proxy *x = ctx;

	x->owner.plugins(x->owner.ctx);
}

static void begin_answers(struct xds_proxy *x)
{
	ads_said_clear(&x->said);
	x->answered = true;
	x->denied = false;
	if (x->listener.answered)
		x->listener.answered(x->listener.ctx);
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
		begin_answers(x);
	back_off_succeeded(&x->back_off);
	set_why_not(x, "");
	if (!ads_relay_response(x->relay, &r, m))
		end_stream(x, RPC_UNAVAILABLE,
		    "istiod has resources again: reconnect and tell it what Envoy has");
	charge(x);
}

static void on_down_writable(void *ctx, struct rpc_stream *down)
{
	struct xds_proxy *x = ctx;

	(void)down;
	ads_relay_down_writable(x->relay);
	charge(x);
}

/* Other pods' pushes wait for memory that this Envoy does not give back. */
static void on_down_crowded(void *ctx, struct rpc_stream *down, int64_t unread_ms)
{
	struct xds_proxy *x = ctx;

	(void)down;
	ads_relay_crowded(x->relay, unread_ms);
}

/* --- the beginning --- */

static int open_up(struct xds_proxy *x, struct rpc_channel *c, int *status, struct err *e)
{
	static const struct rpc_events events = {
	    .message = on_up_message, .writable = on_up_writable, .closed = on_up_closed};
	const struct token *token = x->owner.token(x->owner.ctx, e);

	*status = RPC_UNAUTHENTICATED;
	if (!token)
		return -1;
	*status = RPC_UNAVAILABLE;
	return istiod_open(x->istiod, c, &x->pair.up,
	    &(struct istiod_stream){methods[x->pair.flavour], token->jwt, 0, &events, x, true}, e);
}

/* Forwards Envoy's messages from the time it was held; it may end the stream. */
static void say_all(struct xds_proxy *x)
{
	const struct ads_said_msg *s;
	struct err e;

	for (s = x->said.first; s; s = x->pair.up ? s->next : NULL)
		if (ads_relay_repeat(x->relay, s, &e))
			end_malformed(x, e.msg);
}

static void on_turn(void *ctx, struct rpc_channel *c)
{
	struct xds_proxy *x = ctx;
	struct err e;
	int status;

	if (open_up(x, c, &status, &e)) {
		ads_metrics_count(&x->metrics, x->metrics.failures);
		ads_metrics_refused(&x->metrics, RPC_OK);
		set_why_not(x, e.msg);
		x->refused = true;
		back_off(x);
		end_stream(x, status, e.msg);
		return;
	}
	x->changed_ms = loop_uptime_ms(x->loop);
	istiod_lease(x->istiod, &x->lease, c, on_move, x);
	rpc_pause(x->pair.down, false);
	say_all(x);
}

/* Envoy's new connection, or a second client on the pod's socket; two of those fight for ever. */
static void displace(struct xds_proxy *x)
{
	x->displaced++;
	if ((x->displaced & (x->displaced - 1)) == 0)
		log_warn(x->pod->spec.label,
		    "a new ADS stream displaces the old one (%lld times now)",
		    (long long)x->displaced);
	count_end(x, x->metrics.envoy_ends, RPC_OK, "");
	end_stream(x, RPC_OK, "displaced by a new stream of this pod");
}

static void begin(struct xds_proxy *x, struct rpc_stream *st, enum discovery_flavour flavour)
{
	static const struct rpc_events events = {on_down_message, on_down_writable,
	    on_down_half_closed, on_down_closed, on_down_crowded};

	if (x->pair.down)
		displace(x);
	x->opened++;
	x->pair.flavour = flavour;
	rpc_accept(st, &x->pair.down, &events, x);
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
    const struct pod *p, const struct node *n, struct istiod *i, const struct xds_owner *owner)
{
	struct xds_proxy *x = mem_zalloc(sizeof(*x));
	const struct ads_relay_options relay = {.loop = istiod_loop(i),
	    .pair = &x->pair,
	    .plane = istiod_options(i),
	    .node = n,
	    .label = p->spec.label,
	    .log = &x->log,
	    .metrics = &x->metrics,
	    .unread = on_unread,
	    .plugins = on_plugins,
	    .ctx = x};

	x->loop = istiod_loop(i);
	x->pod = p;
	x->node = n;
	x->istiod = i;
	x->owner = *owner;
	ads_metrics_init(&x->metrics, p);
	x->relay = ads_relay_new(&relay);
	return x;
}

void xds_proxy_limit(struct xds_proxy *x, struct limits *l)
{
	ads_relay_limit(x->relay, l);
}

size_t xds_proxy_queued(const struct xds_proxy *x)
{
	return x->pair.down ? rpc_queued(x->pair.down) : 0;
}

void xds_proxy_free(struct xds_proxy **proxy)
{
	struct xds_proxy *x = take(*proxy);

	if (!x)
		return;
	end_stream(x, RPC_UNAVAILABLE, "the pod is being removed");
	back_off_stop(&x->back_off);
	ads_relay_free(&x->relay);
	free(x);
}

void xds_proxy_take(struct xds_proxy *x, const char *type_url, local_handler handler, void *ctx)
{
	ads_relay_take(x->relay, type_url, handler, ctx);
}

void xds_proxy_listen(struct xds_proxy *x, const struct xds_listener *l)
{
	x->listener = *l;
}

void xds_proxy_health(struct xds_proxy *x, const char *why)
{
	ads_relay_health(x->relay, why);
}

/* What it waits for now goes before what went wrong last. */
static void tell_why_not(const struct xds_proxy *x, char *out, size_t size)
{
	const char *away = istiod_why_not(x->istiod), *why = x->why_not;

	if (x->pair.up && !x->answered)
		snprintf(
		    out, size, "istiod has not answered yet%s%s", *why ? "; before: " : "", why);
	else if (*why || !x->pair.down)
		snprintf(out, size, "%s", why);
	else if (x->answered)
		snprintf(out, size, "%s", ads_relay_why_held(x->relay));
	else
		snprintf(out, size, "%s", *away ? away : "waiting for its turn at istiod");
}

static bool is_unasked(const struct xds_proxy *x)
{
	const int64_t ms = loop_uptime_ms(x->loop) - x->changed_ms;

	if (!x->pair.down)
		return !*x->why_not || ms >= RETURNS_MS;
	return !*x->why_not && !*istiod_why_not(x->istiod) && ms < SERVED_BEGINS_MS;
}

enum served xds_proxy_served(const struct xds_proxy *x, struct err *why)
{
	char text[ERR_MSG_SIZE + 40];

	if (x->answered)
		return ads_relay_served(x->relay, why);
	if (is_unasked(x))
		return SERVED_UNASKED;
	tell_why_not(x, text, sizeof(text));
	err_set(why, ERR_UNAVAILABLE, "%s", text);
	return x->refused ? SERVED_NO : SERVED_HELD;
}

enum xds_stream xds_proxy_stream(const struct xds_proxy *x, const char **why)
{
	const char *away = istiod_why_not(x->istiod);

	*why = x->why_not;
	if (x->answered)
		return XDS_SERVED;
	if (x->denied)
		return XDS_REFUSED;
	if (!x->pair.down)
		return XDS_NONE;
	*why = *away ? away : x->why_not;
	return !x->pair.up && **why ? XDS_HELD : XDS_OPENS;
}

bool xds_proxy_connected(const struct xds_proxy *x)
{
	return x->answered;
}

unsigned xds_proxy_refused(const struct xds_proxy *x)
{
	return ads_relay_refused(x->relay);
}

const struct ads_wasm *xds_proxy_wasm(const struct xds_proxy *x)
{
	return ads_relay_wasm(x->relay);
}

json_t *xds_proxy_dump(const struct xds_proxy *x)
{
	char why[ERR_MSG_SIZE + 40];
	json_int_t retry_at = back_off_waits(&x->back_off) ? x->back_off.until_ms / 1000 : 0;

	tell_why_not(x, why, sizeof(why));
	return json_pack("{s:b, s:b, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:s, s:I}", "connected",
	    x->answered, "held", x->pair.down && !x->pair.up, "flavour", flavours[x->pair.flavour],
	    "node_id", node_id(x->node), "opened", x->opened, "displaced", x->displaced, "unread",
	    x->unread, "types", ads_relay_dump(x->relay), "remote_wasm",
	    ads_wasm_dump(ads_relay_wasm(x->relay)), "why_not", why, "retry_at", retry_at);
}
