/* csr_pace_test.c - how many, when, and who first.
 *
 * LINK: tests/fake/loop.c
 */
#include "common/log.h"
#include "tests/fake/loop.h"
#include "worker/certs/csr_pace.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 100 };

static struct loop *loop;
static struct csr_pace *pace;
static struct csr_pace_turn turns[MANY];
static struct csr_pace_turn *went[2 * MANY];
static unsigned n;

static void begin(unsigned per_second)
{
	loop = fake_loop();
	pace = csr_pace_new(loop, per_second);
	memset(turns, 0, sizeof(turns));
	n = 0;
}

static void end(void)
{
	for (unsigned i = 0; i < MANY; i++)
		csr_pace_cancel(&turns[i]);
	csr_pace_free(&pace);
	assert_int_equal(fake_loop_live(loop), 0);
	fake_loop_end(&loop);
}

static void on_go(void *ctx)
{
	went[n++] = ctx;
}

static void take_turn(unsigned i, bool urgent)
{
	csr_pace_take(pace, &turns[i], urgent, on_go, &turns[i]);
}

static void a_burst_and_then_the_rate(void **state)
{
	(void)state;
	begin(10);
	for (unsigned i = 0; i < MANY; i++)
		take_turn(i, false);
	assert_int_equal(n, 0); /* R2 */
	fake_loop_advance(loop, 0);
	assert_int_equal(n, 20);
	for (unsigned second = 1; second <= 8; second++) {
		fake_loop_advance(loop, 1000);
		assert_int_equal(n, 20 + 10 * second);
	}
	for (unsigned i = 0; i < MANY; i++)
		assert_ptr_equal(went[i], &turns[i]); /* in order */
	fake_loop_advance(loop, 2000);
	assert_int_equal(fake_loop_live(loop), 0); /* full: no timer */
	end();
}

/* Neither a suspend nor a clock that is set gives turns away. */
static void the_wall_clock_does_not_count(void **state)
{
	(void)state;
	begin(1);
	for (unsigned i = 0; i < 10; i++)
		take_turn(i, false);
	fake_loop_advance(loop, 0);
	fake_loop_wall_step(loop, 48LL * 3600 * 1000);
	fake_loop_wall_step(loop, -96LL * 3600 * 1000);
	assert_int_equal(n, 2);
	fake_loop_advance(loop, 1000);
	assert_int_equal(n, 3);
	end();
}

static void the_urgent_go_first(void **state)
{
	(void)state;
	begin(1);
	for (unsigned i = 0; i < 6; i++)
		take_turn(i, i >= 3);
	fake_loop_advance(loop, 0);
	fake_loop_advance(loop, 1500);
	take_turn(6, true); /* and those that come later, too */
	fake_loop_advance(loop, 10000);
	const unsigned order[] = {3, 4, 5, 6, 0, 1, 2};
	assert_int_equal(n, 7);
	for (unsigned i = 0; i < 7; i++)
		assert_ptr_equal(went[i], &turns[order[i]]);
	end();
}

static void who_cancels_takes_nothing(void **state)
{
	(void)state;
	begin(1);
	for (unsigned i = 0; i < 5; i++)
		take_turn(i, false);
	csr_pace_cancel(&turns[0]);
	csr_pace_cancel(&turns[0]);
	csr_pace_cancel(&turns[3]);
	fake_loop_advance(loop, 0);
	assert_int_equal(n, 2);
	fake_loop_advance(loop, 1000);
	assert_int_equal(n, 3);
	assert_ptr_equal(went[2], &turns[4]);
	end();
}

static void on_go_again(void *ctx)
{
	struct csr_pace_turn *t = ctx;

	went[n++] = t;
	if (n < 8)
		csr_pace_take(pace, t, false, on_go_again, t);
	csr_pace_cancel(&turns[1]);
}

static void may_take_and_cancel_inside_go(void **state)
{
	(void)state;
	begin(1);
	csr_pace_take(pace, &turns[0], false, on_go_again, &turns[0]);
	take_turn(1, false);
	fake_loop_advance(loop, 0);
	assert_int_equal(n, 2);
	assert_ptr_equal(went[1], &turns[0]);
	fake_loop_advance(loop, 10000);
	assert_int_equal(n, 8);
	end();
}

/* Whoever waits would have been called by a pace that is no more. */
static void a_bug_of_ours_is_a_line_like_any_other(void **state)
{
	char said[4096];
	int pair[2], status;
	pid_t pid;

	(void)state;
	begin(1);
	take_turn(0, false);
	assert_int_equal(pipe(pair), 0);
	pid = fork();
	if (pid == 0) {
		signal(SIGABRT, SIG_DFL);
		dup2(pair[1], STDERR_FILENO);
		log_init(true);
		csr_pace_free(&pace);
		_exit(0);
	}
	close(pair[1]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	ssize_t got = read(pair[0], said, sizeof(said));
	assert_true(got > 2);
	close(pair[0]);
	assert_memory_equal(said, "{\"", 2);
	assert_memory_equal(said + got - 2, "}\n", 2);
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_burst_and_then_the_rate),
	    cmocka_unit_test(the_wall_clock_does_not_count),
	    cmocka_unit_test(the_urgent_go_first),
	    cmocka_unit_test(who_cancels_takes_nothing),
	    cmocka_unit_test(may_take_and_cancel_inside_go),
	    cmocka_unit_test(a_bug_of_ours_is_a_line_like_any_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
