/* health_test.c - a machine's probe: when Envoy is asked, and what istiod is told.
 *
 * LINK: tests/fake/loop.c tests/unit/worker/pod/row_rig.c
 */
#include "base/metrics.h"
#include "common/mem.h"
#include "row_rig.h"
#include "tests/fake/loop.h"
#include "worker/ads/xds_proxy.h"
#include "worker/health/ask.h"
#include "worker/pod/rows.h"
#include "worker/pods/pod.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct pod pod = {.spec.label = "demo/vm"};
static struct agent_shared shared;
static struct pod_context context = {.shared = &shared, .pod = &pod};
static const struct pod_service *const row = &pod_health_service;
static void *s;
static struct node_settings settings;
static char told[200]; /* "healthy", or why not */
static unsigned tells, asks, cancels;

struct health_ask {
	struct health_ask **slot;
	health_answered done;
	void *ctx;
};
static struct health_ask asking;

/* --- in place of the neighbours --- */

void xds_proxy_health(struct xds_proxy *x, const char *why)
{
	(void)x;
	tells++;
	snprintf(told, sizeof(told), "%s", why ? why : "healthy");
}

const struct node_settings *node_settings(const struct node *n)
{
	(void)n;
	return &settings;
}

bool node_is_ipv6(const struct node *n)
{
	(void)n;
	return true;
}

void health_ask(
    struct health_ask **slot, const struct health_ask_options *o, health_answered done, void *ctx)
{
	assert_null(*slot);
	assert_true(o->ipv6);
	assert_int_equal(o->port, 15020);
	assert_int_equal(o->timeout_s, 3);
	assert_string_equal(o->route, PROBE_ASKED_ROUTE);
	asking = (struct health_ask){slot, done, ctx};
	*slot = &asking;
	asks++;
}

void health_ask_cancel(struct health_ask **slot)
{
	cancels += *slot != NULL;
	*slot = NULL;
}

static void answer(const char *why)
{
	assert_non_null(*asking.slot);
	*asking.slot = NULL;
	asking.done(asking.ctx, why);
}

/* --- the tests --- */

static int setup(void **state)
{
	(void)state;
	shared.loop = fake_loop();
	settings = (struct node_settings){.agent_port = 15020,
	    .probe = {.given = true,
		.delay_s = 5,
		.timeout_s = 3,
		.period_s = 10,
		.successes = 1,
		.failures = 2}};
	tells = asks = cancels = 0;
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

static void test_a_pod_without_a_probe_has_no_timer(void **state)
{
	(void)state;
	settings.probe.given = false;
	row->directory(s);
	assert_int_equal(fake_loop_live(shared.loop), 0);
	fake_loop_advance(shared.loop, 100000);
	assert_int_equal(asks, 0);
}

static void test_asked_after_the_delay_and_each_period(void **state)
{
	(void)state;
	row->directory(s);
	fake_loop_advance(shared.loop, 4999);
	assert_int_equal(asks, 0);
	fake_loop_advance(shared.loop, 1);
	assert_int_equal(asks, 1);
	fake_loop_advance(shared.loop, 2000);
	answer(NULL);
	fake_loop_advance(shared.loop, 7999);
	assert_int_equal(asks, 1); /* a period from the question, not from its answer */
	fake_loop_advance(shared.loop, 1);
	assert_int_equal(asks, 2);
	fake_loop_advance(shared.loop, 15000);
	assert_int_equal(asks, 2); /* never two at a time */
	answer(NULL);
	fake_loop_advance(shared.loop, 0);
	assert_int_equal(asks, 3);
}

/* Whatever the wall clock does. */
static void test_the_clock_is_set(void **state)
{
	(void)state;
	row->directory(s);
	fake_loop_advance(shared.loop, 5000);
	answer(NULL);
	fake_loop_wall_step(shared.loop, -3600 * 1000LL);
	fake_loop_advance(shared.loop, 10000);
	assert_int_equal(asks, 2);
	answer(NULL);
	fake_loop_wall_step(shared.loop, 25 * 3600 * 1000LL);
	fake_loop_advance(shared.loop, 9999);
	assert_int_equal(asks, 2);
	fake_loop_advance(shared.loop, 1);
	assert_int_equal(asks, 3);
}

static void next(const char *why)
{
	fake_loop_advance(shared.loop, 10000);
	answer(why);
}

static void test_istiod_is_told_changes(void **state)
{
	json_t *o = json_object(), *h;

	(void)state;
	row->directory(s);
	next(NULL);
	assert_int_equal(tells, 1);
	assert_string_equal(told, "healthy");
	next("refused");
	next(NULL);
	assert_int_equal(tells, 1); /* one failure is not two */
	next("refused");
	next("refused");
	assert_int_equal(tells, 2);
	assert_string_equal(told, "refused");
	row->dump(s, o);
	h = json_object_get(o, "health");
	assert_string_equal(json_string_value(json_object_get(h, "state")), "unhealthy");
	assert_string_equal(json_string_value(json_object_get(h, "why")), "refused");
	assert_int_equal(json_integer_value(json_object_get(h, "asked")), 5);
	assert_int_equal(json_integer_value(json_object_get(h, "failed")), 3);
	json_decref(o);
}

static void test_it_ends_while_it_asks(void **state)
{
	(void)state;
	row->directory(s);
	fake_loop_advance(shared.loop, 5000);
	row_stop(row, &s);
	assert_int_equal(cancels, 1);
	assert_int_equal(fake_loop_live(shared.loop), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_pod_without_a_probe_has_no_timer),
	    TEST(asked_after_the_delay_and_each_period),
	    TEST(the_clock_is_set),
	    TEST(istiod_is_told_changes),
	    TEST(it_ends_while_it_asks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
