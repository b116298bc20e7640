/* bootstrap_test.c - when Envoy's configuration is written, and when it must not be.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c tests/unit/worker/pod/row_rig.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "row_rig.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "worker/envoy/bootstrap.h"
#include "worker/istiod/istiod.h"
#include "worker/pod/redirect.h"
#include "worker/pod/rows.h"
#include "worker/pods/pod.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct {
	bool holds, same_addresses;
	int told;
} world;

/* --- in place of the neighbours --- */

bool pod_redirect_holds(const struct pod_redirect *r)
{
	(void)r;
	return world.holds;
}

char *bootstrap_render(const struct node *n, size_t *len)
{
	(void)n;
	*len = 2;
	return mem_strdup("{}");
}

void pod_tell_progress(struct pod_context *c)
{
	(void)c;
	world.told++;
}

bool node_set_addresses(struct node *n, const char *const *ips, size_t count)
{
	(void)n;
	assert_string_equal(ips[count - 1], "10.0.0.1");
	return !world.same_addresses;
}

const char *node_id(const struct node *n)
{
	(void)n;
	return "sidecar~10.0.0.1";
}

const json_t *node_leftovers(const struct node *n)
{
	static json_t *o;

	(void)n;
	json_decref(o);
	return o = json_pack("{s:[s]}", "ignored", "X");
}

const struct node_settings *node_settings(const struct node *n)
{
	static struct node_settings s = {.agent_port = 15020};

	(void)n;
	json_decref(s.scrapes);
	json_decref(s.probers);
	json_decref(s.collectors);
	s.scrapes = json_pack("[{s:i, s:s}]", "port", 9090, "path", "/metrics");
	s.probers = json_pack("[{s:s, s:s, s:i, s:s}]", "route", "/app-health/a/livez", "kind",
	    "http", "port", 80, "path", "/x");
	s.collectors = json_pack("{s:{s:s, s:i}}", "zipkin", "host", "zipkin", "port", 9411);
	return &s;
}

const struct istiod_options *istiod_options(const struct istiod *i)
{
	static const struct istiod_options options = {.name = "istiod"};

	(void)i;
	return &options;
}

/* --- the tests --- */

static struct agent_shared shared;
static const struct plane plane;
static struct pod pod = {.spec.uid = {{1}}};
static struct pod_context context = {.shared = &shared, .plane = &plane, .pod = &pod};
static const struct pod_service *const row = &pod_bootstrap_service;
static const char *const ips[] = {"10.0.0.1"};
static void *b;

static int setup(void **state)
{
	(void)state;
	memset(&world, 0, sizeof(world));
	shared = (struct agent_shared){.loop = fake_loop(), .link = fake_link()};
	b = row_start(row, &context);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &b);
	link_free(&shared.link);
	fake_loop_end(&shared.loop);
	return 0;
}

static int written(void)
{
	return fake_link_writes(shared.link, &pod.spec.uid, LINK_FILE_BOOTSTRAP);
}

static void answer(const char *why)
{
	fake_link_wrote(shared.link, &pod.spec.uid, LINK_FILE_BOOTSTRAP, why);
}

/* "": there is no reason. */
static enum pod_progress progress(const char *why)
{
	const struct err *e = NULL;
	enum pod_progress p = row->progress(b, &e);

	assert_true(e ? *why && strstr(e->msg, why) : !*why);
	return p;
}

static void written_with_the_directory(void **state)
{
	(void)state;
	row->redirected(b); /* too early: there is nowhere to write */
	row->addresses(b, ips, 1);
	assert_int_equal(written(), 0);
	row->directory(b);
	assert_int_equal(written(), 1);
}

static void a_held_pod_waits_for_its_rules(void **state)
{
	(void)state;
	world.holds = true;
	row->directory(b);
	row->addresses(b, ips, 1);
	row->redirected(b); /* refused: it stays held */
	assert_int_equal(written(), 0);
	world.holds = false;
	row->redirected(b);
	assert_int_equal(written(), 1);
}

static void written_again_for_other_addresses(void **state)
{
	(void)state;
	row->directory(b);
	row->addresses(b, ips, 1);
	assert_int_equal(written(), 2);
	world.same_addresses = true;
	row->addresses(b, ips, 1);
	assert_int_equal(written(), 2);
}

/* Never forgotten, ever more rarely, and with the content of then. */
static void a_refused_write_is_repeated(void **state)
{
	(void)state;
	assert_int_equal(progress(""), POD_FINE);
	row->directory(b);
	assert_int_equal(progress(""), POD_BEGINS);
	for (int i = 1; i <= 10; i++) {
		assert_int_equal(written(), i);
		answer("no room");
		assert_int_equal(world.told, i);
		assert_int_equal(progress("no room"), POD_HELD);
		fake_loop_advance(shared.loop, 10 * 1000); /* 8 s and a fifth, at most */
		assert_int_equal(progress("no room"), POD_HELD);
	}
	answer(NULL);
	assert_int_equal(progress(""), POD_FINE);
	fake_loop_advance(shared.loop, 3600 * 1000);
	assert_int_equal(written(), 11);
}

/* Who has an old one may start. */
static void an_old_one_is_better_than_none(void **state)
{
	(void)state;
	row->directory(b);
	answer(NULL);
	row->addresses(b, ips, 1);
	assert_int_equal(progress(""), POD_FINE);
	answer("no room");
	assert_int_equal(progress("no room"), POD_DEGRADED);
	row->addresses(b, ips, 1); /* the newest one is what is written, at once */
	assert_int_equal(written(), 3);
	answer(NULL);
	assert_int_equal(progress(""), POD_FINE);
	fake_loop_advance(shared.loop, 3600 * 1000);
	assert_int_equal(written(), 3);
}

static void what_was_removed_is_written_again(void **state)
{
	(void)state;
	row->lost(b, 1U << LINK_FILE_BOOTSTRAP); /* it never was */
	assert_int_equal(written(), 0);
	row->directory(b);
	answer(NULL);
	row->lost(b, 1U << LINK_FILE_ROOT);
	assert_int_equal(written(), 1);
	row->lost(b, 1U << LINK_FILE_BOOTSTRAP);
	assert_int_equal(written(), 2);
}

static void dumped(void **state)
{
	json_t *o = json_object();
	auto_free char *text = NULL;

	(void)state;
	row->dump(b, o);
	text = json_dumps(o, JSON_COMPACT);
	assert_string_equal(text, "{\"node_id\":\"sidecar~10.0.0.1\",\"control_plane\":\"istiod\","
				  "\"status_port\":{\"port\":15020,\"scrapes\":[\"9090/metrics\"],"
				  "\"rewritten_probes\":[\"/app-health/a/livez: http 80/x\"]},"
				  "\"sends_to\":{\"zipkin\":\"zipkin:9411\"},\"ignored\":[\"X\"]}");
	json_decref(o);
	json_decref((json_t *)node_leftovers(NULL));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(written_with_the_directory),
	    TEST(a_held_pod_waits_for_its_rules),
	    TEST(written_again_for_other_addresses),
	    TEST(a_refused_write_is_repeated),
	    TEST(an_old_one_is_better_than_none),
	    TEST(what_was_removed_is_written_again),
	    TEST(dumped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
