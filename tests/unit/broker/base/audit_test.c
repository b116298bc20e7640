/* audit_test.c - real notices and timers: when it looks, counted; nothing waits for a minute.
 * LINK: tests/unit/broker/rig.c */
#include "broker/base/audit.h"
#include "tests/unit/broker/rig.h"
#include <poll.h>

struct world {
	struct broker_audit a;
	char dir[32];
	int looks;
	int unsettled; /* looks that will want another */
};

static bool look(void *ctx)
{
	struct world *w = ctx;

	w->looks++;
	return w->unsettled-- <= 0;
}

static int setup(void **state)
{
	static struct world w;
	struct err e;

	w = (struct world){.dir = "/tmp/auXXXXXX"};
	assert_non_null(mkdtemp(w.dir));
	w.a = (struct broker_audit){.epoll = broker_loop_new(), .due = look, .ctx = &w};
	assert_int_equal(broker_audit_open(&w.a, &e), 0);
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	broker_audit_close(&w->a);
	broker_audit_close(&w->a); /* twice is once */
	close(w->a.epoll);
	rig_shell("rm -rf %s", w->dir);
	return 0;
}

static void until(const struct world *w, int looks)
{
	while (w->looks < looks)
		broker_loop_turn(w->a.epoll, -1);
}

static bool is_noticed(const struct broker_audit *a)
{
	struct pollfd p = {.fd = a->watch.fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

/* What is there at the start is not known. */
static void test_it_looks_soon_after_it_is_opened(void **state)
{
	struct world *w = *state;

	until(w, 1);
	assert_true(broker_timer_is_set(&w->a.timer)); /* the minute */
}

static void test_what_comes_and_goes_is_looked_at(void **state)
{
	struct world *w = *state;

	broker_audit_directory(&w->a, w->dir);
	broker_audit_directory(&w->a, w->dir);
	until(w, 1);
	rig_shell("touch %s/a", w->dir);
	until(w, 2);
	rig_shell("mv %s/a %s/b", w->dir, w->dir);
	until(w, 3);
	rig_shell("rm %s/b", w->dir);
	until(w, 4);
	rig_shell("rmdir %s", w->dir);
	until(w, 5);
}

/* Else a change of ours would cost a look at all that there is. */
static void test_what_we_do_ourselves_is_no_notice(void **state)
{
	struct world *w = *state;

	broker_audit_directory(&w->a, w->dir);
	until(w, 1);
	broker_audit_own_begins(&w->a);
	rig_shell("touch %s/ours", w->dir);
	broker_audit_own_ends(&w->a);
	assert_false(is_noticed(&w->a));
	rig_shell("touch %s/theirs", w->dir);
	assert_true(is_noticed(&w->a));
	broker_audit_own_begins(&w->a);
	rig_shell("rm %s/ours", w->dir);
	broker_audit_own_ends(&w->a);
	until(w, 2);
}

/* However many there are until it looks. */
static void test_many_notices_are_one_look(void **state)
{
	struct world *w = *state;

	broker_audit_directory(&w->a, w->dir);
	until(w, 1);
	rig_shell("cd %s && touch $(seq 200)", w->dir);
	until(w, 2);
	broker_loop_turn(w->a.epoll, 0);
	assert_int_equal(w->looks, 2);
}

/* Between a notice and the look nothing wakes us: a storm of them costs nothing. */
static void test_a_storm_does_not_wake_it(void **state)
{
	struct world *w = *state;

	broker_audit_directory(&w->a, w->dir);
	until(w, 1);
	rig_shell("touch %s/a", w->dir);
	broker_loop_turn(w->a.epoll, -1); /* the notice */
	broker_timer_set(&w->a.timer, -1);
	rig_shell("touch %s/b", w->dir);
	for (int i = 0; i < RIG_TURNS; i++)
		broker_loop_turn(w->a.epoll, 0);
	assert_false(broker_timer_is_set(&w->a.timer));
	assert_int_equal(w->looks, 1);
}

static void test_what_is_not_settled_is_looked_at_again(void **state)
{
	struct world *w = *state;

	w->unsettled = 1;
	until(w, 2);
	assert_int_equal(w->unsettled, -1);
}

/* A service that is off has one that was never opened. */
static void test_one_that_is_not_open(void **state)
{
	struct broker_audit never = {0};

	(void)state;
	broker_audit_directory(&never, "/tmp");
	broker_audit_own_begins(&never);
	broker_audit_own_ends(&never);
	broker_audit_close(&never);
	assert_null(never.watch.ready);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(test_it_looks_soon_after_it_is_opened),
	    TEST(test_what_comes_and_goes_is_looked_at),
	    TEST(test_what_we_do_ourselves_is_no_notice),
	    TEST(test_many_notices_are_one_look),
	    TEST(test_a_storm_does_not_wake_it),
	    TEST(test_what_is_not_settled_is_looked_at_again),
	    cmocka_unit_test(test_one_that_is_not_open),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
