/* relay_test.c - messages between a scripted Envoy and a scripted istiod; streams are the test's.
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/istiod.c tests/unit/worker/ads/carried.c tests/unit/worker/ads/envoy.c
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
#include "common/log.h"
#include "common/mem.h"
#include "extension.h"
#include "tests/fake/istiod.h"
#include "tests/fake/loop.h"
#include "worker/ads/metrics.h"
#include "worker/ads/relay.h"
#include "worker/ads/wasm.h"
#include "worker/pods/limits.h"
#include "worker/pods/pod.h"

#define SOTW_METHOD "sotw"
#define DELTA_METHOD "delta"
#define WORKLOAD TYPE_PREFIX "istio.workload.Workload"
#define ENVOYS_NODE "sidecar~6.6.6.6~evil.prod~prod"

struct world {
	struct loop *loop;
	struct rpc *rpc;
	struct rpc_server *server;
	struct istiod *istiod;
	struct istiod_turn *turn;
	struct limits *limits;
	struct pod pod;
	struct log_budget log;
	struct ads_metrics metrics;
	struct ads_pair pair;
	struct ads_relay *relay;
	const char *nack; /* what the local handler says; NULL: it is content */
	unsigned handled;
	unsigned unread;  /* how often Envoy was given up */
	unsigned plugins; /* how often the owner heard of them */
	int malformed;    /* what the last request was answered */
	bool anew;        /* the streams have to begin anew */
};

/* ---- the owner of the streams ---- */

static void end_pair(struct world *w)
{
	istiod_turn_cancel(&w->turn);
	rpc_close(&w->pair.up, RPC_CANCELLED, "");
	ads_relay_up_ended(w->relay);
	rpc_close(&w->pair.down, RPC_OK, "");
	ads_relay_down_ended(w->relay);
}

static void on_request(void *ctx, struct rpc_stream *down, struct rpc_msg *m)
{
	struct world *w = ctx;
	struct err e;

	(void)down;
	w->malformed = ads_relay_request(w->relay, m, &e);
}

static void on_response(void *ctx, struct rpc_stream *up, struct rpc_msg *m)
{
	struct world *w = ctx;
	struct discovery_response d;
	struct err e;

	(void)up;
	assert_int_equal(discovery_read_response(&d, discovery_reader(m), &e), 0);
	w->anew = !ads_relay_response(w->relay, &d, m);
}

static void on_up_writable(void *ctx, struct rpc_stream *up)
{
	(void)up;
	ads_relay_up_writable(((struct world *)ctx)->relay);
}

static void on_down_writable(void *ctx, struct rpc_stream *down)
{
	(void)down;
	ads_relay_down_writable(((struct world *)ctx)->relay);
}

static void on_closed(void *ctx, int status, const char *why)
{
	(void)ctx;
	(void)status;
	(void)why;
}

static void on_unread(void *ctx, const char *why)
{
	struct world *w = ctx;

	assert_non_null(strstr(why, "unread for 15 s"));
	w->unread++;
	end_pair(w);
}

static void on_plugins(void *ctx)
{
	struct world *w = ctx;

	w->plugins++;
}

static void on_turn(void *ctx, struct rpc_channel *c)
{
	static const struct rpc_events events = {
	    .message = on_response, .writable = on_up_writable, .closed = on_closed};
	struct world *w = ctx;
	struct err e;

	assert_int_equal(istiod_open(w->istiod, c, &w->pair.up,
			     &(struct istiod_stream){"method", "token", 0, &events, w, true}, &e),
	    0);
}

static void on_incoming(void *ctx, struct rpc_stream *s, const char *method)
{
	static const struct rpc_events events = {
	    .message = on_request, .writable = on_down_writable, .closed = on_closed};
	struct world *w = ctx;

	end_pair(w);
	w->pair.flavour = strcmp(method, SOTW_METHOD) == 0 ? DISCOVERY_SOTW : DISCOVERY_DELTA;
	rpc_accept(s, &w->pair.down, &events, w);
	istiod_turn(w->istiod, &w->turn, &w->pod.spec.uid, on_turn, w);
}

static int on_local(void *ctx, const struct rpc_msg *m, struct err *e)
{
	struct world *w = ctx;

	assert_true(rpc_msg_size(m) > 0);
	w->handled++;
	return w->nack ? err_set(e, ERR_INVALID, "%s", w->nack) : 0;
}

static int setup(void **state)
{
	static const struct rpc_server_options server = {.max_message = 4 << 20, .max_streams = 9};
	struct world *w = mem_zalloc(sizeof(*w));
	const struct ads_relay_options relay = {
	    .pair = &w->pair,
	    .plane = &carried_plane,
	    .label = "demo/web-0",
	    .log = &w->log,
	    .metrics = &w->metrics,
	    .unread = on_unread,
	    .plugins = on_plugins,
	    .ctx = w,
	    .loop = w->loop = fake_loop(),
	};

	w->rpc = rpc_new(w->loop);
	w->istiod = istiod_new(w->loop, w->rpc, NULL, &carried_plane, 0);
	w->server = rpc_server_new(w->rpc, &server, on_incoming, w);
	w->limits = carried_limits(w->loop);
	ads_metrics_init(&w->metrics, &w->pod);
	w->relay = ads_relay_new(&relay);
	ads_relay_limit(w->relay, w->limits);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	end_pair(w);
	ads_relay_free(&w->relay);
	limits_free(&w->limits);
	rpc_server_free(&w->server);
	assert_int_equal(fake_rpc_live(w->rpc), 0);
	istiod_free(&w->istiod);
	rpc_free(&w->rpc);
	fake_loop_end(&w->loop);
	metrics_clear();
	free(w);
	return 0;
}

/* Both streams; returns Envoy's.  An earlier pair ends. */
static struct rpc_stream *connect_envoy(struct world *w, const char *method, struct rpc_stream **up)
{
	struct rpc_stream *down = fake_rpc_call(w->server, method);

	fake_loop_advance(w->loop, 0);
	*up = w->pair.up;
	assert_non_null(*up);
	return down;
}

static void answer(struct world *w, struct rpc_stream *up, const char *type, const char *nonce,
    const char *resource)
{
	carried_answer(up, type, nonce, resource);
	fake_loop_advance(w->loop, 0);
}

static void push_mib(struct world *w, struct rpc_stream *up, size_t mib)
{
	carried_answer_mib(up, mib);
	fake_loop_advance(w->loop, 0);
}

/* What the account says about one type. */
static void assert_type(const struct world *w, const char *type, const char *json)
{
	json_t *types = ads_relay_dump(w->relay);
	auto_free char *text = json_dumps(json_object_get(types, type), JSON_SORT_KEYS);

	json_decref(types);
	assert_non_null(text);
	assert_string_equal(text, json);
}

/* ---- requests ---- */

static void only_requests_with_a_node_are_changed(void **state)
{
	struct world *w = *state;

	for (int delta = 0; delta < 2; delta++) {
		struct rpc_stream *up, *down;

		down = connect_envoy(w, delta ? DELTA_METHOD : SOTW_METHOD, &up);
		ASK(w, down, delta, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER, .names = {"a"});
		ASSERT_SAID_AS_US(
		    up, 0, delta, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER, .names = {"a"});
		ASK(w, down, delta, .type = TYPE_LISTENER, .names = {"b"}, .nonce = "n");
		ASSERT_SAID(up, 1, delta, .type = TYPE_LISTENER, .names = {"b"}, .nonce = "n");
		ASK(w, down, delta, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
		ASSERT_SAID_AS_US(up, 2, delta, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
		assert_int_equal(fake_rpc_sent(up), 3);
	}
}

static void a_first_request_without_a_node_gets_ours(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);

	SOTW(w, down, .type = TYPE_CLUSTER);
	ASSERT_SAID_AS_US(up, 0, DISCOVERY_SOTW, .type = TYPE_CLUSTER);
	SOTW(w, down, .type = TYPE_CLUSTER);
	ASSERT_SAID(up, 1, DISCOVERY_SOTW, .type = TYPE_CLUSTER);
	down = connect_envoy(w, SOTW_METHOD, &up); /* each stream has a first one */
	SOTW(w, down, .type = TYPE_CLUSTER);
	ASSERT_SAID_AS_US(up, 0, DISCOVERY_SOTW, .type = TYPE_CLUSTER);
}

static void a_malformed_request_is_not_carried(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);

	fake_rpc_push(down, "\x22\xff", 2);
	fake_loop_advance(w->loop, 0);
	assert_int_equal(w->malformed, -1);
	assert_int_equal(fake_rpc_sent(up), 0);
}

/* ---- responses and the account of them ---- */

/* With a resource that is no message and fields that nobody knows. */
static void responses_reach_envoy_as_they_came(void **state)
{
	static const char rest[] = "\x12\x03\xff\xfe\xfd\x32\x01x\xf8\x07\x01";
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);
	struct evbuffer *b = evbuffer_new();

	say_text(b, 4, WORKLOAD);
	evbuffer_add(b, rest, sizeof(rest) - 1);
	fake_rpc_push(up, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	fake_loop_advance(w->loop, 0);
	carried_assert_sent(down, 0, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	evbuffer_free(b);
	answer(w, up, TYPE_CLUSTER, "n2", NULL);
	assert_int_equal(fake_rpc_sent(down), 2);
}

/* Takes `resource`. */
static void push_extension(struct world *w, struct rpc_stream *up, struct evbuffer *resource)
{
	struct evbuffer *b =
	    fields(text(5, "n"), text(4, TYPE_EXTENSION), wrapped(2, resource), NULL);

	fake_rpc_push(up, evbuffer_pullup(b, -1), evbuffer_get_length(b));
	fake_loop_advance(w->loop, 0);
	evbuffer_free(b);
}

static struct evbuffer *remote_filter(void)
{
	return any(TYPE_EXTENSION,
	    extension("demo.auth", HTTP_WASM,
		wasm_of(remote_at("_", ""), variable(SECRET, "{}"), evbuffer_new())));
}

/* What Envoy cannot have is another thing when it gets there; the owner hears of each change. */
static void wasm_filters_are_rewritten(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);
	const char *sent;
	size_t n;

	push_extension(w, up, any(TYPE_EXTENSION, extension("r", RBAC, evbuffer_new())));
	assert_int_equal(w->plugins, 0);
	push_extension(w, up, remote_filter());
	assert_int_equal(fake_rpc_sent(down), 2);
	sent = fake_rpc_sent_bytes(down, 1, &n);
	assert_null(memmem(sent, n, SECRET, strlen(SECRET)));
	assert_non_null(memmem(sent, n, "demo.auth", 9));
	assert_int_equal(w->plugins, 1);
	assert_int_equal(ads_relay_wasm(w->relay)->n, 1);
	SOTW(w, down, .type = TYPE_EXTENSION, .names = {"demo.auth"}, .nonce = "n");
	assert_int_equal(w->plugins, 1);
	end_pair(w); /* Envoy keeps what it was given */
	assert_int_equal(ads_relay_wasm(w->relay)->n, 1);
	down = connect_envoy(w, SOTW_METHOD, &up);
	SOTW(w, down, .type = TYPE_LISTENER, .nonce = "n");
	assert_int_equal(ads_relay_wasm(w->relay)->n, 0);
	assert_int_equal(w->plugins, 2);
}

/* Envoy does not see it, and would refuse it. */
static void what_is_no_extension_is_refused(void **state)
{
	static const char why[] = "resource 1 is no extension with a name and a configuration";
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);
	const char *sent;
	size_t n;

	push_extension(w, up, text(1, "x"));
	assert_int_equal(fake_rpc_sent(down), 0);
	sent = fake_rpc_sent_bytes(up, 0, &n);
	assert_non_null(memmem(sent, n, why, strlen(why)));
	assert_int_equal(ads_relay_refused(w->relay), 1);
	push_extension(w, up, remote_filter());
	assert_int_equal(fake_rpc_sent(down), 1);
}

static void foreign_types_are_dropped_without_an_ack(void **state)
{
	static const char *const foreign[] = {TYPE_PREFIX "istio.workload.Address",
	    TYPE_PREFIX "istio.security.Authorization", TYPE_NAME_TABLE, "envoy.config.x",
	    TYPE_PREFIX "envoyx", ""};
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	for (size_t i = 0; i < sizeof(foreign) / sizeof(*foreign); i++)
		answer(w, up, foreign[i], "n", "r");
	assert_int_equal(fake_rpc_sent(down), 0);
	assert_int_equal(fake_rpc_sent(up), 0);
}

static void acks_and_nacks_are_kept_account_of(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);

	SOTW(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
	answer(w, up, TYPE_CLUSTER, "n1", "r");
	assert_type(w, TYPE_CLUSTER,
	    "{\"acked\": 0, \"last_nack\": \"\", \"nacked\": 0, "
	    "\"nonce\": \"n1\", \"pushed_at\": 1700000000, \"refused\": false, "
	    "\"resources\": 1, \"state\": \"stale\", \"version\": \"v1\"}");
	SOTW(w, down, .type = TYPE_CLUSTER, .nonce = "stale");
	SOTW(w, down, .type = TYPE_LISTENER, .nonce = "n1");
	SOTW(w, down, .type = TYPE_CLUSTER, .nonce = "n1");
	SOTW(w, down, .type = TYPE_CLUSTER, .nonce = "n1", .names = {"more"}); /* no second ACK */
	answer(w, up, TYPE_CLUSTER, "n2", "r");
	SOTW(w, down, .type = TYPE_CLUSTER, .nonce = "n2", .nack = "no such \x01 cluster");
	assert_type(w, TYPE_CLUSTER,
	    "{\"acked\": 1, \"last_nack\": \"no such ? cluster\", \"nacked\": 1, "
	    "\"nonce\": \"n2\", \"pushed_at\": 1700000000, \"refused\": true, "
	    "\"resources\": 1, \"state\": \"refused\", \"version\": \"v1\"}");
	assert_int_equal(fake_rpc_sent(up), 6); /* and all of them went on */
	/* A nonce belongs to its stream. */
	down = connect_envoy(w, SOTW_METHOD, &up);
	SOTW(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER, .nonce = "n2");
	assert_type(w, TYPE_CLUSTER,
	    "{\"acked\": 1, \"last_nack\": \"no such ? cluster\", \"nacked\": 1, "
	    "\"nonce\": \"\", \"pushed_at\": 1700000000, \"refused\": true, "
	    "\"resources\": 1, \"state\": \"refused\", \"version\": \"v1\"}");
	/* What was refused once is history when the next is taken. */
	answer(w, up, TYPE_CLUSTER, "n3", "r");
	SOTW(w, down, .type = TYPE_CLUSTER, .nonce = "n3");
	assert_type(w, TYPE_CLUSTER,
	    "{\"acked\": 2, \"last_nack\": \"no such ? cluster\", \"nacked\": 1, "
	    "\"nonce\": \"n3\", \"pushed_at\": 1700000000, \"refused\": false, "
	    "\"resources\": 1, \"state\": \"synced\", \"version\": \"v1\"}");
}

static void the_account_is_bounded(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, SOTW_METHOD, &up);
	json_t *types;

	for (int i = 0; i < 20; i++) {
		char type[80];

		snprintf(type, sizeof(type), TYPE_PREFIX "envoy.%d", i);
		answer(w, up, type, "n", "r");
		SOTW(w, down, .node_id = ENVOYS_NODE, .type = type, .nonce = "n");
	}
	assert_int_equal(fake_rpc_sent(down), 20);
	types = ads_relay_dump(w->relay);
	assert_int_equal(json_object_size(types), 16);
	json_decref(types);
}

/* ---- types that agentd takes itself ---- */

static void take_locals(struct world *w)
{
	ads_relay_take(w->relay, TYPE_NAME_TABLE, on_local, w);
	ads_relay_take(w->relay, TYPE_PROXY_CONFIG, on_local, w);
}

/* istio-agent.md 0.3: after the first request for listeners, in order, once per stream, no node. */
static void own_subscriptions_follow_the_first_lds_request(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down;

	take_locals(w);
	for (int i = 0; i < 4; i++) {
		enum discovery_flavour f = i % 2;

		down = connect_envoy(w, f ? DELTA_METHOD : SOTW_METHOD, &up);
		ASK(w, down, f, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
		assert_int_equal(fake_rpc_sent(up), 1);
		ASK(w, down, f, .type = TYPE_LISTENER);
		assert_int_equal(fake_rpc_sent(up), 4);
		ASSERT_SAID(up, 1, f, .type = TYPE_LISTENER);
		ASSERT_SAID(up, 2, f, .type = TYPE_NAME_TABLE);
		ASSERT_SAID(up, 3, f, .type = TYPE_PROXY_CONFIG);
		ASK(w, down, f, .type = TYPE_LISTENER);
		assert_int_equal(fake_rpc_sent(up), 5);
	}
}

/* No node, names or nonce; `why` NULL: healthy. */
static void told_health(
    const struct rpc_stream *up, unsigned i, enum discovery_flavour f, const char *why)
{
	struct evbuffer *expected = evbuffer_new();

	discovery_put_health(expected, f, why);
	carried_assert_sent(up, i, evbuffer_pullup(expected, -1), evbuffer_get_length(expected));
	evbuffer_free(expected);
}

/* istio-agent.md 0.3, bare-metal-identity.md 5: stored before, told after the subscriptions, once
 * more on each stream. */
static void the_health_is_told_on_change_and_on_each_stream(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down;

	take_locals(w);
	for (int i = 0; i < 4; i++) {
		enum discovery_flavour f = i % 2;

		down = connect_envoy(w, f ? DELTA_METHOD : SOTW_METHOD, &up);
		ads_relay_health(w->relay, "connection refused");
		ASK(w, down, f, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER);
		assert_int_equal(fake_rpc_sent(up), 1); /* not before the listeners */
		ASK(w, down, f, .type = TYPE_LISTENER);
		assert_int_equal(fake_rpc_sent(up), 5);
		told_health(up, 4, f, "connection refused");
		ads_relay_health(w->relay, NULL);
		assert_int_equal(fake_rpc_sent(up), 6);
		told_health(up, 5, f, NULL);
	}
	end_pair(w);
	ads_relay_health(w->relay, "gone"); /* without a stream: kept for the next */
	down = connect_envoy(w, SOTW_METHOD, &up);
	ASK(w, down, DISCOVERY_SOTW, .type = TYPE_LISTENER);
	told_health(up, 3, DISCOVERY_SOTW, "gone");
}

static void a_local_type_is_handled_and_acked(void **state)
{
	struct world *w = *state;

	take_locals(w);
	for (int delta = 0; delta < 2; delta++) {
		struct rpc_stream *up;
		struct rpc_stream *down = connect_envoy(w, delta ? DELTA_METHOD : SOTW_METHOD, &up);

		w->nack = NULL;
		w->handled = 0;
		answer(w, up, TYPE_NAME_TABLE, "n1", "table");
		assert_int_equal(w->handled, 1);
		ASSERT_SAID(up, 0, delta, .type = TYPE_NAME_TABLE, .nonce = "n1", .version = "v1");
		w->nack = "not a name table";
		answer(w, up, TYPE_NAME_TABLE, "n2", "table");
		assert_int_equal(w->handled, 2);
		assert_int_equal(fake_rpc_sent(up), 2);
		assert_int_equal(fake_rpc_sent(down), 0);
	}
	assert_type(w, TYPE_NAME_TABLE,
	    "{\"acked\": 2, \"last_nack\": \"not a name table\", \"nacked\": 2, "
	    "\"nonce\": \"n2\", \"pushed_at\": 1700000000, \"refused\": true, "
	    "\"resources\": 1, \"state\": \"refused\", \"version\": \"v1\"}");
}

static void a_local_type_without_resources_is_passed_over(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	take_locals(w);
	answer(w, up, TYPE_NAME_TABLE, "n1", NULL);
	assert_int_equal(w->handled, 0);
	assert_int_equal(fake_rpc_sent(up), 0);
	assert_int_equal(fake_rpc_sent(down), 0);
}

/* ---- a slow side ---- */

/* decisions.md 6: agentd's own types never wait behind an Envoy that digests 5,000 clusters. */
static void istiod_is_read_until_8_mib_wait_for_envoy(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	take_locals(w);
	fake_rpc_stall(down, true);
	push_mib(w, up, 3);
	push_mib(w, up, 3);
	assert_false(fake_rpc_paused(up));
	answer(w, up, TYPE_NAME_TABLE, "n", "table");
	assert_int_equal(w->handled, 1);
	push_mib(w, up, 3);
	assert_true(fake_rpc_paused(up));
	answer(w, up, TYPE_LISTENER, "n", "waits at istiod");
	assert_int_equal(fake_rpc_sent(down), 3);
	fake_rpc_stall(down, false);
	fake_loop_advance(w->loop, 0);
	assert_false(fake_rpc_paused(up));
	assert_int_equal(fake_rpc_sent(down), 4);
}

static void envoy_is_not_read_while_istiod_is_slow(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);
	auto_free char *name = mem_zalloc((1 << 20) + 1);

	memset(name, 'x', 1 << 20);
	fake_rpc_stall(up, true);
	DELTA(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER, .names = {name});
	assert_true(fake_rpc_paused(down));
	fake_rpc_stall(up, false);
	fake_loop_advance(w->loop, 0);
	assert_false(fake_rpc_paused(down));
}

static void a_slow_envoy_is_not_ended(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	for (int i = 0; i < 5; i++) { /* a pause of 14 s each */
		fake_rpc_stall(down, true);
		push_mib(w, up, 9);
		fake_loop_advance(w->loop, 14000);
		fake_rpc_stall(down, false);
		fake_loop_advance(w->loop, 500);
	}
	assert_false(fake_rpc_ended(down));
	assert_false(fake_rpc_paused(up));
	assert_int_equal(w->unread, 0);
}

/* istiod is read again as soon as there is room, not only when all is gone. */
static void an_envoy_that_reads_a_little_gets_more(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	fake_rpc_stall(down, true);
	push_mib(w, up, 9);
	fake_loop_advance(w->loop, 14000);
	assert_true(fake_rpc_paused(up));
	fake_rpc_take(down, 2 << 20);
	fake_loop_advance(w->loop, 1000);
	assert_false(fake_rpc_paused(up));
	fake_loop_advance(w->loop, 60 * 1000);
	assert_int_equal(w->unread, 0);
	push_mib(w, up, 2); /* full once more: the time begins anew */
	fake_loop_advance(w->loop, 14000);
	assert_int_equal(w->unread, 0);
	fake_loop_advance(w->loop, 1000);
	assert_int_equal(w->unread, 1);
}

/* The rule itself: hold_test.c. */
static void what_was_held_is_not_asked_for_once_more(void **state)
{
	struct world *w = *state;
	struct rpc_stream *up, *down = connect_envoy(w, DELTA_METHOD, &up);

	DELTA(w, down, .node_id = ENVOYS_NODE, .type = TYPE_CLUSTER, .have = {"a", "1"});
	carried_removal(up, TYPE_CLUSTER, "a");
	fake_loop_advance(w->loop, 0);
	assert_string_not_equal(ads_relay_why_held(w->relay), "");
	assert_false(w->anew);
	answer(w, up, TYPE_CLUSTER, "n2", "r");
	assert_true(w->anew);
	assert_int_equal(fake_rpc_sent(down), 0);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(only_requests_with_a_node_are_changed),
	    TEST(a_first_request_without_a_node_gets_ours),
	    TEST(a_malformed_request_is_not_carried),
	    TEST(responses_reach_envoy_as_they_came),
	    TEST(wasm_filters_are_rewritten),
	    TEST(what_is_no_extension_is_refused),
	    TEST(foreign_types_are_dropped_without_an_ack),
	    TEST(acks_and_nacks_are_kept_account_of),
	    TEST(the_account_is_bounded),
	    TEST(own_subscriptions_follow_the_first_lds_request),
	    TEST(the_health_is_told_on_change_and_on_each_stream),
	    TEST(a_local_type_is_handled_and_acked),
	    TEST(a_local_type_without_resources_is_passed_over),
	    TEST(istiod_is_read_until_8_mib_wait_for_envoy),
	    TEST(envoy_is_not_read_while_istiod_is_slow),
	    TEST(a_slow_envoy_is_not_ended),
	    TEST(an_envoy_that_reads_a_little_gets_more),
	    TEST(what_was_held_is_not_asked_for_once_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
