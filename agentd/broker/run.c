/* run.c - start, serve, end.
 *
 * options -> system calls are bounded -> the worker's files are opened -> run directory, lock,
 * admin.sock -> capabilities we do not need are dropped -> the keeper starts one worker after the
 * other.  The first one tells how agentd.yaml wants the log; until then lines are held, unless a
 * flag says it.  What an earlier agentd or systemd kept was found before all that; SIGUSR2 executes
 * another release.  A hand-over that came to nothing begins all of it anew, after a pause.  The
 * end: SIGTERM or SIGINT is passed on to the worker as SIGTERM; its wait status is ours. Sockets'
 * files stay: the next broker renames fresh ones over them, and pods' mounts stay.
 */
#include "run.h"
#include "broker/base/apart.h"
#include "broker/base/calls.h"
#include "broker/base/caps.h"
#include "broker/base/fdstore.h"
#include "broker/base/loop.h"
#include "broker/base/rundir.h"
#include "broker/base/running.h"
#include "broker/life/alive.h"
#include "broker/life/keeper.h"
#include "broker/life/notify.h"
#include "broker/life/succession.h"
#include "broker/life/worker.h"
#include "broker/redirect/redirect.h"
#include "broker/requests/broker.h"
#include "check.h"
#include "common/err.h"
#include "common/flags.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/pidfd.h"
#include "common/version.h"
#include "gate.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

LOG_SCOPE("broker");

enum { USAGE = 2, UNHEARD_MS = 5000 };

/* Half of it is how long a worker may be silent, if no service manager wants to know sooner. */
enum { WATCHDOG_MS = 30000 };

/* Locked by the worker: 1024 pods with 16 pages of keys and tokens each. */
enum { SECRETS_MAX = 64 << 20 };

struct run {
	struct broker *broker;
	struct keeper *keeper;
	struct succession succession;
	struct broker_watch signals;
	struct broker_timer unheard; /* no worker told how to log: held lines go */
	bool vouched;                /* a service manager wants to hear that the worker answers */
	bool ended;
	int code; /* our exit code */
};

/* No worker runs, and none will. */
static void on_ended(void *ctx, int status)
{
	struct run *r = ctx;

	r->ended = true;
	r->code = life_worker_exit_code(status);
}

static void on_ready(void *ctx)
{
	struct run *r = ctx;

	succession_ready(&r->succession);
}

static void on_served(void *ctx, unsigned lost, const char *why)
{
	struct run *r = ctx;

	succession_served(&r->succession, lost, why);
}

static void on_alive(void *ctx)
{
	struct run *r = ctx;

	notify_again();
	if (r->vouched)
		succession_alive(&r->succession);
}

/* As process 1 of a container we reap strangers too. */
static void reap(struct run *r)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (!apart_reaped(pid) && !succession_reaped(&r->succession, pid, status))
			keeper_reaped(r->keeper, pid, status);
	broker_reaped(r->broker);
}

static void on_signal(void *ctx, uint32_t events)
{
	struct run *r = ctx;
	struct signalfd_siginfo info;

	(void)events;
	while (read(r->signals.fd, &info, sizeof(info)) == sizeof(info)) {
		if (info.ssi_signo == SIGCHLD) {
			reap(r);
			continue;
		}
		if (info.ssi_signo == SIGUSR2) {
			succession_upgrade(&r->succession);
			continue;
		}
		notify("STOPPING=1");
		log_info(NULL, "%s: ending", strsignal((int)info.ssi_signo));
		keeper_end(r->keeper, on_ended, r);
	}
}

/* Before the worker exists, so that none is missed. */
static int watch_signals(struct run *r, struct err *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR2);
	r->signals = (struct broker_watch){.ready = on_signal, .ctx = r};
	if (sigprocmask(SIG_BLOCK, &set, NULL) ||
	    (r->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0 ||
	    broker_watch_start(broker_epoll(r->broker), &r->signals, EPOLLIN))
		return err_sys(e, "signalfd");
	return 0;
}

static void on_unheard(void *ctx)
{
	(void)ctx;
	log_release();
}

/* What somebody has to write otherwise is not tried again: the units look at the status. */
static int fail(const struct err *e)
{
	log_error(NULL, "%s", e->msg);
	return e->code == ERR_INVALID ? USAGE : 1;
}

static const char *on_problem_asked(void *ctx)
{
	const struct run *r = ctx;

	return succession_problem(&r->succession);
}

static int serve(
    struct run *r, const struct broker_options *o, struct life_worker *wk, struct err *e)
{
	static const struct keeper_events events = {
	    on_ready, on_served, on_alive, on_ended, on_problem_asked};
	bool patient = succession_is_patient(&r->succession);
	int64_t watchdog_ms = notify_watchdog_ms();
	int epoll = broker_epoll(r->broker);

	/* Not before: the namespace of pid 1 is hidden from who has fewer capabilities than it. */
	uint64_t caps = BROKER_CAPS | (o->redirect ? BROKER_CAPS_REDIRECT : 0);
	if (broker_caps_bound(caps, e) || broker_caps_set(caps, e) || watch_signals(r, e))
		return -1;
	if (broker_timer_open(&r->unheard, epoll, on_unheard, r))
		return err_sys(e, "timerfd");
	broker_timer_set(&r->unheard, UNHEARD_MS);
	r->keeper = keeper_new(r->broker, o, wk);
	const struct succession_of of = {r->broker, r->keeper, o->run, o->take_over_s};
	keeper_observe(r->keeper, &events, r);
	r->vouched = watchdog_ms;
	if (!watchdog_ms || watchdog_ms > WATCHDOG_MS)
		watchdog_ms = WATCHDOG_MS;
	if (keeper_watchdog(r->keeper, watchdog_ms, e) || succession_open(&r->succession, &of, e) ||
	    keeper_start(r->keeper, patient, e))
		return -1;
	log_info(NULL, "agentd %s: run directory %s, worker %d as uid %u", version_text, o->run,
	    (int)keeper_pid(r->keeper), (unsigned)wk->user.uid);
	while (!r->ended && !r->succession.is_over)
		keeper_turn(r->keeper);
	return 0;
}

static int run(struct run *r, const struct broker_options *o, struct life_worker *wk)
{
	struct succession *s = &r->succession;
	struct err e;

	if (o->take_over && succession_take_over(s, o->run, o->take_over_s, &e))
		return fail(&e);
	r->broker = broker_new(o, s->kept, &e);
	if (!r->broker || serve(r, o, wk, &e))
		r->code = fail(&e);
	broker_timer_close(&r->unheard);
	succession_close(s);
	keeper_free(&r->keeper);
	if (s->is_over)
		broker_leave(r->broker);
	broker_free(&r->broker);
	mem_closep(&r->signals.fd);
	if (s->given_back)
		succession_give_back(s);
	mem_closep(&s->before.conn);
	return r->code;
}

/* A runtime may give as little as 64 KiB.  Where we may not raise the hard limit the worker says
 * so, once it comes to it. */
static void raise_locked(rlim_t hard)
{
	const struct rlimit all = {SECRETS_MAX, hard < SECRETS_MAX ? SECRETS_MAX : hard};
	const struct rlimit most = {hard, hard};

	if (setrlimit(RLIMIT_MEMLOCK, &all))
		setrlimit(RLIMIT_MEMLOCK, &most);
}

/* 0, 1 and 2 must not be given to something else; files get the modes we name; a socket and its
 * kin for each pod need many fds, and their keys and tokens locked memory. */
static int prepare_process(struct err *e)
{
	struct rlimit files, locked;
	int fd;

	while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
		;
	mem_closep(&fd);
	umask(S_IWGRP | S_IWOTH);
	signal(SIGPIPE, SIG_IGN); /* a log nobody reads any more */
	log_detach();             /* or does not read at the moment; the worker inherits it */
	if (geteuid() != 0)
		return err_set(e, EPERM,
		    "agentd must be started as root: it makes the sockets in pods' directories, "
		    "and its worker runs without any privilege");
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	if (!getrlimit(RLIMIT_MEMLOCK, &locked) && locked.rlim_cur < SECRETS_MAX)
		raise_locked(locked.rlim_max);
	return 0;
}

/* In a privileged container nobody else does it. */
static int bound_calls(struct err *e)
{
	if (!broker_calls_bound(e))
		return 0;
	if (e->code != ERR_UNAVAILABLE)
		return -1;
	log_warn(NULL, "the broker can make any system call: %s (CONFIG_SECCOMP_FILTER)", e->msg);
	return 0;
}

static int open_and_run(struct run *r, const struct broker_options *o)
{
	struct life_worker wk;
	struct err e;
	int code;

	if (life_worker_open(&wk, o, &e))
		return fail(&e);
	if (!wk.user.known)
		log_warn(NULL, "there is no user \"%s\": the worker runs as uid %u", o->worker_user,
		    (unsigned)wk.user.uid);
	code = run(r, o, &wk);
	life_worker_close(&wk);
	return code;
}

/* From what an earlier agentd left to what this one leaves. */
static int live(struct run *r, const struct broker_options *o, struct alive *a, char **argv)
{
	struct broker_fdstore *kept = broker_fdstore_new();
	int code;

	*r = (struct run){.signals.fd = -1, .unheard.watch.fd = -1};
	succession_inherit(&r->succession, kept, a, argv);
	code = open_and_run(r, o);
	broker_fdstore_free(&kept);
	return code;
}

/* True: told to end.  False: it is time to ask again, or the one before us has ended. */
static bool wait_to_ask_again(const struct run *r, struct alive *a, int64_t ms)
{
	auto_close int before = pidfd_of_number(r->succession.before.pid);
	char why[ALIVE_WHY_SIZE];

	if (before < 0)
		return false;
	snprintf(why, sizeof(why),
	    "the agentd before this one goes on, and is asked again in %d s:\n%.*s",
	    (int)(ms / 1000), ALIVE_WHY_SIZE - 128, r->succession.lost);
	alive_say(a, ALIVE_NOT, why);
	log_warn(NULL, "the next try is in %d s", (int)(ms / 1000));
	return alive_rest(a, before, ms);
}

/* As often as we gave back.  Whoever starts again what has ended (a kubelet) would take all of it
 * back from another one: so we linger. */
static int live_until_the_end(const struct broker_options *o, struct alive *a, char **argv)
{
	unsigned times = 0;
	struct run r;
	int code;

	do
		code = live(&r, o, a, argv);
	while (r.succession.given_back &&
	       !wait_to_ask_again(&r, a, succession_pause_ms(++times, o->take_over_s)));
	if (!r.succession.is_over || r.succession.given_back || !o->linger)
		return code;
	log_info(NULL, "nothing is left to do but to wait for SIGTERM");
	alive_rest(a, -1, -1);
	return code;
}

/* One that runs would put it all back. */
static int uninstall(const struct broker_options *o)
{
	struct broker_fdstore *kept = broker_fdstore_new();
	struct broker_rundir d;
	struct err e;
	int rc = 0;

	if (broker_rundir_open(&d, o->run, kept, &e) || redirect_uninstall(o->bpffs, &e))
		rc = fail(&e);
	else
		log_info(
		    NULL, "nothing redirects traffic any more: no eBPF program of agentd is left");
	broker_rundir_close(&d);
	broker_fdstore_free(&kept);
	return rc;
}

/* Asked without any flag it is about the agentd that runs, with the flags that this one has. */
static int check(const struct broker_options *asked)
{
	struct broker_running running = {.pid = 0};
	struct broker_options its;
	struct err e;
	int code;

	if (!asked->bare || !broker_running_find(&running, asked->run)) {
		code = broker_check(asked);
	} else if (broker_options_parse(&its, running.argc, running.argv, &e)) {
		code = fail(&e);
		broker_options_clear(&its);
	} else {
		its.connect = asked->connect;
		printf(
		    "ok       %-22s pid %d: with its flags\n", "running agentd", (int)running.pid);
		code = broker_check(&its);
		broker_options_clear(&its);
	}
	broker_running_clear(&running);
	return code;
}

/* The trial of an upgrade.  A kernel that cannot redirect at all is no fault of this release. */
static int try(const struct broker_options *o)
{
	struct redirect_can can;
	struct err e;

	if (!upgrade_check(o, &e) && (!o->redirect || kernel_can(&e) || !redirect_try(&can, &e)))
		return 0;
	puts(e.msg);
	return 1;
}

static int start(const struct broker_options *o, char **argv)
{
	struct alive alive;
	struct err e;

	if (o->mode == BROKER_HELP) {
		broker_options_help(stdout);
		return 0;
	}
	if (o->mode == BROKER_SHOW_VERSION) {
		printf("agentd %s\n", version_text);
		return 0;
	}
	if (prepare_process(&e) || bound_calls(&e))
		return fail(&e);
	if (o->mode == BROKER_CHECK)
		return check(o);
	if (o->mode == BROKER_CHECK_STATE)
		return try(o);
	if (o->mode == REDIRECT_UNINSTALL)
		return uninstall(o);
	if (o->mode == REDIRECT_GATE)
		return broker_gate_shut(o);
	if (o->mode == REDIRECT_AWAIT)
		return broker_gate_await(o);
	if (alive_open(&alive, o->alive, &e))
		return fail(&e);
	int code = live_until_the_end(o, &alive, argv);
	alive_close(&alive);
	return code;
}

int broker_run(int argc, char **argv)
{
	struct broker_options o;
	struct err e;
	int code = USAGE, json = flags_log_json(argc, argv);

	log_init(json > 0);
	if (broker_options_parse(&o, argc, argv, &e) || log_set_own_levels(o.log_level, &e)) {
		log_error(NULL, "%s (see agentd --help)", e.msg);
	} else {
		if (json < 0 && o.mode == BROKER_RUN)
			log_hold(); /* agentd.yaml says it, and the worker reads that */
		code = start(&o, argv);
		log_release();
	}
	broker_options_clear(&o);
	return code;
}
