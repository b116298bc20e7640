/* fake_loop_test.c - the stand-in itself: it must keep the contract of base/loop.h, or every
 * test that runs on it proves nothing.
 * LINK: tests/fake/loop.c
 */
#include "tests/fake/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static struct loop *l;
static char order[64];
static int64_t fired_at;

static int setup(void **state)
{
	(void)state;
	order[0] = '\0';
	l = fake_loop();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fake_loop_end(&l);
	return l ? -1 : 0;
}

static void note(void *ctx)
{
	strcat(order, ctx);
	fired_at = loop_now_ms(l);
}

static void test_time_is_the_tests(void **state)
{
	struct loop_timer a = {0};
	struct loop_timer b = {0};
	struct loop_timer c = {0};

	(void)state;
	assert_int_equal(loop_now_ms(l), 1700000000000);
	loop_timer_in(l, &a, 1000, note, "a");
	loop_timer_at(l, &b, 1700000000500, note, "b");
	loop_timer_in(l, &c, 1000, note, "c"); /* due with `a`, set later */
	fake_loop_advance(l, 499);
	assert_string_equal(order, "");
	fake_loop_advance(l, 1);
	assert_string_equal(order, "b");
	assert_int_equal(fake_loop_live(l), 2);
	fake_loop_advance(l, 10000);
	assert_string_equal(order, "bac");
	assert_int_equal(fired_at, 1700000001000);
	assert_int_equal(loop_now_ms(l), 1700000010500);
	assert_int_equal(fake_loop_live(l), 0);
}

/* Only wall timers feel a step, and those in the past fire. */
static void test_wall_step(void **state)
{
	struct loop_timer wall = {0};
	struct loop_timer relative = {0};

	(void)state;
	loop_timer_at(l, &wall, loop_now_ms(l) + 5000, note, "w");
	loop_timer_in(l, &relative, 3000, note, "r");
	fake_loop_wall_step(l, -3600000);
	fake_loop_advance(l, 4000);
	assert_string_equal(order, "r");
	fake_loop_wall_step(l, 3600000 + 1000);
	assert_string_equal(order, "rw");
}

static struct loop_work *work;

static void on_done(void *ctx)
{
	assert_null(work);
	note(ctx);
}

static void post_once_more(void *ctx)
{
	note("p");
	loop_post(l, note, ctx);
}

static void test_nothing_runs_inside_the_call(void **state)
{
	(void)state;
	loop_post(l, post_once_more, "q");
	loop_work(l, &work, note, on_done, "w");
	assert_non_null(work);
	assert_string_equal(order, "");
	assert_int_equal(fake_loop_live(l), 2);
	fake_loop_advance(l, 0);
	assert_string_equal(order, "pqww");
	loop_work(l, &work, note, on_done, "x");
	loop_work_cancel(&work);
	assert_null(work);
	loop_work_cancel(&work);
	fake_loop_advance(l, 0);
	assert_string_equal(order, "pqww");
}

static int peer[2];
static struct loop_fd readable;

static void read_one(void *ctx)
{
	char c;

	assert_int_equal(read(peer[0], &c, 1), 1);
	note(ctx);
	if (c == '.')
		loop_fd_stop(&readable);
}

static void test_fds_are_polled(void **state)
{
	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, peer), 0);
	loop_fd_watch(l, &readable, peer[0], LOOP_READ, read_one, "r");
	fake_loop_advance(l, 0);
	assert_string_equal(order, "");
	assert_int_equal(write(peer[1], "ab.c", 4), 4);
	fake_loop_advance(l, 0);
	assert_string_equal(order, "rrr"); /* level-triggered until stopped */
	loop_fd_stop(&readable);
	close(peer[0]);
	close(peer[1]);
}

static void stop(void *ctx)
{
	note(ctx);
	loop_stop(l);
}

static void test_run_jumps_until_stop(void **state)
{
	struct loop_timer t = {0};

	(void)state;
	loop_timer_in(l, &t, 86400000, stop, "s");
	loop_run(l);
	assert_string_equal(order, "s");
	assert_int_equal(loop_now_ms(l), 1700086400000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_time_is_the_tests, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_wall_step, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_nothing_runs_inside_the_call, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_fds_are_polled, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_run_jumps_until_stop, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
