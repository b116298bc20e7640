/* loop_test.c - the real loop, with the kernel's clocks behind a curtain: time passes here only
 * where the loop sleeps or a test says so.  epoll_wait() below moves the clock to what is due first
 * instead of sleeping; it waits for what other threads do, and for nothing else.
 * LINK: tests/unit/base/loop_rig.c
 */
#include "base/loop.h"
#include "loop_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/err.h"

static struct loop *l;
static _Atomic int64_t uptime_ms, wall_offset_ms;
static int64_t alarm_ms; /* of the wall clock; 0: none */
static int wall_fd = -1;
static int wall_flags;
static int sleeps;
static int last_timeout;

/* ---- the curtain ---- */

static int64_t wall_ms(void)
{
	return uptime_ms + wall_offset_ms;
}

static void pass(int64_t ms)
{
	uptime_ms += ms;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	const bool wall = id == CLOCK_REALTIME;
	const int64_t ms = wall ? wall_ms() : uptime_ms;

	if (!wall && id != CLOCK_MONOTONIC && id != CLOCK_MONOTONIC_COARSE)
		return (int)syscall(SYS_clock_gettime, id, t);
	*t = (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	return 0;
}

static const struct itimerspec at_once = {.it_value = {.tv_nsec = 1}};

int timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *old)
{
	const struct itimerspec never = {0};

	wall_fd = fd;
	wall_flags = flags;
	alarm_ms = (int64_t)at->it_value.tv_sec * 1000 + at->it_value.tv_nsec / 1000000;
	return (int)syscall(SYS_timerfd_settime, fd, 0, &never, old);
}

/* The alarm goes off, once, if it is due; until then the kernel's timer is disarmed. */
static bool ring(void)
{
	if (!alarm_ms || alarm_ms > wall_ms())
		return false;
	alarm_ms = 0;
	syscall(SYS_timerfd_settime, wall_fd, TFD_TIMER_ABSTIME, &at_once, NULL);
	return true;
}

int epoll_wait(int epfd, struct epoll_event *events, int max, int timeout)
{
	const int64_t until_alarm = alarm_ms ? alarm_ms - wall_ms() : INT64_MAX;
	int n;

	sleeps++;
	last_timeout = timeout;
	n = (int)syscall(SYS_epoll_wait, epfd, events, max, ring() ? -1 : 0);
	if (n || timeout == 0)
		return n;
	if (timeout > 0 && timeout <= until_alarm) {
		pass(timeout);
		return 0;
	}
	if (alarm_ms)
		pass(until_alarm);
	ring();
	return (int)syscall(SYS_epoll_wait, epfd, events, max, -1);
}

/* What the kernel does to a cancel-on-set timer when somebody sets the clock: the fd becomes
 * readable at once, whatever time it was armed for. */
static void set_clock(int64_t by_ms)
{
	wall_offset_ms += by_ms;
	assert_int_equal(wall_flags, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET);
	syscall(SYS_timerfd_settime, wall_fd, TFD_TIMER_ABSTIME, &at_once, NULL);
}

/* ---- tools ---- */

static char order[256];

static void note(void *ctx)
{
	strcat(order, ctx);
}

static void stop(void *ctx)
{
	(void)ctx;
	loop_stop(l);
}

static int setup(void **state)
{
	struct err e;

	(void)state;
	uptime_ms = 1000 * 1000;
	wall_offset_ms = INT64_C(1700000000000);
	order[0] = '\0';
	l = loop_new(&e);
	return l ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	loop_free(&l);
	return l ? -1 : 0;
}

/* ---- timers ---- */

static void test_relative_timers_fire_in_order(void **state)
{
	struct loop_timer a = {0};
	struct loop_timer b = {0};
	struct loop_timer c = {0};
	struct loop_timer d = {0};

	(void)state;
	loop_timer_in(l, &a, 30, note, "a");
	loop_timer_in(l, &b, 10, note, "b");
	loop_timer_in(l, &c, 0, note, "c");
	loop_timer_in(l, &d, 10, note, "d");
	assert_string_equal(order, "");
	loop_timer_stop(&d);
	loop_timer_stop(&d);
	run_ms(l, 50);
	assert_string_equal(order, "cba");
	assert_false(a.armed || b.armed || c.armed || d.armed);
	run_ms(l, 20); /* one-shot */
	assert_string_equal(order, "cba");
}

static void test_setting_an_armed_timer_moves_it(void **state)
{
	struct loop_timer a = {0};
	struct loop_timer b = {0};

	(void)state;
	loop_timer_in(l, &a, 1, note, "x");
	loop_timer_in(l, &a, 20, note, "a");
	loop_timer_at(l, &b, loop_now_ms(l), note, "x");
	loop_timer_in(l, &b, 10, note, "b"); /* from one clock to the other */
	loop_timer_in(l, &a, 20, note, "x");
	loop_timer_at(l, &a, loop_now_ms(l) + 20, note, "a");
	run_ms(l, 400);
	assert_string_equal(order, "ba");
}

static void test_wall_timers_fire_in_order(void **state)
{
	struct loop_timer t[5] = {0};
	int64_t now = loop_now_ms(l);

	(void)state;
	loop_timer_at(l, &t[0], now + 30, note, "d");
	loop_timer_at(l, &t[1], now + 10, note, "b");
	loop_timer_at(l, &t[2], now - 5000, note, "a"); /* past: soon, not now */
	loop_timer_at(l, &t[3], now + 20, note, "x");
	loop_timer_at(l, &t[4], now + 10, note, "c"); /* set later, due together: fires later */
	assert_string_equal(order, "");
	loop_timer_stop(&t[3]);
	run_ms(l, 50);
	assert_string_equal(order, "abcd");
}

static void test_odd_times(void **state)
{
	struct loop_timer zero = {0};
	struct loop_timer negative = {0};
	struct loop_timer never = {0};
	struct loop_timer minus = {0};

	(void)state;
	loop_timer_at(l, &negative, -77, note, "n");
	loop_timer_at(l, &zero, 0, note, "z");
	loop_timer_at(l, &never, INT64_MAX, note, "x");
	loop_timer_in(l, &minus, -5, note, "m");
	run_ms(l, 20);
	assert_non_null(strchr(order, 'n'));
	assert_non_null(strchr(order, 'z'));
	assert_non_null(strchr(order, 'm'));
	assert_null(strchr(order, 'x'));
	loop_timer_stop(&never);
}

/* threats-and-faults.md 0.5: what became due by a step or a suspend fires at once. */
static void test_clock_set_forward(void **state)
{
	struct loop_timer hour = {0};
	struct loop_timer day = {0};

	(void)state;
	loop_timer_at(l, &hour, loop_now_ms(l) + 3600 * 1000, note, "h");
	loop_timer_at(l, &day, loop_now_ms(l) + 86400 * 1000, note, "d");
	set_clock(7200 * 1000);
	run_ms(l, 20);
	assert_string_equal(order, "h");
	set_clock(100000 * 1000LL);
	run_ms(l, 20);
	assert_string_equal(order, "hd");
}

static void test_clock_set_back(void **state)
{
	struct loop_timer wall = {0};
	struct loop_timer relative = {0};

	(void)state;
	loop_timer_at(l, &wall, loop_now_ms(l) + 20, note, "w");
	loop_timer_in(l, &relative, 20, note, "r");
	set_clock(-3600 * 1000);
	run_ms(l, 60);
	assert_string_equal(order, "r"); /* monotonic time does not care */
	set_clock(3600 * 1000);
	run_ms(l, 20);
	assert_string_equal(order, "rw");
	/* A wake-up that finds nothing due sets the alarm again. */
	loop_timer_at(l, &wall, loop_now_ms(l) + 20, note, "s");
	set_clock(-10);
	run_ms(l, 60);
	assert_string_equal(order, "rws");
}

static struct loop_clock clocks[3];

static void stop_two(void *ctx)
{
	note(ctx);
	loop_clock_stop(&clocks[1]);
	loop_clock_stop(&clocks[0]);
}

static void test_clock_steps_are_told(void **state)
{
	(void)state;
	order[0] = '\0';
	loop_clock_watch(l, &clocks[0], stop_two, "a");
	loop_clock_watch(l, &clocks[1], note, "b");
	loop_clock_watch(l, &clocks[2], note, "c");
	run_ms(l, 20);
	set_clock(500); /* no step, but a clock that is kept right */
	run_ms(l, 20);
	assert_string_equal(order, "");
	set_clock(-3600 * 1000);
	run_ms(l, 20);
	assert_string_equal(order, "ac");
	set_clock(3600 * 1000);
	run_ms(l, 20);
	assert_string_equal(order, "acc");
	loop_clock_stop(&clocks[2]);
	loop_clock_stop(&clocks[2]);
	assert_int_equal(alarm_ms, 0); /* nobody wants to know */
}

static struct loop_timer other;

static void stop_other(void *ctx)
{
	note(ctx);
	loop_timer_stop(&other);
}

static struct loop_timer again;

static void set_again(void *ctx)
{
	note(ctx);
	if (strlen(order) < 3)
		loop_timer_at(l, &again, loop_now_ms(l), set_again, ctx);
}

static void test_timers_within_callbacks(void **state)
{
	struct loop_timer a = {0};

	(void)state;
	loop_timer_at(l, &a, 1000, stop_other, "a");
	loop_timer_at(l, &other, 1001, note, "x");
	loop_timer_at(l, &again, 1002, set_again, "g");
	run_ms(l, 20);
	assert_string_equal(order, "agg");
}

static void spin_past(void *ctx)
{
	(void)ctx;
	pass(1);
	loop_timer_at(l, &again, 1000, spin_past, NULL);
}

/* A timer that is always due must not keep others from their turn. */
static void test_due_timers_do_not_starve_the_rest(void **state)
{
	(void)state;
	loop_timer_at(l, &again, 1000, spin_past, NULL);
	loop_post(l, note, "p");
	run_ms(l, 5);
	assert_string_equal(order, "p");
	loop_timer_stop(&again);
}

static void test_idle_means_asleep(void **state)
{
	struct loop_timer far = {0};
	int pipefd[2];
	struct loop_fd w = {0};
	struct loop_timer stopped = {0};

	(void)state;
	assert_int_equal(pipe2(pipefd, O_CLOEXEC), 0);
	loop_fd_watch(l, &w, pipefd[0], LOOP_READ, note, "x");
	loop_timer_at(l, &far, loop_now_ms(l) + 86400 * 1000, note, "x");
	loop_timer_at(l, &stopped, loop_now_ms(l) + 30, note, "x");
	loop_timer_stop(&stopped);
	loop_post(l, note, "p"); /* a wake-up must not leave the loop awake */
	run_ms(l, 1);
	assert_string_equal(order, "p");
	sleeps = 0;
	run_ms(l, 150);
	assert_int_equal(sleeps, 1);
	/* Without even that timer: no timeout at all. */
	loop_post(l, stop, NULL);
	loop_run(l);
	assert_int_equal(last_timeout, -1);
	loop_fd_stop(&w);
	loop_timer_stop(&far);
	close(pipefd[0]);
	close(pipefd[1]);
}

/* ---- posts ---- */

enum { POSTERS = 4, POSTS = 5000 };
static unsigned next_of[POSTERS];
static unsigned arrived;

struct numbered {
	unsigned poster, number;
};
static struct numbered numbered[POSTERS][POSTS];

static void on_numbered(void *ctx)
{
	const struct numbered *n = ctx;

	assert_int_equal(n->number, next_of[n->poster]++);
	if (++arrived == POSTERS * POSTS)
		loop_stop(l);
}

static void *post_many(void *ctx)
{
	unsigned poster = (unsigned)(uintptr_t)ctx;

	for (unsigned i = 0; i < POSTS; i++) {
		numbered[poster][i] = (struct numbered){poster, i};
		loop_post(l, on_numbered, &numbered[poster][i]);
	}
	return NULL;
}

static void test_posts_of_many_threads(void **state)
{
	pthread_t posters[POSTERS];

	(void)state;
	arrived = 0;
	memset(next_of, 0, sizeof(next_of));
	for (uintptr_t i = 0; i < POSTERS; i++)
		pthread_create(&posters[i], NULL, post_many, (void *)i);
	loop_run(l);
	for (int i = 0; i < POSTERS; i++)
		pthread_join(posters[i], NULL);
	assert_int_equal(arrived, POSTERS * POSTS);
}

static void post_note(void *ctx)
{
	loop_post(l, note, ctx);
	note("1");
}

static void test_post_is_never_inside(void **state)
{
	(void)state;
	loop_post(l, post_note, "2");
	loop_post(l, post_note, "3");
	assert_string_equal(order, "");
	run_ms(l, 5);
	assert_string_equal(order, "1123"); /* what a post posts waits for the next round */
	loop_post(l, note, "dropped by loop_free, and not leaked");
}

static void test_stop_before_run(void **state)
{
	(void)state;
	loop_stop(l);
	loop_run(l);  /* returns at once */
	run_ms(l, 5); /* and the next run is a run */
	loop_post(l, note, "a");
	run_ms(l, 5);
	assert_string_equal(order, "a");
}

/* ---- fds ---- */

static struct loop_fd readable;
static int ready_count;

static void on_ready(void *ctx)
{
	(void)ctx;
	if (++ready_count == 3)
		loop_fd_stop(&readable); /* R5 */
}

static void test_fds_are_level_triggered(void **state)
{
	int pipefd[2];
	struct loop_fd writable = {0};

	(void)state;
	ready_count = 0;
	assert_int_equal(pipe2(pipefd, O_CLOEXEC), 0);
	loop_fd_watch(l, &readable, pipefd[0], LOOP_READ, on_ready, NULL);
	run_ms(l, 10);
	assert_int_equal(ready_count, 0);
	assert_int_equal(write(pipefd[1], "x", 1), 1);
	run_ms(l, 10); /* nobody reads: it stays ready */
	assert_int_equal(ready_count, 3);
	loop_fd_stop(&readable);
	loop_fd_watch(l, &writable, pipefd[1], LOOP_READ, note, "x");
	loop_fd_watch(l, &writable, pipefd[1], LOOP_WRITE, stop, NULL); /* instead of the first */
	loop_run(l);
	loop_fd_stop(&writable);
	assert_string_equal(order, "");
	close(pipefd[0]);
	close(pipefd[1]);
}

static void test_sigpipe_is_ignored(void **state)
{
	int pipefd[2];

	(void)state;
	assert_int_equal(pipe2(pipefd, O_CLOEXEC), 0);
	close(pipefd[0]);
	assert_int_equal(write(pipefd[1], "x", 1), -1);
	assert_int_equal(errno, EPIPE);
	close(pipefd[1]);
}

/* ---- work ---- */

struct task {
	struct loop_work *work;
	pthread_t job_thread, done_thread;
	sigset_t job_signals;
	int jobs, dones;
	bool slot_was_null;
	sem_t begun, may_end;
};

static void job(void *ctx)
{
	struct task *t = ctx;

	sem_post(&t->begun);
	t->job_thread = pthread_self();
	pthread_sigmask(SIG_SETMASK, NULL, &t->job_signals);
	t->jobs++;
	sem_wait(&t->may_end);
}

static void done(void *ctx)
{
	struct task *t = ctx;

	t->done_thread = pthread_self();
	t->slot_was_null = t->work == NULL;
	t->dones++;
	loop_stop(l);
}

/* Its job ends when `may_end` says so. */
static void start(struct task *t, unsigned may_end, loop_cb on_done)
{
	sem_init(&t->begun, 0, 0);
	sem_init(&t->may_end, 0, may_end);
	loop_work(l, &t->work, job, on_done, t);
}

/* Jobs run one after the other: when this one has begun, those before it are finished. */
static void wait_for_jobs(void)
{
	struct task last = {0};

	start(&last, 1, done);
	sem_wait(&last.begun);
	loop_work_cancel(&last.work);
}

static void test_work_and_done(void **state)
{
	struct task t = {0};

	(void)state;
	start(&t, 1, done);
	assert_non_null(t.work);
	wait_for_jobs();
	assert_int_equal(t.dones, 0); /* R2: not before the loop runs */
	loop_run(l);
	assert_int_equal(t.jobs, 1);
	assert_int_equal(t.dones, 1);
	assert_true(t.slot_was_null); /* R3 */
	assert_false(pthread_equal(t.job_thread, pthread_self()));
	assert_true(pthread_equal(t.done_thread, pthread_self()));
	/* No signal handler or default action on a thread of ours. */
	assert_true(sigismember(&t.job_signals, SIGTERM));
	assert_true(sigismember(&t.job_signals, SIGUSR1));
	loop_work_cancel(&t.work); /* R4 */
}

static void test_cancel_of_queued_work(void **state)
{
	struct task first = {0};
	struct task second = {0};

	(void)state;
	start(&first, 0, done);
	start(&second, 1, done);
	loop_work_cancel(&second.work);
	assert_null(second.work);
	sem_post(&first.may_end);
	loop_run(l);
	wait_for_jobs();
	run_ms(l, 10);
	assert_int_equal(first.dones, 1);
	assert_int_equal(second.jobs, 0);
	assert_int_equal(second.dones, 0);
}

/* ---- a thread that lets a job end when the test's own thread waits for it ---- */

struct releaser {
	pthread_t thread;
	struct task *task;
	pid_t waiting; /* the test's own thread */
	sem_t go;
	_Atomic bool released;
};

/* "<tid> (<name>) S ...": asleep */
static bool is_asleep(pid_t tid)
{
	char path[64], text[512];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	return strstr(text, ") S ") != NULL;
}

static void *release(void *ctx)
{
	struct releaser *r = ctx;

	sem_wait(&r->go);
	while (!is_asleep(r->waiting))
		sched_yield();
	r->released = true;
	sem_post(&r->task->may_end);
	return NULL;
}

static void start_releaser(struct releaser *r, struct task *t)
{
	*r = (struct releaser){.task = t, .waiting = gettid()};
	sem_init(&r->go, 0, 0);
	pthread_create(&r->thread, NULL, release, r);
}

static void test_cancel_waits_for_running_work(void **state)
{
	struct task t = {0};
	struct releaser r;

	(void)state;
	start(&t, 0, done);
	start_releaser(&r, &t);
	sem_wait(&t.begun);
	sem_post(&r.go);
	loop_work_cancel(&t.work);
	assert_true(r.released); /* it came back after the job did, so `t` may go now */
	run_ms(l, 10);
	assert_int_equal(t.dones, 0); /* R1 */
	pthread_join(r.thread, NULL);
}

static void test_cancel_of_finished_work(void **state)
{
	struct task t = {0};

	(void)state;
	start(&t, 1, done);
	wait_for_jobs(); /* finished, and its `done` waits for the loop */
	loop_work_cancel(&t.work);
	run_ms(l, 10);
	assert_int_equal(t.jobs, 1);
	assert_int_equal(t.dones, 0);
}

static struct task pair[2];

static void cancel_the_other(void *ctx)
{
	struct task *t = ctx;

	t->dones++;
	loop_work_cancel(&pair[t == &pair[0]].work);
}

static void test_done_cancels_other_done(void **state)
{
	(void)state;
	memset(pair, 0, sizeof(pair));
	for (int i = 0; i < 2; i++)
		start(&pair[i], 1, cancel_the_other);
	wait_for_jobs();
	run_ms(l, 10);
	assert_int_equal(pair[0].dones + pair[1].dones, 1);
	assert_null(pair[0].work);
	assert_null(pair[1].work);
}

static void test_free_with_work_under_way(void **state)
{
	struct task running = {0};
	struct task queued = {0};
	struct releaser r;

	(void)state;
	start(&running, 0, done);
	start(&queued, 1, done);
	start_releaser(&r, &running);
	sem_wait(&running.begun);
	sem_post(&r.go);
	loop_free(&l); /* joins the thread; nothing is delivered */
	pthread_join(r.thread, NULL);
	assert_int_equal(running.jobs, 1);
	assert_int_equal(queued.jobs, 0);
	assert_int_equal(running.dones + queued.dones, 0);
	assert_null(running.work);
	assert_null(queued.work);
}

/* ---- the gauge ---- */

static void take_25_ms(void *ctx)
{
	(void)ctx;
	pass(25);
}

static void forget_stalls(void)
{
	pass(120 * 1000);
	assert_int_equal(loop_stall_ms(l), 0);
}

static void test_stall_of_each_kind(void **state)
{
	struct loop_timer t = {0};

	(void)state;
	loop_post(l, take_25_ms, NULL);
	run_ms(l, 5);
	assert_int_equal(loop_stall_ms(l), 25);
	forget_stalls();
	loop_timer_in(l, &t, 0, take_25_ms, NULL);
	run_ms(l, 5);
	assert_int_equal(loop_stall_ms(l), 25);
	forget_stalls();
	loop_timer_at(l, &t, 1, take_25_ms, NULL);
	run_ms(l, 5);
	assert_int_equal(loop_stall_ms(l), 25);
	pass(61 * 1000); /* the minute before; looking changes nothing */
	assert_int_equal(loop_stall_ms(l), 25);
	assert_int_equal(loop_stall_ms(l), 25);
	pass(61 * 1000);
	assert_int_equal(loop_stall_ms(l), 0);
}

int main(void)
{
#define LOOP_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    LOOP_TEST(test_relative_timers_fire_in_order),
	    LOOP_TEST(test_setting_an_armed_timer_moves_it),
	    LOOP_TEST(test_wall_timers_fire_in_order),
	    LOOP_TEST(test_odd_times),
	    LOOP_TEST(test_clock_set_forward),
	    LOOP_TEST(test_clock_set_back),
	    LOOP_TEST(test_clock_steps_are_told),
	    LOOP_TEST(test_timers_within_callbacks),
	    LOOP_TEST(test_due_timers_do_not_starve_the_rest),
	    LOOP_TEST(test_idle_means_asleep),
	    LOOP_TEST(test_posts_of_many_threads),
	    LOOP_TEST(test_post_is_never_inside),
	    LOOP_TEST(test_stop_before_run),
	    LOOP_TEST(test_fds_are_level_triggered),
	    LOOP_TEST(test_sigpipe_is_ignored),
	    LOOP_TEST(test_work_and_done),
	    LOOP_TEST(test_cancel_of_queued_work),
	    LOOP_TEST(test_cancel_waits_for_running_work),
	    LOOP_TEST(test_cancel_of_finished_work),
	    LOOP_TEST(test_done_cancels_other_done),
	    LOOP_TEST(test_free_with_work_under_way),
	    LOOP_TEST(test_stall_of_each_kind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
