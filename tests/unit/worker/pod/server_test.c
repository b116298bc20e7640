/* server_test.c - what a pod may ask of its server: connections, calls, messages, each at its
 * limit.
 *
 * LINK: tests/fake/loop.c tests/unit/worker/pod/row_rig.c
 */
#include "base/metrics.h"
#include "common/mem.h"
#include "row_rig.h"
#include "rpc/server.h"
#include "tests/fake/loop.h"
#include "worker/link/link.h"
#include "worker/pod/rows.h"
#include "worker/pod/server.h"
#include "worker/pods/pod.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct pod pod = {.spec.uid = {{1}}, .spec.label = "demo/web"};
static struct agent_shared shared;
static struct pod_context context = {.shared = &shared, .pod = &pod};
static const struct pod_service *const row = &pod_server_service;
static void *s;

static struct {
	struct rpc_server_options options;
	rpc_incoming incoming;
	void *ctx;
	unsigned connections, streams;
	int64_t bytes, told; /* the broker; -1: nothing */
	link_done told_done;
	void *told_ctx;
	struct link_call **slot;
	bool held, cut, freed, refused_connection, taken;
	const char *refused;
} world;

/* --- in place of the neighbours --- */

static struct rpc_server *const rpc = (struct rpc_server *)&world;

struct rpc_server *rpc_server_new(
    struct rpc *r, const struct rpc_server_options *o, rpc_incoming incoming, void *ctx)
{
	(void)r;
	world.options = *o;
	world.incoming = incoming;
	world.ctx = ctx;
	return rpc;
}

void rpc_server_free(struct rpc_server **server)
{
	world.freed = *server != NULL;
	*server = NULL;
}

unsigned rpc_server_connections(struct rpc_server *server)
{
	(void)server;
	return world.connections;
}

unsigned rpc_server_streams(const struct rpc_server *server)
{
	(void)server;
	return world.streams;
}

int64_t rpc_server_bytes(struct rpc_server *server)
{
	(void)server;
	return world.bytes;
}

void link_pod_holds(struct link *p, struct link_call **slot, const struct uuid *uid, int64_t bytes,
    link_done done, void *ctx)
{
	(void)p;
	assert_true(uuid_equal(uid, &pod.spec.uid));
	assert_null(*slot);
	*slot = (struct link_call *)&world;
	world.slot = slot;
	world.told = bytes;
	world.told_done = done;
	world.told_ctx = ctx;
}

void link_call_cancel(struct link_call **c)
{
	*c = NULL;
}

void rpc_server_hold(struct rpc_server *server, bool held)
{
	assert_ptr_equal(server, rpc);
	world.held = held;
}

void rpc_server_cut_all(struct rpc_server *server)
{
	assert_ptr_equal(server, rpc);
	world.cut = true;
}

void rpc_refuse(struct rpc_stream *st, int status, const char *why)
{
	(void)st;
	assert_int_equal(status, RPC_RESOURCE_EXHAUSTED);
	world.refused = why;
}

void rpc_refuse_connection(struct rpc_stream *st)
{
	(void)st;
	world.refused_connection = true;
}

bool pod_ask_call(struct pod_context *c, struct rpc_stream *st, const char *method)
{
	(void)st;
	assert_ptr_equal(c, &context);
	assert_string_equal(method, "/a.B/C");
	world.taken = true;
	return true;
}

/* Of the other rows, one knows what is queued. */
void pod_ask_uses(struct pod_context *c, int64_t in_use[LIMIT_END])
{
	assert_ptr_equal(c, &context);
	row->uses(s, in_use);
	in_use[LIMIT_QUEUED] = 55;
}

/* --- the tests --- */

static int setup(void **state)
{
	(void)state;
	memset(&world, 0, sizeof(world));
	shared = (struct agent_shared){.loop = fake_loop(),
	    .limits.of = {[LIMIT_CONNECTIONS] = 4,
		[LIMIT_STREAMS] = 8,
		[LIMIT_MESSAGE] = 1000,
		[LIMIT_SILENT] = 30,
		[LIMIT_REQUESTS] = 1,
		[LIMIT_BURST] = 3,
		[LIMIT_FDS] = 90}};
	s = row_start(row, &context);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &s);
	fake_loop_end(&shared.loop);
	metrics_clear();
	return 0;
}

static void call(void)
{
	world.taken = false;
	world.refused = NULL;
	world.incoming(world.ctx, NULL, "/a.B/C");
}

static json_t *dumped(const char *limit)
{
	static json_t *o;
	json_t *one;
	size_t i;

	json_decref(o);
	o = json_object();
	row->dump(s, o);
	json_array_foreach (json_object_get(o, "limits"), i, one)
		if (!strcmp(json_string_value(json_object_get(one, "name")), limit))
			return one;
	fail_msg("no limit %s", limit);
	return NULL;
}

static json_int_t hits(const char *limit)
{
	return json_integer_value(json_object_get(dumped(limit), "hits"));
}

static void the_server_comes_with_the_directory(void **state)
{
	(void)state;
	assert_ptr_equal(context.server, s);
	assert_non_null(pod_server_limits(s)); /* offered before */
	assert_null(pod_server_rpc(s));
	assert_null(json_object_get(dumped("streams"), "in_use"));
	row->directory(s);
	assert_ptr_equal(pod_server_rpc(s), rpc);
	assert_int_equal(world.options.max_message, 1000);
	assert_int_equal(world.options.silent_ms, 30000);
	row_stop(row, &s);
	assert_true(world.freed);
	s = row_start(row, &context);
}

static void too_many_connections(void **state)
{
	(void)state;
	row->directory(s);
	assert_null(pod_server_admit(s, 3, 3));
	assert_non_null(strstr(pod_server_admit(s, 3, 4), "too many"));
	assert_int_equal(hits("connections"), 1);
	assert_null(pod_server_admit(s, 3, 3));
	assert_null(pod_server_admit(s, 3, 3));
	assert_non_null(strstr(pod_server_admit(s, 3, 3), "too often"));
}

static void too_many_calls(void **state)
{
	(void)state;
	row->directory(s);
	world.streams = 8; /* this one counts already */
	call();
	assert_true(world.taken);
	world.streams = 9;
	call();
	assert_false(world.taken);
	assert_string_equal(world.refused, "the pod has too many streams");
	world.streams = 1;
	call();
	assert_true(world.taken);
	call(); /* the bucket is empty */
	assert_false(world.taken);
	assert_string_equal(world.refused, "the pod calls too often");
	for (int i = 0; i < 10000 && !world.refused_connection; i++)
		call();
	assert_true(world.refused_connection && world.cut);
}

static void too_many_messages_hold_the_server(void **state)
{
	(void)state;
	row->directory(s);
	for (int i = 0; i < 2; i++)
		world.options.request(world.ctx);
	assert_false(world.held);
	world.options.request(world.ctx);
	assert_true(world.held);
	fake_loop_advance(shared.loop, 60000);
	assert_false(world.held);
}

static void breaches_are_counted(void **state)
{
	(void)state;
	row->directory(s);
	world.options.breach(world.ctx, RPC_BREACH_MESSAGE);
	world.options.breach(world.ctx, RPC_BREACH_SILENT);
	world.options.breach(world.ctx, RPC_BREACH_SILENT);
	assert_int_equal(hits("message"), 1);
	assert_int_equal(hits("silent_connection"), 2);
}

/* Each rule of the guard is a limit that people see. */
static void broken_rules_are_counted(void **state)
{
	static const char *const limits[RPC_RULE_END] = {
	    [RPC_RULE_FRAMES] = "frames",
	    [RPC_RULE_SHARE] = "node_requests",
	    [RPC_RULE_BLOCK_SIZE] = "headers",
	    [RPC_RULE_BLOCK_FIELDS] = "headers",
	    [RPC_RULE_BLOCK_SHAPE] = "headers",
	    [RPC_RULE_STREAMS] = "streams",
	    [RPC_RULE_MEMORY] = "node_memory",
	    [RPC_RULE_RIGHTS] = "frames",
	};

	(void)state;
	row->directory(s);
	for (unsigned i = 0; i < RPC_RULE_END; i++) {
		json_int_t before = hits(limits[i]);

		world.options.broken(world.ctx, (enum rpc_rule)i, 2);
		assert_int_equal(hits(limits[i]), before + 2);
	}
}

/* One question at a time, and the last word at its end. */
static void the_broker_hears_what_is_held(void **state)
{
	(void)state;
	row->directory(s);
	world.told = -1;
	world.options.held(world.ctx, 0);
	assert_int_equal(world.told, -1); /* as it knows */
	world.options.held(world.ctx, 5000);
	assert_int_equal(world.told, 5000);
	world.options.held(world.ctx, 6000);
	world.options.held(world.ctx, 7000);
	assert_int_equal(world.told, 5000);
	*world.slot = NULL;
	world.told_done(world.told_ctx, NULL);
	assert_int_equal(world.told, 7000);
}

static void what_is_in_use_is_asked_of_all(void **state)
{
	(void)state;
	row->directory(s);
	world.connections = 2;
	world.streams = 5;
	assert_int_equal(json_integer_value(json_object_get(dumped("connections"), "in_use")), 2);
	assert_int_equal(json_integer_value(json_object_get(dumped("streams"), "in_use")), 5);
	assert_int_equal(json_integer_value(json_object_get(dumped("queued"), "in_use")), 55);
	assert_null(json_object_get(dumped("message"), "in_use"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(the_server_comes_with_the_directory),
	    TEST(too_many_connections),
	    TEST(too_many_calls),
	    TEST(too_many_messages_hold_the_server),
	    TEST(breaches_are_counted),
	    TEST(broken_rules_are_counted),
	    TEST(the_broker_hears_what_is_held),
	    TEST(what_is_in_use_is_asked_of_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
