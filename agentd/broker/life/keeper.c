/* keeper.c - see keeper.h.
 *
 * start -> a socketpair, its greeting, fork -> READY -> ... -> it dies, or breaks the protocol, or
 * is silent, and is killed -> reaped: its connection goes, pods and sockets stay -> the next one at
 * once; if that dies young and by itself, later and later.  Connections wait in the backlog
 * meanwhile (process-split.md 3).
 *
 * A forbidden system call is an attack, or a call that the filter lacks: starting again cannot help
 * against either, so from the second in a row on there are minutes in between, and a line that says
 * what to do.
 */
#include "keeper.h"
#include "broker/base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

LOG_SCOPE("broker");

enum {
	HEED_MS = 4000,      /* to hang up when it is asked to end */
	PATIENCE_MS = 10000, /* to exit after that */
	DELAY_MIN_MS = 100,
	DELAY_MAX_MS = 30000,
	KILLED_MS = 1000, /* after each death but the first one */
	GOOD_LIFE_MS = 10000,
	FORBIDDEN_MIN_MS = 10000,
	FORBIDDEN_MAX_MS = 600000,
	FORBIDDEN_FORGET_MS = 3600000,
	UNANSWERED_MAX = 2,       /* so that half of the period has passed at the next pulse */
	NEVER_STARTED = 127 << 8, /* a wait status */
};

struct keeper {
	struct broker *broker;
	const struct broker_options *options;
	struct life_worker *worker;
	struct keeper_events ev;
	void *ctx;
	pid_t pid;                 /* 0: none runs */
	struct broker_timer timer; /* a worker runs: kill it; none runs: the next step */
	struct broker_timer pulse;
	bool patient, left;           /* it hung up */
	int64_t started_ms, ready_ms; /* of this one; ready 0: not yet */
	struct broker_backoff backoff;
	keeper_ended done; /* not NULL: ending */
	void *done_ctx;
	int status; /* of the last one */
	int64_t pulse_ms;
	uint32_t last_ping;
	unsigned unanswered; /* pings in a row */
	bool killed;         /* by us */
	bool outdated;       /* and through no fault of its own */
	bool relieved;       /* what killed it has to wait */
};

/* --- how long to wait --- */

static int64_t doubled(int64_t min, unsigned times, int64_t max)
{
	int64_t ms = min;

	while (times-- > 0 && ms < max)
		ms *= 2;
	return ms < max ? ms : max;
}

static bool is_killed(const struct broker_death *d)
{
	if (d->by_us || d->lived_ms < 0 || !WIFSIGNALED(d->status))
		return false;
	switch (WTERMSIG(d->status)) {
	case SIGKILL: /* by somebody, or by the kernel for memory */
	case SIGTERM:
	case SIGINT:
	case SIGHUP:
	case SIGQUIT:
		return true;
	default:
		return false;
	}
}

static int64_t delay_of_own(const struct broker_backoff *b)
{
	if (b->forbidden > 1)
		return doubled(FORBIDDEN_MIN_MS, b->forbidden - 2, FORBIDDEN_MAX_MS);
	return b->in_a_row ? doubled(DELAY_MIN_MS, b->in_a_row - 1, DELAY_MAX_MS) : 0;
}

struct broker_backoff broker_backoff_next(
    struct broker_backoff previous, const struct broker_death *d)
{
	bool forbidden = WIFSIGNALED(d->status) && WTERMSIG(d->status) == SIGSYS;
	struct broker_backoff next = previous;

	if (d->lived_ms >= GOOD_LIFE_MS)
		next.in_a_row = next.killed = 0;
	if (d->lived_ms >= FORBIDDEN_FORGET_MS)
		next.forbidden = 0;
	if (is_killed(d)) {
		next.delay_ms = next.in_a_row || next.killed ? KILLED_MS : 0;
		next.killed++;
		return next;
	}
	next.forbidden = forbidden ? next.forbidden + 1 : 0;
	next.delay_ms = delay_of_own(&next);
	next.in_a_row++;
	return next;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* --- start --- */

static int start_worker(struct keeper *k, struct err *e)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return err_sys(e, "socketpair");
	auto_close int theirs = pair[1];
	if (broker_attach(k->broker, pair[0], e))
		return -1;
	pid_t pid = life_worker_start(k->worker, k->options, theirs, NULL, e);
	if (pid < 0) {
		broker_detach(k->broker);
		return -1;
	}
	k->pid = pid;
	k->started_ms = now_ms();
	k->ready_ms = 0;
	k->unanswered = 0;
	k->left = false;
	k->killed = k->outdated = false;
	broker_timer_set(&k->timer, -1);
	return 0;
}

/* --- death --- */

static void say_what_to_do(const struct keeper *k)
{
	log_error(NULL,
	    "%u workers in a row made a forbidden system call: either one was attacked, or the "
	    "filter lacks a call that this machine needs. The kernel's log names it (type=1326, "
	    "syscall=): please report it; --no-privsep runs without the filter. Next try in %d s",
	    k->backoff.forbidden, (int)(k->backoff.delay_ms / 1000));
}

static void plan_next(struct keeper *k)
{
	const struct broker_death d = {.status = k->status,
	    .lived_ms = k->ready_ms ? now_ms() - k->ready_ms : -1,
	    .by_us = k->killed && !k->outdated};

	/* Those who held the memory wait in our place: it cannot come back at once. */
	if (k->relieved) {
		broker_timer_set(&k->timer, 0);
		return;
	}
	k->backoff = broker_backoff_next(k->backoff, &d);
	if (k->backoff.forbidden > 1)
		say_what_to_do(k);
	else if (k->backoff.delay_ms)
		log_info(NULL, "the next worker starts in %d ms", (int)k->backoff.delay_ms);
	broker_timer_set(&k->timer, k->backoff.delay_ms);
}

static void try_later(struct keeper *k, const struct err *e)
{
	log_release();
	log_error(NULL, "the worker cannot be started: %s", e->msg);
	k->status = NEVER_STARTED;
	k->relieved = false;
	k->ready_ms = 0;
	plan_next(k);
}

int keeper_start(struct keeper *k, bool patient, struct err *e)
{
	k->patient |= patient;
	k->done = NULL;
	if (start_worker(k, e)) {
		if (!k->patient)
			return -1;
		try_later(k, e);
	}
	return 0;
}

static void finish(struct keeper *k)
{
	keeper_ended done = take(k->done);

	broker_timer_set(&k->timer, -1);
	done(k->done_ctx, k->status);
}

/* A worker that dies of our SIGTERM before it could handle it ended as asked. */
static void say_how_it_ended(struct keeper *k)
{
	char how[BROKER_ENDED_SIZE];

	life_worker_ended(k->status, how);
	if (k->done && WIFSIGNALED(k->status) && WTERMSIG(k->status) == SIGTERM)
		k->status = 0;
	log_at(k->status ? LOG_ERROR : LOG_INFO, NULL, "the worker ended: %s", how);
}

bool keeper_reaped(struct keeper *k, pid_t pid, int status)
{
	if (!pid || pid != k->pid)
		return false;
	k->relieved = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !k->killed &&
		      broker_blame(k->broker);
	broker_detach(k->broker); /* it may have become ready just before */
	log_release();            /* it will not tell how to log */
	k->pid = 0;
	k->status = status;
	say_how_it_ended(k);
	if (k->done)
		finish(k);
	else if (k->patient)
		plan_next(k);
	else
		k->ev.failed(k->ctx, status);
	return true;
}

static void kill_worker(struct keeper *k, const char *why)
{
	log_error(NULL, "the worker %s and is killed", why); /* at any level: LINK_LOG */
	k->killed = true;
	kill(k->pid, SIGKILL);
}

static void on_timer(void *ctx)
{
	struct keeper *k = ctx;
	struct err e;

	if (k->pid) {
		kill_worker(k, "did not end in time");
	} else if (k->done) {
		finish(k);
	} else if (start_worker(k, &e)) {
		try_later(k, &e);
	} else {
		log_info(NULL, "worker %d takes over", (int)k->pid);
	}
}

void keeper_end(struct keeper *k, keeper_ended done, void *ctx)
{
	bool again = k->done;

	k->done = done;
	k->done_ctx = ctx;
	if (!k->pid) {
		k->status = 0; /* nothing is left to end badly */
		broker_timer_set(&k->timer, 0);
	} else if (!again && !kill(k->pid, SIGTERM)) {
		broker_timer_set(&k->timer, HEED_MS);
	}
}

bool keeper_is_ending(const struct keeper *k)
{
	return k->done;
}

/* --- while it lives --- */

static void on_ready(void *ctx)
{
	struct keeper *k = ctx;

	k->ready_ms = now_ms();
	k->patient = true;
	log_info(NULL, "worker %d is ready after %d ms", (int)k->pid,
	    (int)(k->ready_ms - k->started_ms));
	k->ev.ready(k->ctx);
}

static void on_served(void *ctx, unsigned lost, const char *why)
{
	struct keeper *k = ctx;

	if (k->ev.served)
		k->ev.served(k->ctx, lost, why);
}

/* Its loop alone sends packets, so each one counts, whichever ping it answers.  A worker that is
 * slow, and late by a ping, works. */
static void on_heard(void *ctx)
{
	struct keeper *k = ctx;

	if (!k->unanswered)
		return; /* once for each ping: the service manager hears of it */
	k->unanswered = 0;
	k->ev.alive(k->ctx);
}

static const char *on_problem_asked(void *ctx)
{
	const struct keeper *k = ctx;

	return k->ev.problem ? k->ev.problem(k->ctx) : NULL;
}

/* While a worker is being ended, or is not to be started yet, the broker's own turns count: a
 * service manager that killed us then would make the pause a loop.  Pings are counted, not time: if
 * it was us who stood still, the answer is there. */
static void on_pulse(void *ctx)
{
	struct keeper *k = ctx;

	broker_timer_set(&k->pulse, k->pulse_ms);
	if (!k->pid || k->done)
		k->ev.alive(k->ctx);
	else if (k->unanswered == UNANSWERED_MAX)
		kill_worker(k, "does not answer");
	else
		k->unanswered++;
	if (k->pid && !k->killed)
		broker_ping(k->broker, ++k->last_ping); /* also shows that we are here */
}

int keeper_watchdog(struct keeper *k, int64_t period_ms, struct err *e)
{
	k->pulse_ms = period_ms / 6;
	if (broker_timer_open(&k->pulse, broker_epoll(k->broker), on_pulse, k))
		return err_sys(e, "timerfd");
	broker_timer_set(&k->pulse, k->pulse_ms);
	return 0;
}

/* A worker that closes its end has time to exit, also where that was all it had to heed; one that
 * breaks the protocol has none. */
void keeper_turn(struct keeper *k)
{
	enum broker_turned state = broker_turn(k->broker, -1);

	if (!k->pid || state == BROKER_SERVING)
		return;
	if (state == BROKER_WORKER_BROKE || state == BROKER_WORKER_OUTDATED) {
		k->killed = true;
		k->outdated = state == BROKER_WORKER_OUTDATED;
		kill(k->pid, SIGKILL);
	} else if (!k->left) {
		broker_timer_set(&k->timer, PATIENCE_MS);
	}
	k->left = true;
}

/* --- life --- */

pid_t keeper_pid(const struct keeper *k)
{
	return k->pid;
}

static void nobody(void *ctx)
{
	(void)ctx;
}

static void nobody_failed(void *ctx, int status)
{
	(void)ctx;
	(void)status;
}

void keeper_observe(struct keeper *k, const struct keeper_events *ev, void *ctx)
{
	k->ev = *ev;
	k->ctx = ctx;
}

struct keeper *keeper_new(struct broker *b, const struct broker_options *o, struct life_worker *wk)
{
	static const struct broker_events of_broker = {
	    on_ready, on_served, on_heard, on_problem_asked};
	struct keeper *k = mem_zalloc(sizeof(*k));

	k->broker = b;
	k->options = o;
	k->worker = wk;
	k->ev = (struct keeper_events){nobody, NULL, nobody, nobody_failed, NULL};
	k->pulse.watch.fd = -1;
	if (broker_timer_open(&k->timer, broker_epoll(b), on_timer, k))
		abort(); /* no fd is left for us at the start */
	broker_observe(b, &of_broker, k);
	return k;
}

void keeper_free(struct keeper **kp)
{
	struct keeper *k = take(*kp);

	if (!k)
		return;
	if (k->pid)
		kill(k->pid, SIGKILL);
	broker_timer_close(&k->timer);
	broker_timer_close(&k->pulse);
	free(k);
}
