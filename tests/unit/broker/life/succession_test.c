/* succession_test.c - who goes when, and what goes on if nothing comes of it.  Upgrade, hand-over,
 * worker and service manager are this file's; they note in order what they are told. */
#include "broker/base/rundir.h"
#include "broker/life/notify.h"
#include "broker/life/succession.h"
#include "common/mem.h"
#include "tests/unit/broker/rig.h"

enum { TRIAL = 4711, STRANGER = 4712 };

static struct {
	char told[512]; /* words */
	bool ending, trial_fails, handed_back;
	const char *problem; /* of the service manager */
	keeper_ended done;   /* of keeper_end() */
	void *ctx;
	handover_asked asked;
	void *asked_ctx;
	struct broker_fdstore *kept;
	struct succession s;
	int epoll;
} w;

__attribute__((format(printf, 1, 2))) static void tell(const char *fmt, ...)
{
	size_t n = strlen(w.told);
	va_list args;

	va_start(args, fmt);
	vsnprintf(w.told + n, sizeof(w.told) - n, fmt, args);
	va_end(args);
	strncat(w.told, " ", sizeof(w.told) - strlen(w.told) - 1);
}

/* Since the last time. */
static void assert_told(const char *words)
{
	assert_string_equal(w.told, words);
	w.told[0] = '\0';
}

/* --- the worker --- */

int keeper_start(struct keeper *k, bool patient, struct err *e)
{
	(void)k;
	(void)e;
	tell(patient ? "starts-patiently" : "starts");
	return 0;
}

void keeper_end(struct keeper *k, keeper_ended done, void *ctx)
{
	(void)k;
	w.done = done;
	w.ctx = ctx;
	w.ending = true;
	tell("ends");
}

static void ended(void)
{
	w.ending = false;
	w.done(w.ctx, 0);
}

bool keeper_is_ending(const struct keeper *k)
{
	(void)k;
	return w.ending;
}

pid_t keeper_pid(const struct keeper *k)
{
	(void)k;
	return 42;
}

/* --- another release --- */

void upgrade_open(struct upgrade *u, char **argv)
{
	u->argv = argv;
	u->exe = -1;
}

void upgrade_close(struct upgrade *u)
{
	u->trial = 0;
}

int upgrade_try(struct upgrade *u, struct broker_fdstore *k, struct err *e)
{
	(void)k;
	if (u->trial)
		return err_set(e, EBUSY, "one is tried already");
	u->trial = TRIAL;
	tell("tries");
	return 0;
}

int upgrade_tried(struct upgrade *u, int wait_status, struct err *e)
{
	u->trial = 0;
	return wait_status ? err_set(e, EINVAL, "it failed") : 0;
}

void upgrade_drop(struct upgrade *u)
{
	u->trial = 0;
	tell("drops");
}

int upgrade_exec(struct upgrade *u, struct broker_fdstore *k, struct err *e)
{
	(void)u;
	(void)k;
	tell("executes");
	return err_set(e, ENOEXEC, "it cannot be executed");
}

void upgrade_receive(struct broker_fdstore *k)
{
	(void)k;
}

/* --- another agentd --- */

int handover_open(
    struct handover *h, int epoll, const char *run, handover_asked asked, void *ctx, struct err *e)
{
	(void)run;
	(void)e;
	*h = (struct handover){.epoll = epoll, .asked = asked};
	w.asked = asked;
	w.asked_ctx = ctx;
	tell("listens");
	return 0;
}

void handover_close(struct handover *h)
{
	(void)h;
	tell("closes");
}

void handover_refuse(struct handover *h, const char *why)
{
	(void)h;
	(void)why;
	tell("refuses");
}

enum broker_handed handover_give(struct handover *h, struct broker_fdstore *k)
{
	(void)h;
	(void)k;
	tell("gives");
	return w.handed_back ? BROKER_HANDED_BACK : BROKER_HANDED_OVER;
}

int handover_take(const char *run, struct broker_fdstore *k, int *conn, struct err *e)
{
	(void)run;
	(void)e;
	broker_fdstore_found(k, "lock", open("/dev/null", O_RDONLY | O_CLOEXEC));
	*conn = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return 0;
}

void handover_done(int *conn)
{
	if (*conn >= 0)
		tell("lets-go");
	mem_closep(conn);
}

int broker_rundir_sign(int lock, struct err *e)
{
	(void)lock;
	(void)e;
	tell("signs");
	return 0;
}

/* --- the service manager --- */

void notify_open(void)
{
}

void notify_close(void)
{
}

void notify_keep(struct broker_fdstore *k)
{
	(void)k;
}

const char *notify_problem(void)
{
	return w.problem;
}

void notify_reloading(void)
{
	tell("reloads");
}

void notify(const char *fmt, ...)
{
	char text[128];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	text[strcspn(text, "\n")] = ',';
	tell("%s", text);
}

/* --- tests --- */

static int setup(void **state)
{
	struct err e;

	(void)state;
	memset(&w, 0, sizeof(w));
	w.kept = broker_fdstore_new();
	w.epoll = broker_loop_new();
	succession_inherit(&w.s, w.kept, NULL);
	assert_int_equal(succession_open(&w.s, NULL, w.epoll, "/nowhere", &e), 0);
	assert_told("listens ");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	succession_close(&w.s);
	broker_fdstore_free(&w.kept);
	close(w.epoll);
	return 0;
}

static void an_upgrade_that_fails_late_goes_on(void **state)
{
	(void)state;
	succession_upgrade(&w.s);
	assert_told("tries ");
	assert_false(succession_reaped(&w.s, STRANGER, 0));
	assert_true(succession_reaped(&w.s, TRIAL, 0));
	assert_told("reloads ends ");
	ended();
	assert_told("executes starts-patiently ");
	assert_false(w.s.is_over);
}

static void a_bad_trial_ends_nothing(void **state)
{
	(void)state;
	succession_upgrade(&w.s);
	assert_true(succession_reaped(&w.s, TRIAL, 1 << 8));
	assert_told("tries ");
	succession_upgrade(&w.s); /* a second one at once is refused */
	succession_upgrade(&w.s);
	assert_told("tries ");
}

/* agentctl shows it until somebody tries again. */
static void a_refused_upgrade_is_a_problem(void **state)
{
	(void)state;
	assert_null(succession_problem(&w.s));
	succession_upgrade(&w.s);
	assert_null(succession_problem(&w.s));
	succession_reaped(&w.s, TRIAL, 1 << 8);
	assert_string_equal(succession_problem(&w.s), "no upgrade: it failed");
	w.problem = "it is deaf";
	assert_string_equal(succession_problem(&w.s), "no upgrade: it failed");
	succession_upgrade(&w.s);
	assert_string_equal(succession_problem(&w.s), "it is deaf");
	succession_reaped(&w.s, TRIAL, 0);
	ended();
	assert_string_equal(succession_problem(&w.s), "no upgrade: it cannot be executed");
}

/* SIGTERM came during the trial. */
static void an_end_goes_before_an_upgrade(void **state)
{
	(void)state;
	succession_upgrade(&w.s);
	w.ending = true;
	assert_true(succession_reaped(&w.s, TRIAL, 0));
	assert_told("tries drops ");
}

static void who_asks_gets_all(void **state)
{
	(void)state;
	w.asked(w.asked_ctx);
	assert_told("ends ");
	w.asked(w.asked_ctx);
	assert_told("refuses ");
	ended();
	assert_told("gives ");
	assert_true(w.s.is_over);
}

/* The other one may have put its pid into the lock, and its socket where ours was. */
static void what_comes_back_is_ours_anew(void **state)
{
	int lock = open("/dev/null", O_RDONLY | O_CLOEXEC);

	(void)state;
	broker_fdstore_put(w.kept, BROKER_RUNDIR_LOCK, lock);
	w.handed_back = true;
	w.asked(w.asked_ctx);
	ended();
	assert_told("ends gives signs closes listens starts-patiently ");
	assert_false(w.s.is_over);
	broker_fdstore_drop(w.kept, BROKER_RUNDIR_LOCK);
	close(lock);
}

static void nobody_is_asked_during_a_trial(void **state)
{
	(void)state;
	succession_upgrade(&w.s);
	w.asked(w.asked_ctx);
	assert_told("tries refuses ");
}

/* Sockets of an earlier broker would be lost with us; not while it still has them. */
static void patience(void **state)
{
	struct err e;

	(void)state;
	assert_false(succession_is_patient(&w.s));
	assert_int_equal(succession_take_over(&w.s, "/nowhere", &e), 0);
	assert_false(succession_is_patient(&w.s));
	succession_ready(&w.s);
	assert_told("lets-go READY=1,STATUS=0 pods, worker 42 ");
	assert_true(succession_is_patient(&w.s));
}

static void pods_are_counted_by_their_sockets(void **state)
{
	(void)state;
	broker_fdstore_put(w.kept, "a.sds", 0);
	broker_fdstore_put(w.kept, "a.xds", 0);
	broker_fdstore_put(w.kept, "b.sds", 0);
	succession_alive(&w.s);
	assert_told("WATCHDOG=1,STATUS=2 pods, worker 42 ");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(an_upgrade_that_fails_late_goes_on),
	    TEST(a_bad_trial_ends_nothing),
	    TEST(a_refused_upgrade_is_a_problem),
	    TEST(an_end_goes_before_an_upgrade),
	    TEST(who_asks_gets_all),
	    TEST(what_comes_back_is_ours_anew),
	    TEST(nobody_is_asked_during_a_trial),
	    TEST(patience),
	    TEST(pods_are_counted_by_their_sockets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
