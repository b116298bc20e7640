/* sockets_test.c - when a pod is said to be ready, and who is asked about its connections.
 *
 * LINK: tests/unit/worker/pod/row_rig.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "row_rig.h"
#include "worker/pod/redirect.h"
#include "worker/pod/rows.h"
#include "worker/pod/server.h"
#include "worker/pods/pod.h"
#include "worker/sockets/uds.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct pod pod = {.uid = {{1}}, .label = "demo/web"};
static const struct agent_shared shared;
static struct pod_context context = {.shared = &shared, .pod = &pod};
static const struct pod_service *const row = &pod_sockets_service;
static void *s;

static struct {
	bool holds;
	const struct err *why; /* the pod is not redirected */
	struct uds_events to;  /* NULLs: no sockets were asked for */
	void *ctx;
	bool stopped, freed;
	char said[256]; /* "ready; degraded: ...; not: ...; " */
	size_t addresses;
} world;

/* --- in place of the neighbours --- */

bool pod_redirect_holds(const struct pod_redirect *r)
{
	(void)r;
	return world.holds;
}

const struct err *pod_redirect_state(const struct pod_redirect *r)
{
	(void)r;
	return world.why;
}

static void say(const char *what, const char *why)
{
	size_t n = strlen(world.said);

	snprintf(world.said + n, sizeof(world.said) - n, "%s%s; ", what, why);
}

void pod_set_ready(struct pod *p, const struct err *why_not)
{
	assert_ptr_equal(p, &pod);
	say(why_not ? "not: " : "ready", why_not ? why_not->msg : "");
}

void pod_set_degraded(struct pod *p, const struct err *why)
{
	assert_ptr_equal(p, &pod);
	say("degraded: ", why->msg);
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
	assert_true(uuid_equal(&rig->pod, &pod.uid));
	world.to = *ev;
	world.ctx = ctx;
	return (struct uds *)&world;
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
	return json_string("dumped");
}

/* --- the tests --- */

static int setup(void **state)
{
	(void)state;
	memset(&world, 0, sizeof(world));
	s = row_start(row, &context);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &s);
	return 0;
}

static void said(const char *what)
{
	assert_string_equal(world.said, what);
	world.said[0] = '\0';
}

static void ready_when_both_listen(void **state)
{
	(void)state;
	row->directory(s);
	said("");
	world.to.listening(world.ctx, NULL);
	said("ready; ");
}

static void not_ready_without_sockets(void **state)
{
	struct err e;

	(void)state;
	err_set(&e, ERR_UNAVAILABLE, "no room");
	row->directory(s);
	world.to.listening(world.ctx, &e);
	said("not: no room; ");
	row->redirected(s); /* which does not make sockets */
	said("");
}

static void redirection_may_come_first_or_last(void **state)
{
	struct err e;

	(void)state;
	err_set(&e, ERR_UNAVAILABLE, "not redirected");
	row->redirected(s); /* before there are sockets nothing is said */
	said("");
	row->directory(s);
	world.why = &e;
	world.to.listening(world.ctx, NULL);
	said("degraded: not redirected; ");
	world.holds = true; /* strict */
	row->redirected(s);
	said("not: not redirected; ");
	world.holds = false;
	world.why = NULL;
	row->redirected(s);
	said("ready; ");
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
	assert_string_equal(json_string_value(json_object_get(o, "sockets")), "dumped");
	json_decref(o);
	row_stop(row, &s);
	assert_true(world.freed);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(ready_when_both_listen),
	    TEST(not_ready_without_sockets),
	    TEST(redirection_may_come_first_or_last),
	    TEST(connections_are_admitted_and_show_addresses),
	    TEST(ended_with_and_without_sockets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
