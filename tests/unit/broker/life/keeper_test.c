/* keeper_test.c - how long to wait, and a worker's life as the keeper sees it.
 *
 * The test copies itself as `agentd-worker`; what the worker does is in its --do flag, one letter a
 * step.
 * LINK: tests/fake/apart.c tests/unit/broker/rig.c */
#include "broker/base/loop.h"
#include "broker/life/keeper.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "common/log.h"
#include "tests/unit/broker/rig.h"
#include <linux/sockios.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <time.h>

/* LeakSanitizer cannot run in workers that are killed. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

static int64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* --- the rule alone --- */

static void test_how_long_to_wait(void **state)
{
	enum { EXIT2 = 2 << 8, CRASHED = SIGSEGV, KILLED = SIGKILL, FORBIDDEN = SIGSYS };
	enum { HOUR = 3600000 };
	static const struct {
		struct broker_death d;
		int64_t delay;
	} story[] = {
	    {{CRASHED, 500, false}, 0}, /* the first one: at once */
	    {{SIGABRT, 500, false}, 100},
	    {{EXIT2, -1, false}, 200}, /* never ready */
	    {{0, 9999, false}, 400},   /* an end nobody asked for is a death, too */
	    {{KILLED, -1, false},
		800},                  /* whoever did it: never ready, again and again, is a loop */
	    {{KILLED, 0, true}, 1600}, /* it broke a rule */
	    {{SIGBUS, 0, false}, 3200},
	    {{SIGILL, 0, false}, 6400},
	    {{KILLED, 0, false}, 1000}, /* not by itself, and changes nothing */
	    {{SIGFPE, 0, false}, 12800},
	    {{CRASHED, 0, false}, 25600},
	    {{CRASHED, 0, false}, 30000},
	    {{CRASHED, 0, false}, 30000},
	    {{CRASHED, 10000, false}, 0}, /* ten seconds of life are a good one */
	    {{CRASHED, 0, false}, 100},
	    {{FORBIDDEN, 0, false}, 200}, /* one may be anything */
	    {{FORBIDDEN, 0, false}, 10000},
	    {{KILLED, 0, false}, 1000},         /* and is forgotten at once */
	    {{FORBIDDEN, 60000, false}, 20000}, /* ten seconds are not enough for that */
	    {{FORBIDDEN, 0, false}, 40000},
	    {{FORBIDDEN, 0, false}, 80000},
	    {{FORBIDDEN, 0, false}, 160000},
	    {{FORBIDDEN, 0, false}, 320000},
	    {{FORBIDDEN, 0, false}, 600000},
	    {{FORBIDDEN, -1, false}, 600000},
	    {{CRASHED, 0, false}, 6400}, /* not in a row any more; the deaths count on */
	    {{FORBIDDEN, 0, false}, 12800},
	    {{FORBIDDEN, HOUR, false}, 0}, /* an hour ago: no loop */
	    {{FORBIDDEN, 0, false}, 10000},
	};
	struct broker_backoff b = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(story) / sizeof(story[0]); i++) {
		b = broker_backoff_next(b, &story[i].d);
		if (b.delay_ms != story[i].delay)
			fail_msg("step %zu: %d ms", i, (int)b.delay_ms);
	}
	for (int i = 0; i < 1000; i++)
		b = broker_backoff_next(b, &(struct broker_death){CRASHED, -1, false});
	assert_int_equal(b.delay_ms, 30000);
}

/* Who kills workers that are well must not take the node's service away for longer than it takes
 * to kill; nor may it make the broker spin. */
static void test_killed_from_outside_is_no_crash_loop(void **state)
{
	static const int by_others[] = {SIGKILL, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
	struct broker_backoff b = {0};

	(void)state;
	for (int i = 0; i < 80; i++) {
		b = broker_backoff_next(b, &(struct broker_death){by_others[i % 5], 300, false});
		assert_int_equal(b.delay_ms, i ? 1000 : 0);
	}
	/* Hours apart: each is the first one. */
	for (int i = 0; i < 5; i++) {
		b = broker_backoff_next(b, &(struct broker_death){SIGKILL, 7200000, false});
		assert_int_equal(b.delay_ms, 0);
	}
}

/* --- the worker --- */

static void worker_send(enum link_op op, uint32_t arg)
{
	struct link_request q = {.id = 1, .op = (uint16_t)op, .arg = arg};

	if (send(LINK_FD, &q, sizeof(q), 0) != sizeof(q))
		_exit(90);
}

/* A pod of this worker holds 50 MiB of its memory. */
static void hold_much(void)
{
	struct link_request q = {.id = 1, .op = LINK_POD_ADD, .uid = rig_pod};

	send(LINK_FD, &q, sizeof(q), 0);
	q.op = LINK_HOLDS;
	q.arg = 50 << 10;
	if (send(LINK_FD, &q, sizeof(q), 0) != sizeof(q))
		_exit(90);
}

static void answer_pings(int n, int times)
{
	struct link_packet p;

	while (n > 0 && recv(LINK_FD, &p, sizeof(p), 0) == sizeof(p)) {
		if (p.what != LINK_PING)
			continue;
		for (int i = 0; i < times; i++)
			worker_send(LINK_PONG, p.arg);
		n--;
	}
}

static void answer_late(int n)
{
	struct link_packet p;
	uint32_t last = 0;

	while (n > 0 && recv(LINK_FD, &p, sizeof(p), 0) == sizeof(p)) {
		if (p.what != LINK_PING)
			continue;
		if (last)
			worker_send(LINK_PONG, last);
		last = p.arg;
		n--;
	}
}

/* The configuration is the same for each worker. */
static void check_config(void)
{
	char text[16] = "";

	if (read(LINK_CONFIG_FD, text, sizeof(text)) != 8 || memcmp(text, "settings", 8) != 0)
		_exit(91);
}

static void shut_csi_sock(void)
{
	struct link_packet p = {.what = 0};
	struct fdpass_got got;
	int fd = -1;

	while (p.what != LINK_NODE_LISTENER || p.kind != LINK_NODE_CSI) {
		if (fdpass_receive(LINK_FD, &p, sizeof(p), 0, &got))
			_exit(92);
		fd = fdpass_first(&got);
	}
	shutdown(fd, SHUT_RDWR);
}

static int worker(const char *acts)
{
	sigset_t term;

	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	for (; *acts; acts++)
		switch (*acts) {
		case 'r':
			worker_send(LINK_READY, 0);
			break;
		case 'c':
			check_config();
			break;
		case 'p':
			answer_pings(3, 1);
			break;
		case 'a': /* always */
			answer_pings(1000, 1);
			break;
		case 'd': /* says something, and answers no ping */
			for (int i = 0; i < 1000; i++, poll(NULL, 0, 300))
				worker_send(LINK_LOG, LOG_INFO);
			break;
		case 'l': /* answers each ping when the next one came */
			answer_late(1000);
			break;
		case 'm':
			worker_send(LINK_PONG, 0); /* nobody asked */
			answer_pings(3, 20);
			break;
		case 's': /* silence, until SIGTERM */
			for (;;)
				pause();
		case 'i': /* ignores all there is */
			signal(SIGTERM, SIG_IGN);
			break;
		case 't': /* will be asked to end, and misses no word of it */
			sigprocmask(SIG_BLOCK, &term, NULL);
			break;
		case 'h': /* hangs up when it is asked to, and takes its time to end */
			sigwait(&term, &(int){0});
			close(LINK_FD);
			poll(NULL, 0, 6000);
			break;
		case 'w': /* until what it said was read */
			for (int left = 1; left && !ioctl(LINK_FD, SIOCOUTQ, &left);)
				poll(NULL, 0, 2);
			break;
		case 'b': /* a burden */
			hold_much();
			break;
		case 'k':
			raise(SIGKILL);
			break;
		case 'o': /* csi.sock is dead: another worker has to take its successor */
			shut_csi_sock();
			break;
		case 'y':
			raise(SIGSYS);
			break;
		default:
			return *acts - '0';
		}
	return 0;
}

/* --- the keeper --- */

struct ads_said {
	struct rig *rig;
	struct life_worker wk;
	struct keeper *k;
	int ready, alive, failed, done, status;
	struct broker_timer tick;
	int starts; /* of other workers than the last one */
	pid_t last;
};

static char *argv_of_worker[4] = {(char *)"agentd-worker"};

static void on_ready(void *ctx)
{
	((struct ads_said *)ctx)->ready++;
}

static void on_alive(void *ctx)
{
	((struct ads_said *)ctx)->alive++;
}

static void on_failed(void *ctx, int status)
{
	struct ads_said *t = ctx;

	t->failed++;
	t->status = status;
}

static void on_done(void *ctx, int status)
{
	struct ads_said *t = ctx;

	t->done++;
	t->status = status;
}

/* A turn never waits for long. */
static void on_tick(void *ctx)
{
	broker_timer_set(&((struct ads_said *)ctx)->tick, 5);
}

static void with_a_kubelet(struct rig *r)
{
	static char kubelet[RIG_PATH];

	rig_stop(r);
	snprintf(kubelet, sizeof(kubelet), "%s/kubelet", r->top);
	rig_shell("mkdir -p %s/pods %s/plugins_registry", kubelet, kubelet);
	r->o.kubelet_root = kubelet;
	r->o.manifests = NULL;
	rig_start(r);
}

static int begin(void **state, bool kubelet)
{
	static const struct keeper_events events = {on_ready, NULL, on_alive, on_failed, NULL};
	static char config[RIG_PATH], user[] = "4711";
	static struct ads_said t;
	struct err e = {0};

	rig_setup(state);
	t = (struct ads_said){.rig = *state};
	if (kubelet)
		with_a_kubelet(t.rig);
	snprintf(config, sizeof(config), "%s/agentd.yaml", t.rig->top);
	rig_file(config, "settings");
	t.rig->o.config = config;
	t.rig->o.config_named = true;
	t.rig->o.worker_user = user;
	t.rig->o.worker_argv = argv_of_worker;
	t.rig->o.worker_argc = 2;
	if (life_worker_open(&t.wk, &t.rig->o, &e))
		fail_msg("%s", e.msg);
	rig_file(config, "changed later");
	t.k = keeper_new(t.rig->b, &t.rig->o, &t.wk);
	keeper_observe(t.k, &events, &t);
	assert_int_equal(broker_timer_open(&t.tick, broker_epoll(t.rig->b), on_tick, &t), 0);
	on_tick(&t);
	*state = &t;
	return 0;
}

static int setup(void **state)
{
	return begin(state, false);
}

static int setup_with_a_kubelet(void **state)
{
	return begin(state, true);
}

static int teardown(void **state)
{
	struct ads_said *t = *state;
	void *rig = t->rig;

	keeper_free(&t->k);
	broker_timer_close(&t->tick);
	while (waitpid(-1, NULL, 0) > 0)
		;
	life_worker_close(&t->wk);
	return rig_teardown(&rig);
}

static void start(struct ads_said *t, const char *acts, bool patient)
{
	static char flag[32];
	struct err e = {0};

	snprintf(flag, sizeof(flag), "--do=%s", acts);
	argv_of_worker[1] = flag;
	close(t->rig->fd); /* the rig's own worker */
	t->rig->fd = -1;
	if (keeper_start(t->k, patient, &e))
		fail_msg("%s", e.msg);
}

/* What the main program does on SIGCHLD. */
static void turn_until(struct ads_said *t, const int *count, int wanted)
{
	int status;
	pid_t pid;

	for (int i = 0; i < 4000 && *count < wanted; i++) {
		keeper_turn(t->k);
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			assert_true(keeper_reaped(t->k, pid, status));
		pid = keeper_pid(t->k);
		t->starts += pid && pid != t->last;
		t->last = pid ? pid : t->last;
	}
	assert_int_equal(*count, wanted);
}

static void test_failing_before_ready_is_told(void **state)
{
	struct ads_said *t = *state;

	start(t, "c2", false);
	turn_until(t, &t->failed, 1);
	assert_int_equal(t->status, 2 << 8);
	assert_int_equal(t->ready, 0);
	assert_int_equal(keeper_pid(t->k), 0);
}

/* Each reads the same configuration, though the file has changed. */
static void test_after_ready_there_is_always_a_next_one(void **state)
{
	struct ads_said *t = *state;

	start(t, "cr0", false);
	turn_until(t, &t->ready, 4);
	assert_int_equal(t->failed, 0);
}

static void test_held_sockets_make_patient(void **state)
{
	struct ads_said *t = *state;

	start(t, "2", true);
	t->starts = 0;
	turn_until(t, &t->starts, 3);
	assert_int_equal(t->failed, 0);
}

static void test_an_end_in_order(void **state)
{
	struct ads_said *t = *state;
	struct err e;

	start(t, "rs", false);
	turn_until(t, &t->ready, 1);
	assert_false(keeper_is_ending(t->k));
	keeper_end(t->k, on_done, t);
	assert_true(keeper_is_ending(t->k));
	turn_until(t, &t->done, 1);
	assert_int_equal(t->status, 0); /* as asked, also by the signal's default */
	assert_false(keeper_is_ending(t->k));
	/* The upgrade could not be: the next one. */
	assert_int_equal(keeper_start(t->k, false, &e), 0);
	turn_until(t, &t->ready, 2);
	/* Nobody runs: still later, and once. */
	kill(keeper_pid(t->k), SIGKILL);
	while (keeper_pid(t->k))
		keeper_reaped(t->k, waitpid(-1, &t->status, 0), t->status);
	keeper_end(t->k, on_done, t);
	assert_int_equal(t->done, 1);
	turn_until(t, &t->done, 2);
	assert_int_equal(t->status, 0);
	assert_int_equal(keeper_pid(t->k), 0);
}

/* It was stopped, say: nobody waits for it for long. */
static void test_an_end_that_is_not_heeded(void **state)
{
	struct ads_said *t = *state;

	start(t, "irs", false);
	turn_until(t, &t->ready, 1);
	const int64_t asked = now_ms();
	keeper_end(t->k, on_done, t);
	turn_until(t, &t->done, 1);
	assert_int_equal(t->status, SIGKILL);
	assert_true(now_ms() - asked < 13 * 1000); /* four, and not the ten that follow them */
}

static void test_an_end_that_takes_its_time(void **state)
{
	struct ads_said *t = *state;

	start(t, "trh0", false);
	turn_until(t, &t->ready, 1);
	keeper_end(t->k, on_done, t);
	turn_until(t, &t->done, 1);
	assert_int_equal(t->status, 0);
}

/* The pod that held the memory has to wait, and not the node: ten deaths by themselves would take
 * 25 s. */
static void test_who_held_the_memory_waits(void **state)
{
	struct ads_said *t = *state;

	start(t, "rbwk", false);
	turn_until(t, &t->ready, 10);
	assert_int_equal(t->failed, 0);
}

/* A worker that we end through no fault of its own counts as one that somebody killed: the third
 * comes a second after the second.  One that broke a rule would make the tenth wait for 25 s. */
static void test_an_outdated_worker_is_no_crash_loop(void **state)
{
	struct ads_said *t = *state;
	int64_t began;

	start(t, "ros", false);
	turn_until(t, &t->ready, 2);
	began = now_ms();
	turn_until(t, &t->ready, 4);
	assert_true(now_ms() - began >= 2000);
	assert_int_equal(t->failed, 0);
}

/* Half of it is how long a worker may be silent, also one that only begins, on however busy a
 * machine. */
enum { WATCHDOG_MS = 2000 };

/* Half a period of silence; a worker that answers is left alone, and vouched for. */
static void test_a_silent_worker_is_replaced(void **state)
{
	struct ads_said *t = *state;
	struct err e;

	assert_int_equal(keeper_watchdog(t->k, WATCHDOG_MS, &e), 0);
	start(t, "rps", false);
	turn_until(t, &t->alive, 3);
	assert_int_equal(t->ready, 1);
	turn_until(t, &t->ready, 2);
	assert_int_equal(t->alive, 3); /* silence vouches for nothing */
}

/* A slow one works: it is behind its pings, or has not come to them yet. */
static void stays(struct ads_said *t, const char *acts)
{
	struct err e;

	assert_int_equal(keeper_watchdog(t->k, WATCHDOG_MS, &e), 0);
	start(t, acts, false);
	turn_until(t, &t->alive, 9); /* one for each ping: three times what silence is allowed */
	assert_int_equal(t->ready, 1);
	assert_int_equal(t->starts, 1);
}

static void test_any_packet_is_a_sign_of_life(void **state)
{
	stays(*state, "rd");
}

static void test_a_late_answer_is_a_sign_of_life(void **state)
{
	stays(*state, "rl");
}

/* The broker was stopped, or the machine was.  The worker may be late by half of the period. */
static void test_who_stood_still_blames_nobody(void **state)
{
	enum { PERIOD_MS = 3 * WATCHDOG_MS };
	struct ads_said *t = *state;
	struct err e;

	assert_int_equal(keeper_watchdog(t->k, PERIOD_MS, &e), 0);
	start(t, "ra", false);
	turn_until(t, &t->alive, 1);
	pid_t before = keeper_pid(t->k);
	poll(NULL, 0, PERIOD_MS + 50);
	turn_until(t, &t->alive, 4);
	assert_int_equal(keeper_pid(t->k), before);
}

/* Each one told would be a message to the service manager. */
static void test_an_answer_counts_once(void **state)
{
	struct ads_said *t = *state;
	struct err e;

	assert_int_equal(keeper_watchdog(t->k, WATCHDOG_MS, &e), 0);
	start(t, "rms", false);
	turn_until(t, &t->ready, 2);
	assert_int_equal(t->alive, 3);
}

/* SIGSYS is no loop, and the watchdog does not make it one. */
static void test_forbidden_calls_are_no_loop(void **state)
{
	struct ads_said *t = *state;
	struct err e;

	assert_int_equal(keeper_watchdog(t->k, WATCHDOG_MS, &e), 0);
	start(t, "rwy", false);
	turn_until(t, &t->ready, 2);
	t->alive = 0;
	turn_until(t, &t->alive, 3);
	assert_int_equal(t->ready, 2);
	assert_int_equal(keeper_pid(t->k), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	    cmocka_unit_test(test_how_long_to_wait),
	    cmocka_unit_test(test_killed_from_outside_is_no_crash_loop),
	    T(test_failing_before_ready_is_told),
	    T(test_after_ready_there_is_always_a_next_one),
	    T(test_held_sockets_make_patient),
	    T(test_an_end_in_order),
	    T(test_an_end_that_is_not_heeded),
	    T(test_an_end_that_takes_its_time),
	    T(test_who_held_the_memory_waits),
	    cmocka_unit_test_setup_teardown(
		test_an_outdated_worker_is_no_crash_loop, setup_with_a_kubelet, teardown),
	    T(test_a_silent_worker_is_replaced),
	    T(test_any_packet_is_a_sign_of_life),
	    T(test_a_late_answer_is_a_sign_of_life),
	    T(test_who_stood_still_blames_nobody),
	    T(test_an_answer_counts_once),
	    T(test_forbidden_calls_are_no_loop),
	};
	char dir[] = "/tmp/bkXXXXXX", path[64];

	if (argc > 1 && !strncmp(argv[1], "--do=", 5))
		return worker(argv[1] + 5);
	if (argc == 1) { /* agentd-worker lies beside who starts it */
		assert_non_null(mkdtemp(dir));
		chmod(dir, 0755);
		for (int i = 0; i < 2; i++) {
			snprintf(path, sizeof(path), "%s/%s", dir, i ? "agentd-worker" : "test");
			rig_shell("cp /proc/%d/exe %s", (int)getpid(), path);
		}
		snprintf(path, sizeof(path), "%s/test", dir);
		int status = 1 << 8;
		pid_t pid = fork();
		if (pid == 0) {
			execl(path, path, "run", NULL);
			_exit(126);
		}
		waitpid(pid, &status, 0);
		rig_shell("rm -rf %s", dir);
		return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
