/* succession_test.c - who goes when, and what goes on if nothing comes of it.  Upgrade, hand-over,
 * worker, broker and service manager are this file's; they note in order what they are told. */
#include "broker/base/rundir.h"
#include "broker/life/notify.h"
#include "broker/life/succession.h"
#include "common/mem.h"
#include "tests/unit/broker/rig.h"

enum { TRIAL = 4711, STRANGER = 4712 };

static struct {
	char told[512]; /* words */
	bool ending, trial_fails, handed_back, alone;
	struct alive alive;
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

/* --- the broker --- */

int broker_epoll(const struct broker *b)
{
	(void)b;
	return w.epoll;
}

void broker_hold_back(struct broker *b, bool hold)
{
	(void)b;
	tell(hold ? "holds-back" : "sweeps");
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
	*h = (struct handover){.epoll = epoll, .conn = -1, .asked = asked};
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

enum broker_handed handover_give(struct handover *h, struct broker_fdstore *k, struct alive *a)
{
	(void)h;
	(void)k;
	assert_int_equal(a->word, ALIVE_OVER);
	tell("gives");
	return w.handed_back ? BROKER_HANDED_BACK : BROKER_HANDED_OVER;
}

int handover_take(const char *run, unsigned seconds, struct broker_fdstore *k,
    struct handover_from *f, struct err *e)
{
	(void)run;
	(void)seconds;
	(void)e;
	broker_fdstore_found(k, "lock", open("/dev/null", O_RDONLY | O_CLOEXEC));
	f->conn = open("/dev/null", O_RDONLY | O_CLOEXEC);
	return 0;
}

bool handover_is_waited_for(const struct handover_from *f)
{
	return f->conn >= 0 && !w.alone;
}

void handover_done(struct handover_from *f)
{
	if (f->conn >= 0)
		tell("lets-go");
	mem_closep(&f->conn);
}

void handover_give_back(struct handover_from *f, const char *why)
{
	if (f->conn >= 0)
		tell("gives-back(%s)", why);
	mem_closep(&f->conn);
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
	assert_int_equal(alive_open(&w.alive, NULL, &e), 0);
	succession_inherit(&w.s, w.kept, &w.alive, NULL);
	return 0;
}

static void begin(unsigned seconds)
{
	const struct succession_of of = {.run = "/nowhere", .seconds = seconds};
	struct err e;

	assert_int_equal(succession_open(&w.s, &of, &e), 0);
	assert_told(w.s.before.conn < 0 ? "listens " : "holds-back listens ");
}

static int setup_and_begin(void **state)
{
	setup(state);
	begin(60);
	return 0;
}

/* Another agentd has given all it has, and waits. */
static int setup_after_another(void **state)
{
	struct err e;

	setup(state);
	assert_int_equal(succession_take_over(&w.s, "/nowhere", 1, &e), 0);
	begin(1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	mem_closep(&w.s.before.conn);
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
	(void)state;
	assert_false(succession_is_patient(&w.s));
	succession_ready(&w.s);
	assert_told("READY=1,STATUS=0 pods, worker 42 ");
	assert_false(succession_is_patient(&w.s));
	succession_served(&w.s, 0, "");
	assert_told("sweeps lets-go ");
	assert_true(succession_is_patient(&w.s));
}

/* --- our own trial --- */

/* The loop turns until something was told. */
static void turn(void)
{
	for (int i = 0; i < 100 && !*w.told; i++)
		broker_loop_turn(w.epoll, 100);
}

static void what_was_served_is_served(void **state)
{
	(void)state;
	assert_int_equal(w.alive.word, ALIVE_STARTING);
	succession_served(&w.s, 2, "a/b: ads: it is not there yet\n");
	assert_told("");
	assert_int_equal(w.alive.word, ALIVE_STARTING);
	assert_string_equal(w.alive.why, "a/b: ads: it is not there yet\n");
	succession_served(&w.s, 0, "");
	assert_told("sweeps lets-go ");
	assert_int_equal(w.alive.word, ALIVE_READY);
	/* What a later worker does not have is for status to say: a probe would end this one. */
	succession_served(&w.s, 1, "a/b: ads: refused\n");
	assert_int_equal(w.alive.word, ALIVE_READY);
}

static void what_is_lost_is_given_back(void **state)
{
	(void)state;
	succession_served(&w.s, 1, "a/b: ads: refused");
	turn();
	assert_told("ends ");
	assert_false(w.s.is_over);
	ended();
	assert_true(w.s.is_over && w.s.given_back);
	succession_close(&w.s);
	succession_give_back(&w.s);
	assert_told("closes gives-back(a/b: ads: refused) ");
	assert_int_equal(w.s.before.conn, -1);
}

static void a_worker_that_is_not_ready_gives_back(void **state)
{
	(void)state;
	turn();
	assert_told("ends ");
	ended();
	succession_give_back(&w.s);
	assert_told("gives-back(its worker was not ready in time) ");
}

/* Better some pods than none. */
static void nobody_is_there_to_go_on(void **state)
{
	(void)state;
	w.alone = true;
	succession_served(&w.s, 1, "a/b: ads: refused");
	turn();
	assert_told("sweeps ");
	assert_false(w.s.is_over);
	assert_int_equal(w.alive.word, ALIVE_NOT);
	succession_served(&w.s, 0, "");
	assert_int_equal(w.alive.word, ALIVE_READY);
}

static void on_trial_nobody_else_gets_it(void **state)
{
	(void)state;
	w.asked(w.asked_ctx);
	succession_upgrade(&w.s);
	assert_told("refuses ");
	assert_string_equal(
	    succession_problem(&w.s), "no upgrade: this agentd is taking over from another one");
}

/* SIGTERM came first. */
static void an_end_goes_before_giving_back(void **state)
{
	(void)state;
	w.ending = true;
	for (int i = 0; i < 20; i++)
		broker_loop_turn(w.epoll, 100);
	assert_told("");
	assert_false(w.s.given_back);
}

static void without_another_what_is_lost_is_said(void **state)
{
	(void)state;
	succession_served(&w.s, 1, "a/b: cert: refused");
	assert_int_equal(w.alive.word, ALIVE_NOT);
	w.handed_back = true; /* one asks, and gives back */
	w.asked(w.asked_ctx);
	ended();
	assert_int_equal(w.alive.word, ALIVE_NOT);
	succession_served(&w.s, 0, "");
	w.asked(w.asked_ctx);
	ended();
	assert_int_equal(w.alive.word, ALIVE_READY);
	assert_false(w.s.is_over);
}

static void pauses_are_longer_up_to_five_minutes(void **state)
{
	(void)state;
	assert_int_equal(succession_pause_ms(1, 60), 60000);
	assert_int_equal(succession_pause_ms(2, 60), 120000);
	assert_int_equal(succession_pause_ms(3, 60), 240000);
	for (unsigned n = 4; n < 100; n++)
		assert_int_equal(succession_pause_ms(n, 60), 300000);
	assert_int_equal(succession_pause_ms(1, 240), 240000);
	assert_int_equal(succession_pause_ms(2000000000, 1), 300000);
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
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup_and_begin, teardown)
#define AFTER(name) cmocka_unit_test_setup_teardown(name, setup_after_another, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(an_upgrade_that_fails_late_goes_on),
	    TEST(a_bad_trial_ends_nothing),
	    TEST(a_refused_upgrade_is_a_problem),
	    TEST(an_end_goes_before_an_upgrade),
	    TEST(who_asks_gets_all),
	    TEST(what_comes_back_is_ours_anew),
	    TEST(nobody_is_asked_during_a_trial),
	    AFTER(patience),
	    AFTER(what_was_served_is_served),
	    AFTER(what_is_lost_is_given_back),
	    AFTER(a_worker_that_is_not_ready_gives_back),
	    AFTER(nobody_is_there_to_go_on),
	    AFTER(on_trial_nobody_else_gets_it),
	    AFTER(an_end_goes_before_giving_back),
	    TEST(without_another_what_is_lost_is_said),
	    cmocka_unit_test(pauses_are_longer_up_to_five_minutes),
	    TEST(pods_are_counted_by_their_sockets),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
