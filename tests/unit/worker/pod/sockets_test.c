/* sockets_test.c - when a pod's sockets are said to listen, and who is asked about its connections.
 *
 * LINK: tests/fake/loop.c tests/unit/worker/pod/row_rig.c
 */
#include "base/loop.h"
#include "common/err.h"
#include "common/mem.h"
#include "row_rig.h"
#include "tests/fake/loop.h"
#include "worker/pod/rows.h"
#include "worker/pod/server.h"
#include "worker/pods/pod.h"
#include "worker/sockets/uds.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct pod pod = {.spec.uid = {{1}}, .spec.label = "demo/web"};
static struct agent_shared shared;
static struct pod_context context = {.shared = &shared, .pod = &pod};
static const struct pod_service *const row = &pod_sockets_service;
static void *s;

static struct {
	struct uds_events to; /* NULLs: no sockets were asked for */
	void *ctx;
	bool stopped, freed, waits;
	int made;
	char said[256]; /* "fine; begins; held: ...; " */
	size_t addresses;
} world;

/* --- in place of the neighbours --- */

static void say(const char *what, const char *why)
{
	size_t n = strlen(world.said);

	snprintf(world.said + n, sizeof(world.said) - n, "%s%s; ", what, why);
}

void pod_tell_progress(struct pod_context *c)
{
	static const char *const names[] = {"fine", "begins", "degraded: ", "held: "};
	const struct err *why = NULL;
	enum pod_progress p = row->progress(s, &why);

	assert_ptr_equal(c, &context);
	assert_int_equal(why != NULL, p >= POD_DEGRADED);
	assert_true(p != POD_HELD || why->code == ERR_UNAVAILABLE); /* who starts it waits */
	say(names[p], why ? why->msg : "");
}

void pod_set_away(struct pod *p, const struct err *why)
{
	assert_ptr_equal(p, &pod);
	say(why ? "away: " : "came", why ? why->msg : "");
}

void pod_tell_addresses(struct pod_context *c, const char *const *ips, size_t n)
{
	assert_ptr_equal(c, &context);
	assert_string_equal(ips[0], "10.0.0.1");
	world.addresses = n;
}

struct rpc_server *pod_server_rpc(const struct pod_server *server)
{
	(void)server;
	return NULL;
}

const char *pod_server_admit(struct pod_server *server, int fd, unsigned connections)
{
	(void)server;
	assert_int_equal(fd, 7);
	return connections > 2 ? "too many" : NULL;
}

struct uds *uds_new(
    struct loop *l, const struct uds_rig *rig, const struct uds_events *ev, void *ctx)
{
	(void)l;
	assert_true(uuid_equal(&rig->pod, &pod.spec.uid));
	world.to = *ev;
	world.ctx = ctx;
	world.made++;
	world.waits = rig->wait;
	return (struct uds *)&world;
}

void uds_accept(struct uds *u)
{
	assert_ptr_equal(u, &world);
	world.waits = false;
}

void uds_stop(struct uds *u)
{
	assert_ptr_equal(u, &world);
	world.stopped = true;
}

void uds_free(struct uds **u)
{
	world.freed = *u != NULL;
	*u = NULL;
}

json_t *uds_dump(const struct uds *u)
{
	(void)u;
	return json_pack("{s:s}", "is", "dumped");
}

/* --- the tests --- */

static int setup(void **state)
{
	(void)state;
	memset(&world, 0, sizeof(world));
	shared.loop = fake_loop();
	context.wait_s = 0;
	s = row_start(row, &context);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &s);
	fake_loop_end(&shared.loop);
	return 0;
}

static void said(const char *what)
{
	assert_string_equal(world.said, what);
	world.said[0] = '\0';
}

static enum pod_progress progress(void)
{
	const struct err *why = NULL;

	return row->progress(s, &why);
}

static void fine_when_both_listen(void **state)
{
	(void)state;
	assert_int_equal(progress(), POD_FINE); /* nothing is to be done yet */
	row->directory(s);
	said("");
	assert_int_equal(progress(), POD_BEGINS);
	world.to.listening(world.ctx, NULL);
	said("fine; ");
}

/* Whenever the cause ends, and not only then. */
static void sockets_are_asked_for_until_they_are_there(void **state)
{
	struct err e;

	(void)state;
	row->directory(s);
	for (int i = 1; i <= 10; i++) {
		assert_int_equal(world.made, i);
		err_set(&e, ENOSPC, "no room");
		world.to.listening(world.ctx, &e);
		said("held: no room; ");
		fake_loop_advance(shared.loop, 10 * 1000); /* 8 s and a fifth, at most */
		assert_int_equal(progress(), POD_HELD);
	}
	world.to.listening(world.ctx, NULL);
	said("fine; ");
	fake_loop_advance(shared.loop, 3600 * 1000);
	assert_int_equal(world.made, 11);
}

static void not_while_the_worker_ends(void **state)
{
	struct err e;

	(void)state;
	row->directory(s);
	err_set(&e, ENOSPC, "no room");
	world.to.listening(world.ctx, &e);
	row->stop_accepting(s);
	fake_loop_advance(shared.loop, 3600 * 1000);
	assert_int_equal(world.made, 1);
}

static void connections_are_admitted_and_show_addresses(void **state)
{
	static const char *const ips[] = {"10.0.0.1", "fd00::1"};

	(void)state;
	row->directory(s);
	assert_null(world.to.admit(world.ctx, 7, 2));
	assert_string_equal(world.to.admit(world.ctx, 7, 3), "too many");
	world.to.addresses(world.ctx, ips, 2);
	assert_int_equal(world.addresses, 2);
}

static json_int_t waits_until(void)
{
	json_t *o = json_object();
	json_int_t until;

	row->dump(s, o);
	until = json_integer_value(json_object_get(json_object_get(o, "sockets"), "waits_until"));
	json_decref(o);
	return until;
}

/* It held much when the last worker was killed: served, and last. */
static void some_have_to_wait(void **state)
{
	(void)state;
	context.wait_s = 20;
	row->directory(s);
	assert_true(world.waits);
	world.to.listening(world.ctx, NULL);
	said("degraded: its connections wait: they held much when the last worker was killed; ");
	assert_int_equal(waits_until(), loop_now_ms(shared.loop) / 1000 + 20);
	assert_int_equal(row->count(s), 1);
	fake_loop_advance(shared.loop, 19999);
	assert_true(world.waits);
	fake_loop_advance(shared.loop, 1);
	assert_false(world.waits);
	said("fine; ");
	assert_int_equal(waits_until(), 0);
	assert_int_equal(row->count(s), 0);
}

static void ended_with_and_without_sockets(void **state)
{
	json_t *o = json_object();

	(void)state;
	row->stop_accepting(s);
	assert_false(world.stopped);
	row->dump(s, o);
	assert_int_equal(json_object_size(o), 0);
	row_stop(row, &s);
	assert_false(world.freed);
	s = row_start(row, &context);
	row->directory(s);
	row->stop_accepting(s);
	assert_true(world.stopped);
	row->dump(s, o);
	assert_string_equal(
	    json_string_value(json_object_get(json_object_get(o, "sockets"), "is")), "dumped");
	json_decref(o);
	row_stop(row, &s);
	assert_true(world.freed);
}

/* Whatever else is true of the pod. */
static void whether_its_envoy_can_come_is_told(void **state)
{
	const struct err host = {.code = 1, .msg = "of the node"};

	(void)state;
	row->directory(s);
	world.to.came(world.ctx, &host);
	world.to.came(world.ctx, NULL);
	assert_string_equal(world.said, "away: of the node; came; ");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(fine_when_both_listen),
	    TEST(sockets_are_asked_for_until_they_are_there),
	    TEST(not_while_the_worker_ends),
	    TEST(connections_are_admitted_and_show_addresses),
	    TEST(whether_its_envoy_can_come_is_told),
	    TEST(some_have_to_wait),
	    TEST(ended_with_and_without_sockets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
