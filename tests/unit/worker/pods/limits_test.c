/* limits_test.c - the bucket, the verdicts, the counters.
 * LINK: tests/fake/loop.c tests/unit/worker/metrics_rig.c */
#include "base/loop.h"
#include "base/metrics.h"
#include "rpc/share.h"
#include "tests/fake/loop.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/pods/limits.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

static struct loop *loop;
static struct limits *limits;
static unsigned refills;

static void on_refilled(void *ctx)
{
	assert_ptr_equal(ctx, &refills);
	refills++;
}

static int setup(void **state)
{
	static const struct limits_values v = {.of = {[LIMIT_CONNECTIONS] = 2,
						   [LIMIT_REQUESTS] = 10,
						   [LIMIT_BURST] = 20,
						   [LIMIT_FDS] = 90}};

	(void)state;
	refills = 0;
	loop = fake_loop();
	limits = limits_new(loop, &v, on_refilled, &refills);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	limits_free(&limits);
	assert_int_equal(fake_loop_live(loop), 0);
	fake_loop_end(&loop);
	metrics_clear();
	return 0;
}

static json_int_t hits(const char *name)
{
	int64_t none[LIMIT_END] = {0};
	json_t *all = limits_dump(limits, none), *o;
	json_int_t n = -1;
	size_t i;

	json_array_foreach (all, i, o)
		if (!strcmp(json_string_value(json_object_get(o, "name")), name))
			n = json_integer_value(json_object_get(o, "hits"));
	json_decref(all);
	return n;
}

static enum limits_verdict spend(unsigned n)
{
	enum limits_verdict v = LIMITS_FINE;

	while (n-- > 0)
		v = limits_request(limits);
	return v;
}

/* A burst goes through; then reading stops, once, and goes on when there is room: nothing is lost.
 */
static void test_requests_wait(void **state)
{
	(void)state;
	assert_int_equal(spend(19), LIMITS_FINE);
	assert_int_equal(spend(1), LIMITS_WAIT);
	assert_int_equal(spend(5), LIMITS_WAIT); /* were asked for already */
	assert_int_equal(hits("requests"), 1);
	fake_loop_advance(loop, 550); /* five of them are still owed */
	assert_int_equal(refills, 0);
	fake_loop_advance(loop, 60);
	assert_int_equal(refills, 1);
	fake_loop_advance(loop, 10000); /* full again, and not fuller */
	assert_int_equal(refills, 1);
	assert_int_equal(spend(19), LIMITS_FINE);
	assert_int_equal(spend(1), LIMITS_WAIT);
	assert_int_equal(hits("requests"), 2);
}

/* A stepped clock fills nothing. */
static void test_wall_clock_does_not_matter(void **state)
{
	(void)state;
	spend(20);
	fake_loop_wall_step(loop, 3600 * 1000);
	fake_loop_advance(loop, 0);
	assert_int_equal(refills, 0);
	assert_int_equal(limits_attempt(limits), LIMITS_WAIT);
}

/* Calls that come all the same are refused; who goes on does not listen, and pays for it. */
static void test_calls_are_refused(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 20; i++)
		assert_int_equal(limits_attempt(limits), LIMITS_FINE);
	for (unsigned i = 0; i < 49; i++)
		assert_int_equal(limits_attempt(limits), LIMITS_WAIT);
	assert_int_equal(limits_attempt(limits), LIMITS_FLOOD);
	assert_int_equal(limits_attempt(limits), LIMITS_WAIT);
	assert_int_equal(hits("requests_burst"), 51);
	fake_loop_advance(loop, 2000); /* a burst of 20, at 10 a second */
	assert_int_equal(refills, 0);
	fake_loop_advance(loop, 200);
	assert_int_equal(refills, 1);
	assert_int_equal(limits_attempt(limits), LIMITS_FINE);
	for (unsigned i = 0; i < 2; i++)
		limits_attempt(limits);
	fake_loop_advance(loop, 200); /* without a flood it is over soon */
	assert_int_equal(refills, 2);
	assert_int_equal(limits_attempt(limits), LIMITS_FINE);
}

/* The node's bucket is empty, and so is the pod's share: what it asks for waits, a little at a
 * time. */
static void test_beyond_the_share(void **state)
{
	unsigned fine = 0;

	(void)state;
	limits_free(&limits);
	limits = limits_new(loop,
	    &(struct limits_values){.of = {[LIMIT_REQUESTS] = 100, [LIMIT_BURST] = 200}},
	    on_refilled, &refills);
	share_set(10);
	while (limits_attempt(limits) == LIMITS_FINE)
		fine++;
	assert_int_equal(fine, SHARE_BURST + 10 + 1); /* the last one found nothing left */
	assert_int_equal(hits("node_requests"), 1);
	fake_loop_advance(loop, 110);
	assert_int_equal(refills, 1);
	assert_int_equal(limits_attempt(limits), LIMITS_FINE);
	fake_loop_advance(loop, 60 * 1000);
	for (fine = 0; limits_connect(limits) == LIMITS_FINE;)
		fine++;
	assert_int_equal(fine, (SHARE_BURST + 10) / 4 + 1);
	share_set(0);
}

static void test_levels(void **state)
{
	(void)state;
	assert_true(limits_admit(limits, LIMIT_CONNECTIONS, 1));
	assert_int_equal(hits("connections"), 0);
	assert_false(limits_admit(limits, LIMIT_CONNECTIONS, 2));
	assert_int_equal(hits("connections"), 1);
}

/* The number of an fd tells how many are open. */
static void test_fd_reserve(void **state)
{
	struct rlimit most;

	(void)state;
	assert_return_code(getrlimit(RLIMIT_NOFILE, &most), 0);
	assert_true(limits_admit_fd(limits, (int)(most.rlim_cur / 100 * 90) - 1));
	assert_int_equal(hits("node_fds"), 0);
	assert_false(limits_admit_fd(limits, (int)(most.rlim_cur / 100 * 90)));
	assert_int_equal(hits("node_fds"), 1);
}

static void test_metric_is_the_nodes(void **state)
{
	(void)state;
	limits_hit(limits, LIMIT_SILENT);
	limits_hit(limits, LIMIT_SILENT);
	assert_metric("agentd_limit_hits_total{limit=\"silent_connection\"} 2\n");
}

static void test_dump(void **state)
{
	int64_t in_use[LIMIT_END];
	json_t *all, *first;

	(void)state;
	for (unsigned i = 0; i < LIMIT_END; i++)
		in_use[i] = -1;
	in_use[LIMIT_CONNECTIONS] = 1;
	all = limits_dump(limits, in_use);
	assert_int_equal(json_array_size(all), LIMIT_END);
	first = json_pack("{s:s, s:s, s:i, s:i, s:i}", "name", "connections", "unit", "", "limit",
	    2, "in_use", 1, "hits", 0);
	assert_true(json_equal(json_array_get(all, 0), first));
	assert_null(json_object_get(json_array_get(all, 1), "in_use"));
	json_decref(first);
	json_decref(all);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(test_requests_wait),
	    TEST(test_wall_clock_does_not_matter),
	    TEST(test_calls_are_refused),
	    TEST(test_beyond_the_share),
	    TEST(test_levels),
	    TEST(test_fd_reserve),
	    TEST(test_metric_is_the_nodes),
	    TEST(test_dump),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
