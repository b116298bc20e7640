/* xds_proxy_test.c - a pod's ADS stream between a scripted Envoy and a scripted istiod.
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/istiod.c tests/unit/worker/ads/carried.c tests/unit/worker/ads/envoy.c
 * LINK: tests/unit/worker/metrics_rig.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/metrics.h"
#include "carried.h"
#include "common/err.h"
#include "common/mem.h"
#include "mesh/node.h"
#include "tests/fake/istiod.h"
#include "tests/fake/loop.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/ads/xds_proxy.h"
#include "worker/crypto/token.h"
#include "worker/pods/limits.h"
#include "worker/pods/pod.h"

#define SERVICE "/envoy.service.discovery.v3.AggregatedDiscoveryService/"
#define SOTW_METHOD SERVICE "StreamAggregatedResources"
#define DELTA_METHOD SERVICE "DeltaAggregatedResources"
#define ENVOYS_NODE "sidecar~6.6.6.6~evil.prod~prod"
struct world {
	struct limits *limits;
	struct loop *loop;
	struct rpc *rpc;
	struct rpc_server *server;
	struct istiod *istiod;
	struct pod pod;
	struct token token;
	const char *token_why; /* NULL: there is one */
	struct xds_proxy *xds;
};

static void on_incoming(void *ctx, struct rpc_stream *s, const char *method)
{
	struct world *w = ctx;

	xds_proxy_incoming(w->xds, s, method);
}

static const struct token *token_of(void *ctx, struct err *e)
{
	struct world *w = ctx;

	if (!w->token_why)
		return &w->token;
	err_set(e, ERR_DENIED, "%s", w->token_why);
	return NULL;
}

static int on_local(void *ctx, const struct rpc_msg *m, struct err *e)
{
	(void)ctx;
	(void)e;
	assert_true(rpc_msg_size(m) > 0);
	return 0;
}

static void on_plugins(void *ctx)
{
	(void)ctx;
}

static int setup(void **state)
{
	static const struct rpc_server_options options = {.max_message = 4 << 20, .max_streams = 9};
	struct world *w = mem_zalloc(sizeof(*w));
	const struct xds_owner owner = {token_of, on_plugins, w};

	w->loop = fake_loop();
	w->rpc = rpc_new(w->loop);
	w->istiod = istiod_new(w->loop, w->rpc, NULL, &carried_plane, 0);
	strcpy(w->pod.spec.ns, "demo");
	strcpy(w->pod.spec.name, "web-0");
	strcpy(w->pod.spec.label, "demo/web-0");
	uuid_parse(&w->pod.spec.uid, "11111111-1111-1111-1111-111111111111");
	w->token.jwt = "the-token";
	w->server = rpc_server_new(w->rpc, &options, on_incoming, w);
	w->xds = xds_proxy_new(&w->pod, NULL, w->istiod, &owner);
	w->limits = carried_limits(w->loop);
	xds_proxy_limit(w->xds, w->limits);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	xds_proxy_free(&w->xds);
	limits_free(&w->limits);
	rpc_server_free(&w->server);
	assert_int_equal(fake_istiod_waiting(w->istiod), 0);
	assert_int_equal(fake_rpc_live(w->rpc), 0);
	istiod_free(&w->istiod);
	rpc_free(&w->rpc);
	fake_loop_end(&w->loop);
	metrics_clear();
	free(w);
	return 0;
}

static void settle(struct world *w)
{
	fake_loop_advance(w->loop, 0);
}

static struct rpc_stream *call(struct world *w, const char *method)
{
	struct rpc_stream *s = fake_rpc_call(w->server, method);

	settle(w);
	return s;
}

/* A stream on both sides; returns Envoy's. */
static struct rpc_stream *connect_envoy(struct world *w, const char *method, struct rpc_stream **up)
{
	unsigned before = fake_rpc_opened(w->rpc);
	struct rpc_stream *down = call(w, method);

	assert_int_equal(fake_rpc_opened(w->rpc), before + 1);
	*up = fake_rpc_stream(w->rpc, before);
	return down;
}

static void answer(struct world *w, struct rpc_stream *up, const char *type, const char *nonce,
    const char *resource)
{
	carried_answer(up, type, nonce, resource);
	settle(w);
}

static void push_mib(struct world *w, struct rpc_stream *up, size_t mib)
{
	carried_answer_mib(up, mib);
	settle(w);
}

static json_t *dump_at(const struct world *w, const char *key)
{
	json_t *dump = xds_proxy_dump(w->xds), *value = json_object_get(dump, key);

	assert_non_null(value);
	json_incref(value);
	json_decref(dump);
	return value;
}

static void assert_dump(const struct world *w, const char *key, const char *json)
{
	json_t *value = dump_at(w, key);
	auto_free char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_SORT_KEYS);

	json_decref(value);
	assert_string_equal(text, json);
}

/* ---- the beginning ---- */

static void the_upstream_mirrors_the_method_and_carries_the_token(void **state)
{
	struct world *w = *state;
	static const char *const methods[] = {SOTW_METHOD, DELTA_METHOD};

	for (unsigned i = 0; i < 2; i++) {
		struct rpc_stream *up;

		connect_envoy(w, methods[i], &up);
		assert_string_equal(fake_rpc_how(up)->method, methods[i]);
		assert_int_equal(fake_rpc_how(up)->deadline_ms, 0);
		assert_string_equal(fake_rpc_header(up, "authorization"), "Bearer the-token");
		assert_string_equal(fake_rpc_header(up, "clusterid"), "c1");
		assert_dump(w, "flavour", i ? "\"delta\"" : "\"sotw\"");
	}
	assert_dump(w, "node_id", "\"" OUR_NODE "\"");
	assert_int_equal(fake_rpc_status(call(w, SERVICE "Other")), RPC_UNIMPLEMENTED);
}

/* istiod-live.md 1.3: Envoy's stream is held while istiod is away, and its requests with it. */
static void envoy_is_held_until_its_turn_comes(void **state)
{
	struct world *w = *state;
	struct rpc_stream *down, *up;

	fake_istiod_hold(w->istiod, true);
	down = call(w, SOTW_METHOD);
	assert_true(fake_rpc_paused(down));
	assert_memory_equal(
	    fake_istiod_first_pod(w->istiod), &w->pod.spec.uid, sizeof(w->pod.spec.uid));
	assert_dump(w, "why_not", "\"waiting for its turn at istiod\"");
	/* The first arrives in spite of the pause, the second stays with rpc. */
	SOTW(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	SOTW(w, down, .type = TYPE_LISTENER);
	assert_int_equal(fake_rpc_opened(w->rpc), 0);
	fake_istiod_hold(w->istiod, false);
	settle(w);
	up = fake_rpc_stream(w->rpc, 0);
	assert_false(fake_rpc_paused(down));
	assert_int_equal(fake_rpc_sent(up), 2);
	ASSERT_SAID_AS_US(up, 0, DISCOVERY_SOTW, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	ASSERT_SAID(up, 1, DISCOVERY_SOTW, .type = TYPE_LISTENER);
	assert_dump(w, "connected", "false");
	assert_dump(w, "why_not", "\"istiod has not answered yet\"");
	answer(w, up, TYPE_CLUSTER, "n", "r");
	assert_dump(w, "connected", "true");
	assert_dump(w, "why_not", "\"\"");
}

static void envoy_may_leave_before_its_turn(void **state)
{
	struct world *w = *state;
	struct rpc_stream *down;

	fake_istiod_hold(w->istiod, true);
	down = call(w, DELTA_METHOD);
	DELTA(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	fake_rpc_end(down, RPC_CANCELLED, "gone");
	settle(w);
	assert_int_equal(fake_istiod_waiting(w->istiod), 0);
}

static void without_a_valid_token_istiod_is_not_asked(void **state)
{
	struct world *w = *state;
	struct rpc_stream *down;

	w->token_why = "token: expired 3 minutes ago";
	down = call(w, DELTA_METHOD);
	assert_int_equal(fake_rpc_status(down), RPC_UNAUTHENTICATED);
	assert_string_equal(fake_rpc_why(down), "token: expired 3 minutes ago");
	assert_int_equal(fake_istiod_opened(w->istiod), 0);
	assert_dump(w, "why_not", "\"token: expired 3 minutes ago\"");
	w->token_why = NULL; /* read anew for the next one */
	xds_proxy_token_changed(w->xds);
	connect_envoy(w, DELTA_METHOD, &down);
}

static void an_open_that_fails_ends_envoys_stream(void **state)
{
	struct world *w = *state;
	struct rpc_stream *down;

	fake_istiod_refuse(w->istiod, "header cannot be sent");
	down = call(w, DELTA_METHOD);
	assert_int_equal(fake_rpc_status(down), RPC_UNAVAILABLE);
	assert_string_equal(fake_rpc_why(down), "header cannot be sent");
	assert_metric("istio_agent_istiod_connection_failures{pod=\"web-0\","
		      "namespace=\"demo\"} 1\n");
}

/* ---- what is malformed (the rest: relay_test.c) ---- */

static void a_malformed_request_ends_both_sides(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);

	fake_rpc_push(down, "\x22\xff", 2);
	settle(w);
	assert_int_equal(fake_rpc_status(down), RPC_INVALID_ARGUMENT);
	assert_int_equal(fake_rpc_status(up), RPC_CANCELLED);
	assert_int_equal(fake_rpc_sent(up), 0);
}

static void a_malformed_response_ends_both_sides(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);

	fake_rpc_push(up, "\x22\xff", 2);
	settle(w);
	assert_int_equal(fake_rpc_status(down), RPC_INTERNAL);
	assert_int_equal(fake_rpc_status(up), RPC_CANCELLED);
}

/* ---- a slow side ---- */

/* istiod-live.md 1.1: an unread stream holds one of istiod's push slots. */
static void an_envoy_that_does_not_read_is_ended(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	fake_rpc_stall(down, true);
	push_mib(w, up, 5);
	fake_loop_advance(w->loop, 60 * 1000); /* there is room: nothing wrong */
	assert_false(fake_rpc_ended(down));
	push_mib(w, up, 5);
	fake_loop_advance(w->loop, 14999);
	assert_false(fake_rpc_ended(down));
	fake_loop_advance(w->loop, 1);
	assert_true(fake_rpc_aborted(down));
	assert_int_equal(fake_rpc_status(up), RPC_CANCELLED);
	assert_dump(w, "unread", "1");
	json_t *why = dump_at(w, "why_not");
	assert_non_null(strstr(json_string_value(why), "unread for 15 s"));
	json_decref(why);
	assert_metric("agentd_xds_unread_streams_total{pod=\"web-0\",namespace=\"demo\"} 1\n");
	assert_int_equal(fake_istiod_leases(w->istiod), 0);
	down = connect_envoy(w, DELTA_METHOD, &up); /* it may come back */
	answer(w, up, TYPE_CLUSTER, "n", "r");
	assert_dump(w, "why_not", "\"\"");
}

/* What it leaves unread is memory that other pods' pushes wait for: the queue need not be full. */
static void an_envoy_that_others_wait_for_is_ended(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	assert_true(fake_rpc_how(up)->in_turn);
	fake_rpc_stall(down, true);
	push_mib(w, up, 2);
	fake_loop_advance(w->loop, 0);
	fake_rpc_crowd(down, 14999);
	assert_false(fake_rpc_ended(down));
	fake_rpc_crowd(down, 15000);
	assert_true(fake_rpc_aborted(down));
	assert_int_equal(fake_rpc_status(up), RPC_CANCELLED);
	json_t *why = dump_at(w, "why_not");
	assert_non_null(strstr(json_string_value(why), "unread for 15 s, and other pods' pushes"));
	json_decref(why);
	assert_metric("agentd_xds_unread_streams_total{pod=\"web-0\",namespace=\"demo\"} 1\n");
}

/* ---- refusals ---- */

static void assert_waits(struct world *w, int64_t about_ms)
{
	unsigned before = fake_rpc_opened(w->rpc);

	fake_loop_advance(w->loop, about_ms * 8 / 10 - 1);
	assert_int_equal(fake_rpc_opened(w->rpc), before);
	fake_loop_advance(w->loop, about_ms * 4 / 10 + 1);
	assert_int_equal(fake_rpc_opened(w->rpc), before + 1);
}

static struct rpc_stream *last_up(const struct world *w)
{
	return fake_rpc_stream(w->rpc, fake_rpc_opened(w->rpc) - 1);
}

/* istiod-live.md 1.3: Envoy hears nothing of it, and what it said is said again as it was. */
static void without_room_at_istiod_envoy_is_held(void **state)
{
	static const int refusals[] = {RPC_RESOURCE_EXHAUSTED, RPC_UNAVAILABLE};
	static const int64_t waits[] = {500, 1000, 2000, 4000, 8000, 8000, 8000, 8000};
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);

	xds_proxy_take(w->xds, TYPE_NAME_TABLE, on_local, w);
	SOTW(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	SOTW(w, down, .type = TYPE_LISTENER);
	for (unsigned i = 0; i < 8; i++) {
		fake_rpc_end(last_up(w), refusals[i % 2], "no room");
		settle(w);
		assert_false(fake_rpc_ended(down));
		assert_true(fake_rpc_paused(down));
		assert_dump(w, "connected", "false");
		assert_dump(w, "held", "true");
		assert_dump(w, "why_not",
		    i % 2 ? "\"istiod: UNAVAILABLE: no room\""
			  : "\"istiod: RESOURCE_EXHAUSTED: no room\"");
		assert_int_equal(fake_istiod_leases(w->istiod), 0);
		json_t *at = dump_at(w, "retry_at");
		assert_in_range(json_integer_value(at) * 1000 + 1000 - loop_now_ms(w->loop),
		    waits[i] * 8 / 10, waits[i] * 12 / 10 + 1000);
		json_decref(at);
		assert_waits(w, waits[i]);
		up = last_up(w);
		assert_int_equal(fake_rpc_sent(up), 3);
		ASSERT_SAID_AS_US(
		    up, 0, DISCOVERY_SOTW, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
		ASSERT_SAID(up, 1, DISCOVERY_SOTW, .type = TYPE_LISTENER);
		ASSERT_SAID(up, 2, DISCOVERY_SOTW, .type = TYPE_NAME_TABLE);
		assert_false(fake_rpc_paused(down));
	}
	answer(w, up, TYPE_CLUSTER, "n", "r");
	assert_int_equal(fake_rpc_sent(down), 1);
	assert_dump(w, "held", "false");
	assert_dump(w, "retry_at", "0");
	/* An answer ends the row of failures, and Envoy has to hear of an end after it. */
	fake_rpc_end(up, RPC_UNAVAILABLE, "Socket closed");
	settle(w);
	assert_int_equal(fake_rpc_status(down), RPC_UNAVAILABLE);
	connect_envoy(w, SOTW_METHOD, &up);
	fake_rpc_end(up, RPC_UNAVAILABLE, "no room");
	settle(w);
	assert_waits(w, 500);
}

/* security-rules.md G7: until istiod answers, and while it does not read. */
static void what_waits_for_istiod_is_held_for_the_pod(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);

	SOTW(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	assert_in_range(fake_rpc_kept(down), strlen(ENVOYS_NODE), 1000);
	answer(w, up, TYPE_CLUSTER, "n", "r");
	assert_int_equal(fake_rpc_kept(down), 0);
	fake_rpc_stall(up, true);
	SOTW(w, down, .type = TYPE_LISTENER);
	assert_int_equal(fake_rpc_kept(down), rpc_queued(up));
	assert_true(fake_rpc_kept(down) > 0);
	fake_rpc_stall(up, false);
	settle(w);
	assert_int_equal(fake_rpc_kept(down), 0);
}

static void who_said_too_much_is_ended_not_held(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);
	auto_free char *name = mem_zalloc((1 << 20) + 1);

	memset(name, 'x', 1 << 20);
	DELTA(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	DELTA(w, down, .type = TYPE_CLUSTER, .names = {name});
	fake_rpc_end(up, RPC_RESOURCE_EXHAUSTED, "no room");
	settle(w);
	assert_int_equal(fake_rpc_status(down), RPC_RESOURCE_EXHAUSTED);
	/* Its next stream is held; one that waits may be as large as a message may be. */
	down = call(w, DELTA_METHOD);
	DELTA(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER, .names = {name});
	assert_waits(w, 500);
	ASSERT_SAID_AS_US(last_up(w), 0, DISCOVERY_DELTA, .node_id = ENVOYS_NODE,
	    .type = TYPE_CLUSTER, .names = {name});
	fake_rpc_end(last_up(w), RPC_RESOURCE_EXHAUSTED, "no room");
	settle(w);
	assert_false(fake_rpc_ended(down));
}

/* Envoy alone tries again after 0-500 ms, and each try costs istiod a TokenReview. */
static void a_refusal_is_envoys_to_know_and_agentd_to_pace(void **state)
{
	static const int refusals[] = {
	    RPC_PERMISSION_DENIED, RPC_UNAUTHENTICATED, RPC_INVALID_ARGUMENT, RPC_UNKNOWN};
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	for (unsigned i = 0; i < 4; i++) {
		fake_rpc_end(last_up(w), refusals[i], "no");
		settle(w);
		assert_int_equal(fake_rpc_status(down), refusals[i]);
		down = call(w, DELTA_METHOD);
		assert_false(fake_rpc_ended(down));
		assert_dump(w, "held", "true");
		down = call(w, DELTA_METHOD); /* however often it comes */
		assert_waits(w, 500 << i);
	}
}

static void assert_stream(struct world *w, enum xds_stream is, const char *says)
{
	const char *why;

	assert_int_equal(xds_proxy_stream(w->xds, &why), is);
	assert_string_equal(why, says);
}

/* A refusal stands until istiod answers, also while Envoy is away or tries again; want of room is
 * none. */
static void how_the_stream_is(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up;

	assert_stream(w, XDS_NONE, "");
	connect_envoy(w, SOTW_METHOD, &up);
	assert_stream(w, XDS_OPENS, "");
	fake_rpc_end(up, RPC_UNAVAILABLE, "no room");
	settle(w);
	assert_stream(w, XDS_HELD, "istiod: UNAVAILABLE: no room");
	assert_waits(w, 500);
	fake_rpc_end(last_up(w), RPC_PERMISSION_DENIED, "no");
	settle(w);
	assert_stream(w, XDS_REFUSED, "istiod: PERMISSION_DENIED: no");
	call(w, SOTW_METHOD);
	assert_stream(w, XDS_REFUSED, "istiod: PERMISSION_DENIED: no");
	assert_waits(w, 1000);
	answer(w, last_up(w), TYPE_CLUSTER, "n1", "v1");
	assert_stream(w, XDS_SERVED, "");
	fake_rpc_end(last_up(w), RPC_UNAVAILABLE, "going away");
	settle(w);
	assert_int_equal(xds_proxy_stream(w->xds, &(const char *){NULL}), XDS_NONE);
}

static void after_a_refusal_nobody_asks_for_nobody(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up;

	connect_envoy(w, DELTA_METHOD, &up);
	fake_rpc_end(up, RPC_PERMISSION_DENIED, "no");
	fake_loop_advance(w->loop, 3600 * 1000);
	assert_int_equal(fake_rpc_opened(w->rpc), 1);
	connect_envoy(w, DELTA_METHOD, &up); /* the time is over long ago */
	fake_rpc_end(up, RPC_PERMISSION_DENIED, "no");
	settle(w);
	call(w, DELTA_METHOD);
	xds_proxy_token_changed(w->xds); /* a new token is a new chance */
	settle(w);
	assert_int_equal(fake_rpc_opened(w->rpc), 3);
}

static void while_istiod_is_away_the_reason_is_shown(void **state)
{
	struct world *w = *state;

	fake_istiod_hold(w->istiod, true);
	fake_istiod_why_not(w->istiod, "cannot connect");
	call(w, DELTA_METHOD);
	assert_dump(w, "why_not", "\"cannot connect\"");
	assert_dump(w, "held", "true");
}

/* ---- GOAWAY ---- */

static void a_stream_that_has_to_move_ends_with_ok(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	DELTA(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	answer(w, up, TYPE_CLUSTER, "n", "r");
	fake_istiod_move(w->istiod);
	assert_int_equal(fake_rpc_status(down), RPC_OK);
	assert_int_equal(fake_rpc_status(up), RPC_CANCELLED);
	connect_envoy(w, DELTA_METHOD, &up); /* at once */
	assert_int_equal(fake_istiod_leases(w->istiod), 1);
}

static void an_unanswered_stream_moves_unseen(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	DELTA(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	fake_istiod_move(w->istiod);
	settle(w);
	assert_false(fake_rpc_ended(down));
	assert_true(fake_rpc_ended(up));
	ASSERT_SAID_AS_US(
	    last_up(w), 0, DISCOVERY_DELTA, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	assert_int_equal(fake_rpc_opened(w->rpc), 2);
}

static void harm_to_the_connection_is_reported(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up;

	connect_envoy(w, DELTA_METHOD, &up);
	fake_rpc_end(up, RPC_RESOURCE_EXHAUSTED, "Received RST_STREAM with error code 11");
	settle(w);
	assert_int_equal(fake_istiod_blamed(w->istiod), 1);
	assert_waits(w, 500);
	fake_rpc_end(last_up(w), RPC_RESOURCE_EXHAUSTED, "request rate limit");
	settle(w);
	assert_int_equal(fake_istiod_blamed(w->istiod), 1);
}

/* ---- the end ---- */

static void a_second_stream_displaces_the_first(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up1, *up2, *down1, *down2;

	down1 = connect_envoy(w, SOTW_METHOD, &up1);
	down2 = connect_envoy(w, DELTA_METHOD, &up2);
	assert_int_equal(fake_rpc_status(down1), RPC_OK);
	assert_int_equal(fake_rpc_status(up1), RPC_CANCELLED);
	assert_false(fake_rpc_ended(down2));
	assert_dump(w, "opened", "2");
	assert_dump(w, "displaced", "1");
	DELTA(w, down2, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	answer(w, up2, TYPE_CLUSTER, "n", "r");
	assert_int_equal(fake_rpc_sent(up2), 1);
	assert_int_equal(fake_rpc_sent(down2), 1);
}

static void a_stream_that_waits_can_be_displaced_too(void **state)
{
	struct world *w = *state;
	struct rpc_stream *first;

	fake_istiod_hold(w->istiod, true);
	first = call(w, SOTW_METHOD);
	SOTW(w, first, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	call(w, SOTW_METHOD);
	assert_int_equal(fake_rpc_status(first), RPC_OK);
	assert_int_equal(fake_istiod_waiting(w->istiod), 1);
	fake_istiod_hold(w->istiod, false);
	settle(w);
	assert_int_equal(fake_rpc_opened(w->rpc), 1);
	/* What the first one said is forgotten. */
	assert_int_equal(fake_rpc_sent(fake_rpc_stream(w->rpc, 0)), 0);
}

static void istiods_status_reaches_envoy(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	answer(w, up, TYPE_CLUSTER, "n", "r");
	fake_rpc_end(up, RPC_PERMISSION_DENIED, "authorization failed");
	settle(w);
	assert_int_equal(fake_rpc_status(down), RPC_PERMISSION_DENIED);
	assert_string_equal(fake_rpc_why(down), "authorization failed");
	assert_dump(w, "connected", "false");
	assert_dump(w, "why_not", "\"istiod: PERMISSION_DENIED: authorization failed\"");
	assert_metric("istio_agent_istiod_connection_terminations{pod=\"web-0\","
		      "namespace=\"demo\",type=\"error\"} 1\n");
	call(w, DELTA_METHOD); /* who was answered before is refused all the same */
	assert_dump(w, "held", "true");
}

static void on_refused(void *ctx, const char *why)
{
	snprintf(ctx, 200, "%s", why);
}

static void on_answered(void *ctx)
{
	snprintf(ctx, 200, "answered");
}

/* What a registration needs to know. */
static void refusals_and_answers_are_told(void **state)
{
	struct world *w = *state;
	char heard[200] = "";
	struct rpc_stream *up, *down;

	xds_proxy_listen(w->xds, &(struct xds_listener){on_answered, on_refused, heard});
	down = connect_envoy(w, SOTW_METHOD, &up);
	fake_rpc_end(up, RPC_FAILED_PRECONDITION, "no group");
	fake_loop_advance(w->loop, 0);
	assert_string_equal(heard, "istiod: FAILED_PRECONDITION: no group");
	fake_loop_advance(w->loop, 60000);
	down = connect_envoy(w, SOTW_METHOD, &up);
	SOTW(w, down, .node_id = "n", .type = TYPE_CLUSTER);
	answer(w, up, TYPE_CLUSTER, "n1", "r");
	assert_string_equal(heard, "answered");
	fake_rpc_end(up, RPC_UNAVAILABLE, "later"); /* it was served */
	fake_loop_advance(w->loop, 0);
	assert_string_equal(heard, "answered");
}

static void istiods_ok_is_ok_for_envoy(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	fake_rpc_end(up, RPC_OK, "");
	settle(w);
	assert_int_equal(fake_rpc_status(down), RPC_OK);
	assert_dump(w, "why_not", "\"\"");
}

static void envoys_end_cancels_the_upstream(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	fake_rpc_end(down, RPC_CANCELLED, "gone");
	settle(w);
	assert_int_equal(fake_rpc_status(up), RPC_CANCELLED);
	down = connect_envoy(w, DELTA_METHOD, &up);
	fake_rpc_half_close(down);
	settle(w);
	assert_int_equal(fake_rpc_status(up), RPC_CANCELLED);
	assert_int_equal(fake_rpc_status(down), RPC_OK);
	assert_metric("istio_agent_envoy_connection_terminations{pod=\"web-0\","
		      "namespace=\"demo\",type=\"cancelled\"} 2\n");
}

/* istio-agent.md 1.8 */
static void ends_are_counted_by_kind(void **state)
{
	static const struct {
		int status;
		const char *why;
		bool answered, failure;
		int cancelled, errors;
	} ends[] = {
	    {RPC_OK, "", true, false, 1, 0},
	    {RPC_CANCELLED, "", true, false, 1, 0},
	    {RPC_DEADLINE_EXCEEDED, "", true, false, 1, 0},
	    {RPC_UNAVAILABLE, "transport is closing", true, false, 1, 0},
	    {RPC_UNAVAILABLE, "Socket closed", true, false, 1, 0},
	    {RPC_UNAVAILABLE, "something else", true, false, 0, 1},
	    {RPC_INTERNAL, "transport is closing", true, false, 0, 1},
	    {RPC_UNAVAILABLE, "connection refused", false, true, 0, 0},
	    {RPC_PERMISSION_DENIED, "no", false, false, 0, 1},
	};
	struct world *w = *state;
	int failures = 0, cancelled = 0, errors = 0;
	char line[160];

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++) {
		struct rpc_stream *up;

		fake_loop_advance(w->loop, 40 * 1000); /* no back-off */
		connect_envoy(w, DELTA_METHOD, &up);
		if (ends[i].answered)
			answer(w, up, TYPE_CLUSTER, "n", "r");
		fake_rpc_end(up, ends[i].status, ends[i].why);
		settle(w);
		failures += ends[i].failure;
		cancelled += ends[i].cancelled;
		errors += ends[i].errors;
	}
#define POD "pod=\"web-0\",namespace=\"demo\""
	snprintf(
	    line, sizeof(line), "istio_agent_istiod_connection_failures{" POD "} %d\n", failures);
	assert_metric(line);
	snprintf(line, sizeof(line),
	    "istio_agent_istiod_connection_terminations{" POD ",type=\"cancelled\"} %d\n",
	    cancelled);
	assert_metric(line);
	snprintf(line, sizeof(line),
	    "istio_agent_istiod_connection_terminations{" POD ",type=\"error\"} %d\n", errors);
	assert_metric(line);
}

static void messages_are_counted(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	xds_proxy_take(w->xds, TYPE_NAME_TABLE, on_local, w);
	DELTA(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	DELTA(w, down, .type = TYPE_LISTENER);
	answer(w, up, TYPE_CLUSTER, "n", "r");
	answer(w, up, TYPE_NAME_TABLE, "n", "r");
	answer(w, up, "foreign", "n", "r");
	assert_metric("istio_agent_xds_proxy_requests{" POD "} 2\n");
	assert_metric("istio_agent_xds_proxy_responses{" POD "} 3\n");
	xds_proxy_free(&w->xds);
	assert_int_equal(fake_rpc_status(down), RPC_UNAVAILABLE);
	assert_int_equal(fake_rpc_status(up), RPC_CANCELLED);
	/* The pod's services may be made anew: its counters go with the pod (agent.c). */
	assert_metric("istio_agent_xds_proxy_requests{" POD "} 2\n");
}

static void is_served(const struct world *w, enum served expected, const char *why)
{
	struct err e = {0};

	assert_string_equal(served_word(xds_proxy_served(w->xds, &e)), served_word(expected));
	assert_string_equal(e.msg, why);
}

/* Before, during and after: nothing of it is kept. */
static void what_istiod_refuses_is_not_served(void **state)
{
	static const struct {
		int code;
		enum served served;
	} cases[] = {
	    {RPC_INVALID_ARGUMENT, SERVED_NO},
	    {RPC_PERMISSION_DENIED, SERVED_NO},
	    {RPC_UNAUTHENTICATED, SERVED_NO},
	    {RPC_UNKNOWN, SERVED_NO},
	    {RPC_INTERNAL, SERVED_NO},
	    {RPC_RESOURCE_EXHAUSTED, SERVED_HELD}, /* Envoy sees nothing of it */
	    {RPC_UNAVAILABLE, SERVED_HELD},
	};
	struct world *w = *state;

	is_served(w, SERVED_UNASKED, "");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);
		const char *code = rpc_status_name(cases[i].code);
		auto_free char *why = mem_printf("istiod: %s: no", code);
		auto_free char *again = mem_printf("istiod has not answered yet; before: %s", why);
		auto_free char *counted =
		    mem_printf("agentd_xds_refused_streams_total{code=\"%s\"} 1\n", code);

		SOTW(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
		is_served(w, SERVED_UNASKED, ""); /* it has only just begun */
		fake_rpc_end(up, cases[i].code, "no");
		settle(w);
		assert_metric(counted);
		is_served(w, cases[i].served, why);
		if (fake_rpc_ended(down))
			down = call(w, SOTW_METHOD);
		fake_loop_advance(w->loop, 40000);
		is_served(w, cases[i].served, again);
		SOTW(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
		answer(w, last_up(w), TYPE_CLUSTER, "n", "r");
		is_served(w, SERVED_YES, "");
		fake_rpc_end(down, RPC_CANCELLED, "");
		settle(w);
	}
}

/* An Envoy comes again within 30 s; one that does not has ended. */
static void an_envoy_that_has_gone_asks_for_nothing(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up;

	connect_envoy(w, SOTW_METHOD, &up);
	fake_rpc_end(up, RPC_PERMISSION_DENIED, "no");
	fake_loop_advance(w->loop, 59000);
	is_served(w, SERVED_NO, "istiod: PERMISSION_DENIED: no");
	fake_loop_advance(w->loop, 1000);
	is_served(w, SERVED_UNASKED, "");
}

static void an_istiod_that_says_nothing_is_told(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up;

	connect_envoy(w, SOTW_METHOD, &up);
	fake_loop_advance(w->loop, 9000);
	is_served(w, SERVED_UNASKED, "");
	fake_loop_advance(w->loop, 1000);
	is_served(w, SERVED_HELD, "istiod has not answered yet");
}

/* By the type alone: its text may quote a secret. */
static void what_envoy_refuses_or_leaves_is_not_served(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);

	SOTW(w, down, .node_id = ENVOYS_NODE, .type = TYPE_LISTENER);
	answer(w, up, TYPE_LISTENER, "n1", "r");
	fake_loop_advance(w->loop, 59000);
	is_served(w, SERVED_YES, "");
	fake_loop_advance(w->loop, 1000);
	is_served(w, SERVED_NO, "its Envoy has not answered the last push of Listener for 60 s");
	SOTW(w, down, .type = TYPE_LISTENER, .nonce = "n1", .nack = "bad: password");
	is_served(
	    w, SERVED_NO, "its Envoy refused the last push of Listener: agentctl xds shows why");
	answer(w, up, TYPE_LISTENER, "n2", "r");
	is_served(w, SERVED_YES, "");
	SOTW(w, down, .type = TYPE_LISTENER, .version = "v", .nonce = "n2", .nack = "bad");
	assert_int_equal(xds_proxy_refused(w->xds), 1);
	fake_rpc_end(down, RPC_CANCELLED, "");
	connect_envoy(w, SOTW_METHOD, &up);
	answer(w, up, TYPE_CLUSTER, "n3", "r");
	is_served(w, SERVED_YES, ""); /* what another Envoy refused is over */
	assert_int_equal(xds_proxy_refused(w->xds), 0);
}

static void without_a_token_nothing_is_served(void **state)
{
	struct world *w = *state;

	w->token_why = "token: expired";
	call(w, SOTW_METHOD);
	is_served(w, SERVED_NO, "token: expired");
	assert_metric("agentd_xds_refused_streams_total{code=\"not_sent\"} 1\n");
}

/* The rule itself: hold_test.c. */
static void a_push_that_takes_all_away_waits(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);

	SOTW(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER, .version = "v0");
	answer(w, up, TYPE_CLUSTER, "n1", NULL);
	assert_int_equal(fake_rpc_sent(down), 0);
	assert_dump(w, "why_not",
	    "\"istiod's first answer removes all clusters: held back, Envoy keeps them for a while "
	    "(hold_empty_push_s)\"");
	assert_metric("agentd_xds_empty_pushes_held_total{" POD "} 1\n");
	is_served(w, SERVED_HELD,
	    "istiod's first answer removes all clusters: held back, Envoy keeps them for a while "
	    "(hold_empty_push_s)");
	answer(w, up, TYPE_LISTENER, "n2", "r"); /* others pass */
	assert_int_equal(fake_rpc_sent(down), 1);
	fake_loop_advance(w->loop, 30000);
	assert_int_equal(fake_rpc_sent(down), 2);
	assert_dump(w, "why_not", "\"\"");
	assert_int_equal(fake_rpc_sent(up), 1); /* no ACK of ours */
}

static void a_delta_stream_whose_removal_was_held_begins_anew(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	DELTA(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER, .have = {"a", "1"});
	carried_removal(up, TYPE_CLUSTER, "a");
	settle(w);
	assert_int_equal(fake_rpc_sent(down), 0);
	answer(w, up, TYPE_CLUSTER, "n2", "r");
	assert_int_equal(fake_rpc_sent(down), 0);
	assert_int_equal(fake_rpc_status(down), RPC_UNAVAILABLE);
	assert_int_equal(fake_rpc_status(up), RPC_CANCELLED);
	connect_envoy(w, DELTA_METHOD, &up); /* at once: nobody refused anything */
}

static void two_pods_never_mix(void **state)
{
	struct world *w = *state, *other;
	struct rpc_stream *up, *down, *other_up, *other_down;

	setup((void **)&other);
	other->token.jwt = "the other's";
	down = connect_envoy(w, DELTA_METHOD, &up);
	other_down = connect_envoy(other, DELTA_METHOD, &other_up);
	assert_string_equal(fake_rpc_header(other_up, "authorization"), "Bearer the other's");
	answer(w, up, TYPE_CLUSTER, "n", "r");
	assert_int_equal(fake_rpc_sent(down), 1);
	assert_int_equal(fake_rpc_sent(other_down), 0);
	assert_dump(other, "displaced", "0");
	teardown((void **)&other);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(the_upstream_mirrors_the_method_and_carries_the_token),
	    TEST(envoy_is_held_until_its_turn_comes),
	    TEST(envoy_may_leave_before_its_turn),
	    TEST(without_a_valid_token_istiod_is_not_asked),
	    TEST(an_open_that_fails_ends_envoys_stream),
	    TEST(a_malformed_request_ends_both_sides),
	    TEST(a_malformed_response_ends_both_sides),
	    TEST(an_envoy_that_does_not_read_is_ended),
	    TEST(an_envoy_that_others_wait_for_is_ended),
	    TEST(without_room_at_istiod_envoy_is_held),
	    TEST(what_waits_for_istiod_is_held_for_the_pod),
	    TEST(who_said_too_much_is_ended_not_held),
	    TEST(a_refusal_is_envoys_to_know_and_agentd_to_pace),
	    TEST(how_the_stream_is),
	    TEST(after_a_refusal_nobody_asks_for_nobody),
	    TEST(while_istiod_is_away_the_reason_is_shown),
	    TEST(a_stream_that_has_to_move_ends_with_ok),
	    TEST(an_unanswered_stream_moves_unseen),
	    TEST(harm_to_the_connection_is_reported),
	    TEST(a_second_stream_displaces_the_first),
	    TEST(a_stream_that_waits_can_be_displaced_too),
	    TEST(istiods_status_reaches_envoy),
	    TEST(refusals_and_answers_are_told),
	    TEST(istiods_ok_is_ok_for_envoy),
	    TEST(envoys_end_cancels_the_upstream),
	    TEST(ends_are_counted_by_kind),
	    TEST(messages_are_counted),
	    TEST(what_istiod_refuses_is_not_served),
	    TEST(an_envoy_that_has_gone_asks_for_nothing),
	    TEST(an_istiod_that_says_nothing_is_told),
	    TEST(what_envoy_refuses_or_leaves_is_not_served),
	    TEST(without_a_token_nothing_is_served),
	    TEST(a_push_that_takes_all_away_waits),
	    TEST(a_delta_stream_whose_removal_was_held_begins_anew),
	    TEST(two_pods_never_mix),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
