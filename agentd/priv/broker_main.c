/* broker_main.c - start, serve, end.
 *
 * options -> what the worker needs is opened -> run directory, lock, admin.sock -> capabilities we
 * do not need are dropped -> socketpair, greeting, fork -> serve.  The end: SIGTERM or SIGINT is
 * passed on to the worker as SIGTERM, which has ten seconds; a worker that closes its end has ten
 * seconds to exit; one that breaks the protocol has none.  Its wait status is ours.  Sockets' files
 * stay: the next broker renames fresh ones over them, and what pods have mounted stays mounted.
 */
#include "broker_main.h"
#include "../base/mem.h"
#include "broker_caps.h"
#include "broker_check.h"
#include "broker_core.h"
#include "broker_loop.h"
#include "broker_worker.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

enum { USAGE = 2, PATIENCE_MS = 10000 };

struct run {
	struct broker *broker;
	struct broker_watch signals;
	pid_t worker;
	bool asked;       /* to end, by a signal */
	int64_t deadline; /* of the worker, monotonic ms; 0: none */
	bool ended;
	int status; /* of wait(2) */
};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void expect_end(struct run *r)
{
	if (!r->deadline)
		r->deadline = now_ms() + PATIENCE_MS;
}

/* As process 1 of a container we reap strangers too. */
static void reap(struct run *r)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
		if (pid != r->worker)
			continue;
		r->ended = true;
		r->status = status;
	}
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
		r->asked = true;
		if (!r->ended)
			kill(r->worker, SIGTERM);
		expect_end(r);
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

static int start_worker(struct run *r, const struct broker_worker *wk,
    const struct broker_options *o, struct broker_why *w)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair))
		return broker_refuse_sys(w, "socketpair");
	auto_close int theirs = pair[1];
	if (broker_attach(r->broker, pair[0], w))
		return -1;
	r->worker = broker_worker_start(wk, o, theirs, NULL, w);
	return r->worker < 0 ? -1 : 0;
}

static void serve(struct run *r)
{
	while (!r->ended) {
		int64_t left = r->deadline ? r->deadline - now_ms() : -1;
		if (r->deadline && left <= 0) {
			broker_log(
			    BROKER_WARN, NULL, "the worker did not end in time and is killed");
			kill(r->worker, SIGKILL);
			r->deadline = 0;
			left = -1;
		}
		enum broker_state state = broker_turn(r->broker, (int)left);
		if (state == BROKER_WORKER_BROKE && !r->ended)
			kill(r->worker, SIGKILL);
		else if (state == BROKER_WORKER_LEFT)
			expect_end(r);
	}
}

/* A worker that dies of our SIGTERM before it could handle it ended as asked. */
static int say_how_it_ended(const struct run *r)
{
	char how[BROKER_ENDED_SIZE];
	int code = broker_worker_exit_code(r->status);

	if (r->asked && WIFSIGNALED(r->status) && WTERMSIG(r->status) == SIGTERM)
		code = 0;
	broker_worker_ended(r->status, how);
	broker_log(code ? BROKER_ERROR : BROKER_INFO, NULL, "the worker ended: %s", how);
	return code;
}

static int fail(const struct broker_why *w)
{
	broker_log(BROKER_ERROR, NULL, "%s", w->text);
	return 1;
}

static int run(const struct broker_options *o, struct broker_worker *wk)
{
	struct run r = {.signals.fd = -1};
	struct broker_why w;
	int code;

	r.broker = broker_new(o, &w);
	if (!r.broker)
		return fail(&w);
	/* Not before: the namespace of pid 1 is hidden from who has fewer capabilities than it. */
	uint64_t caps = BROKER_CAPS | (o->redirect ? BROKER_CAPS_REDIRECT : 0);
	if (broker_caps_bound(caps, &w) || broker_caps_set(caps, &w) || watch_signals(&r, &w) ||
	    start_worker(&r, wk, o, &w)) {
		code = fail(&w);
	} else {
		broker_log(BROKER_INFO, NULL, "agentd %s: run directory %s, worker %d as uid %u",
		    AGENTD_VERSION, o->run, (int)r.worker, (unsigned)wk->user.uid);
		serve(&r);
		code = say_how_it_ended(&r);
	}
	broker_free(&r.broker);
	mem_closep(&r.signals.fd);
	return code;
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
