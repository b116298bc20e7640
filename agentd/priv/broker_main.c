/* broker_main.c - start, serve, end.
 *
 * options -> what the worker needs is opened -> run directory, lock, admin.sock -> capabilities we
 * do not need are dropped -> the keeper starts one worker after the other.  The end: SIGTERM or
 * SIGINT is passed on to the worker as SIGTERM, which has ten seconds; its wait status is ours.
 * Sockets' files stay: the next broker renames fresh ones over them, and what pods have mounted
 * stays mounted.
 */
#include "broker_main.h"
#include "../base/mem.h"
#include "broker_caps.h"
#include "broker_check.h"
#include "broker_core.h"
#include "broker_keeper.h"
#include "broker_kept.h"
#include "broker_loop.h"
#include "broker_worker.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { USAGE = 2 };

struct run {
	struct broker *broker;
	struct broker_keeper *keeper;
	struct broker_watch signals;
	bool ended;
	int code; /* our exit code */
};

/* No worker runs, and none will. */
static void on_ended(void *ctx, int status)
{
	struct run *r = ctx;

	r->ended = true;
	r->code = broker_worker_exit_code(status);
}

static void on_ready(void *ctx)
{
	(void)ctx;
}

static void on_alive(void *ctx)
{
	(void)ctx;
}

/* As process 1 of a container we reap strangers too. */
static void reap(struct run *r)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		broker_keeper_reaped(r->keeper, pid, status);
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
		broker_log(BROKER_INFO, NULL, "%s: ending", strsignal((int)info.ssi_signo));
		broker_keeper_end(r->keeper, on_ended, r);
	}
}

/* Before the worker exists, so that none is missed. */
static int watch_signals(struct run *r, struct broker_why *w)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	r->signals = (struct broker_watch){.ready = on_signal, .ctx = r};
	if (sigprocmask(SIG_BLOCK, &set, NULL) ||
	    (r->signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0 ||
	    broker_watch_start(broker_epoll(r->broker), &r->signals, EPOLLIN))
		return broker_refuse_sys(w, "signalfd");
	return 0;
}

static int fail(const struct broker_why *w)
{
	broker_log(BROKER_ERROR, NULL, "%s", w->text);
	return 1;
}

static int serve(
    struct run *r, const struct broker_options *o, struct broker_worker *wk, struct broker_why *w)
{
	static const struct broker_keeper_events events = {on_ready, on_alive, on_ended};

	/* Not before: the namespace of pid 1 is hidden from who has fewer capabilities than it. */
	if (broker_caps_bound(BROKER_CAPS, w) || broker_caps_set(BROKER_CAPS, w) ||
	    watch_signals(r, w))
		return -1;
	r->keeper = broker_keeper_new(r->broker, o, wk);
	broker_keeper_observe(r->keeper, &events, r);
	if (broker_keeper_start(r->keeper, false, w))
		return -1;
	broker_log(BROKER_INFO, NULL, "agentd %s: run directory %s, worker %d as uid %u",
	    AGENTD_VERSION, o->run, (int)broker_keeper_pid(r->keeper), (unsigned)wk->user.uid);
	while (!r->ended)
		broker_keeper_turn(r->keeper);
	return 0;
}

static int run(const struct broker_options *o, struct broker_worker *wk)
{
	struct run r = {.signals.fd = -1};
	struct broker_kept *kept = broker_kept_new();
	struct broker_why w;

	r.broker = broker_new(o, kept, &w);
	if (!r.broker || serve(&r, o, wk, &w))
		r.code = fail(&w);
	broker_keeper_free(&r.keeper);
	broker_free(&r.broker);
	broker_kept_free(&kept);
	mem_closep(&r.signals.fd);
	return r.code;
}

/* 0, 1 and 2 must not be given to something else; files get the modes we name; a socket and its
 * kin for each pod need many fds. */
static int prepare_process(struct broker_why *w)
{
	struct rlimit files;
	int fd;

	while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
		;
	mem_closep(&fd);
	umask(S_IWGRP | S_IWOTH);
	signal(SIGPIPE, SIG_IGN); /* a log nobody reads any more */
	if (geteuid() != 0)
		return broker_refuse(w, EPERM,
		    "agentd must be started as root: it gives its worker sockets in pods' "
		    "directories "
		    "and lets it run without any privilege");
	if (!getrlimit(RLIMIT_NOFILE, &files)) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	return 0;
}

static int start(const struct broker_options *o)
{
	struct broker_worker wk;
	struct broker_why w;
	int code;

	if (o->mode == BROKER_HELP) {
		broker_options_help(stdout);
		return 0;
	}
	if (o->mode == BROKER_SHOW_VERSION) {
		printf("agentd %s\n", AGENTD_VERSION);
		return 0;
	}
	if (prepare_process(&w))
		return fail(&w);
	if (o->mode == BROKER_CHECK)
		return broker_check(o);
	if (broker_worker_open(&wk, o, &w))
		return fail(&w);
	if (!wk.user.known)
		broker_log(BROKER_WARN, NULL, "there is no user \"%s\": the worker runs as uid %u",
		    o->worker_user, (unsigned)wk.user.uid);
	code = run(o, &wk);
	broker_worker_close(&wk);
	return code;
}

int broker_main(int argc, char **argv)
{
	struct broker_options o;
	struct broker_why w;
	int code = USAGE;

	if (broker_options_parse(&o, argc, argv, &w))
		broker_log(BROKER_ERROR, NULL, "%s (see agentd --help)", w.text);
	else
		code = start(&o);
	broker_options_clear(&o);
	return code;
}
