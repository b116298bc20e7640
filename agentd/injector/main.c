/* main.c - agentd-injector: the command line -> the port -> files -> the cage -> loop -> SIGTERM ->
 * 15 s in which every request is still answered -> the end.
 *
 * It needs no privilege, and gives up what it has not used: see cage.h.
 */
#include "base/loop.h"
#include "base/metrics.h"
#include "cage.h"
#include "common/err.h"
#include "common/flags.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/version.h"
#include "connections.h"
#include "injector.h"
#include "keeper.h"
#include "listen.h"
#include "options.h"
#include "server.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

LOG_SCOPE("main");

enum { USAGE = 2, OWN_FDS = 64 };

struct program {
	struct loop *loop;
	struct injector *injector;
	struct keeper *keeper; /* NULL: the certificate comes from files */
	struct loop_fd signals;
	int signal_fd;
	bool stopping;
};

static void on_stopped(void *ctx)
{
	struct program *p = ctx;

	loop_stop(p->loop);
}

/* A second one does not wait. */
static void on_signal(void *ctx)
{
	struct program *p = ctx;
	struct signalfd_siginfo info;

	if (read(p->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (p->stopping) {
		loop_stop(p->loop);
		return;
	}
	p->stopping = true;
	log_info(NULL, "signal %u: ending in %d s", info.ssi_signo, SERVER_STOP_MS / 1000);
	server_stop(injector_server(p->injector), SERVER_STOP_MS, on_stopped, p);
}

static int watch_signals(struct program *p, struct err *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL) ||
	    (p->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
		return err_sys(e, "signalfd");
	loop_fd_watch(p->loop, &p->signals, p->signal_fd, LOOP_READ, on_signal, p);
	return 0;
}

static int make_room_for_fds(struct err *e)
{
	const rlim_t wanted = connections_usual.connections + OWN_FDS;
	struct rlimit most;

	if (getrlimit(RLIMIT_NOFILE, &most))
		return err_sys(e, "getrlimit");
	if (most.rlim_cur >= wanted)
		return 0;
	most.rlim_cur = wanted;
	return setrlimit(RLIMIT_NOFILE, &most)
		   ? err_sys(e, "%lu open files are needed (ulimit -n)", (unsigned long)wanted)
		   : 0;
}

static int find_certificate(struct program *p, const struct options *o, struct err *e)
{
	const struct keeper_objects objects = {
	    o->secret, o->webhook, o->server_name, o->kube_dir, o->look_ms};
	struct server *s = injector_server(p->injector);

	if (o->tls_cert)
		server_ready_set(s, NULL);
	else
		p->keeper = keeper_new(p->loop, s, &objects, e);
	return o->tls_cert || p->keeper ? 0 : -1;
}

static int run(struct program *p, const struct options *o, struct err *e)
{
	int fd = listen_on(o->listen, e);

	if (fd < 0 || !(p->injector = injector_new(p->loop, o, fd, e)) || watch_signals(p, e) ||
	    find_certificate(p, o, e) || cage_close(e))
		return -1;
	log_info(NULL, "agentd-injector %s listens at %s", version_text, o->listen);
	loop_run(p->loop);
	return 0;
}

static int start(const struct options *o)
{
	struct program p = {.signal_fd = -1};
	struct err e;
	int rc = 1;

	if (log_set_own_levels(o->log_level, &e) || make_room_for_fds(&e) ||
	    !(p.loop = loop_new(&e)) || run(&p, o, &e))
		log_error(NULL, "%s", e.msg);
	else
		rc = 0;
	loop_fd_stop(&p.signals);
	mem_closep(&p.signal_fd);
	keeper_free(&p.keeper);
	injector_free(&p.injector);
	loop_free(&p.loop);
	metrics_clear();
	return rc;
}

int main(int argc, char **argv)
{
	struct options o;
	struct err e;

	if (options_read(&o, argc, argv, &e)) {
		log_init(flags_log_json(argc, argv) > 0);
		log_error(NULL, "%s (see agentd-injector --help)", e.msg);
		return USAGE;
	}
	if (o.help)
		options_help(stdout);
	else if (o.version)
		printf("agentd-injector %s\n", version_text);
	if (o.help || o.version)
		return 0;
	log_init(o.log_json);
	log_detach();
	return start(&o);
}
