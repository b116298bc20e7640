/* main.c - agentd-worker: configuration from the broker's fd and our flags, the cage, loop, agent,
 * run.
 *
 * Ends on SIGTERM or SIGINT (0) and when the broker goes away (1): the sockets live on in the next
 * broker, so there is nothing to save here.
 */
#include "agent.h"
#include "base/loop.h"
#include "border/protocol.h"
#include "check.h"
#include "common/err.h"
#include "common/flags.h"
#include "common/log.h"
#include "common/mem.h"
#include "first_call.h"
#include "worker/config/config.h"
#include "worker/crypto/library.h"
#include "worker/link/cage.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

LOG_SCOPE("main");

enum { CONFIG_SIZE_MAX = 1 << 20 };

/* Enough for --max-pods' 1024 with 16 each: listeners, connections, their processes, DNS. */
enum { FDS_AT_ONCE = 16 * 1024 };

/* Who was accepted is greeted; the rest waits in the backlog for the next worker. */
enum { GRACE_MS = 100 };

struct worker {
	struct loop *loop;
	struct agent *agent;
	struct loop_fd signals;
	struct loop_timer grace;
	int signal_fd;
};

/* The broker opened the file: the worker could not read it itself. */
static char *read_config(int fd, size_t *len, struct err *e)
{
	auto_free char *text = mem_zalloc(CONFIG_SIZE_MAX + 1);
	ssize_t n;

	for (*len = 0; *len < CONFIG_SIZE_MAX; *len += (size_t)n) {
		n = read(fd, text + *len, CONFIG_SIZE_MAX - *len);
		if (n < 0 && errno == EINTR)
			n = 0;
		else if (n < 0) {
			err_sys(e, "read agentd.yaml");
			return NULL;
		} else if (n == 0)
			return mem_realloc(take(text), *len + 1);
	}
	err_set(e, EFBIG, "agentd.yaml is larger than 1 MiB");
	return NULL;
}

/* When the table of descriptors grows in a process with threads, the kernel waits for an RCU grace
 * period, and our loop with it: 10 ms and more, each time that it doubles.  So it grows once,
 * before there are threads, by a high number; it does not shrink when that is closed.  That is
 * 132 KiB of the kernel's memory.  Beyond it the table grows as ever. */
static void make_room_for_fds(void)
{
	struct rlimit most;

	if (getrlimit(RLIMIT_NOFILE, &most) || most.rlim_cur == 0)
		return;
	int last = (int)(most.rlim_cur < FDS_AT_ONCE ? most.rlim_cur : FDS_AT_ONCE) - 1;
	int fd = fcntl(LINK_FD, F_DUPFD_CLOEXEC, last);
	mem_closep(&fd);
}

static void on_grace_over(void *ctx)
{
	struct worker *w = ctx;

	loop_stop(w->loop);
}

static void on_signal(void *ctx)
{
	struct worker *w = ctx;
	struct signalfd_siginfo info;
	unsigned signo;

	if (read(w->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	signo = info.ssi_signo;
	log_info(NULL, "signal %u: ending", signo);
	agent_stop_accepting(w->agent);
	loop_timer_in(w->loop, &w->grace, GRACE_MS, on_grace_over, w);
}

/* Signals are blocked before any thread exists, so that they all come out of this fd. */
static int watch_signals(struct worker *w, struct err *e)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	if (sigprocmask(SIG_BLOCK, &set, NULL) ||
	    (w->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
		return err_sys(e, "signalfd");
	return 0;
}

static int run_agent(struct worker *w, const struct config *c, struct err *e)
{
	bool lost;

	if (!(w->agent = agent_new(w->loop, c, LINK_FD, e)))
		return -1;
	loop_fd_watch(w->loop, &w->signals, w->signal_fd, LOOP_READ, on_signal, w);
	loop_run(w->loop);
	loop_fd_stop(&w->signals);
	loop_timer_stop(&w->grace);
	lost = agent_broker_lost(w->agent);
	agent_free(&w->agent);
	return lost ? err_set(e, ERR_UNAVAILABLE, "the broker went away") : 0;
}

static int serve(const struct config *c, struct err *e)
{
	struct worker w = {.signal_fd = -1};
	int rc = -1;

	make_room_for_fds();
	if (!watch_signals(&w, e) && (w.loop = loop_new(e)))
		rc = run_agent(&w, c, e);
	loop_free(&w.loop);
	if (w.signal_fd >= 0)
		close(w.signal_fd);
	return rc;
}

/* Before the settings are read: it is none of them. */
static bool take_no_privsep(int *argc, char **argv)
{
	int i = 1;

	while (i < *argc && strcmp(argv[i], "--no-privsep") != 0)
		i++;
	if (i == *argc)
		return false;
	memmove(argv + i, argv + i + 1, (size_t)(*argc - i) * sizeof(*argv));
	--*argc;
	return true;
}

/* The configuration is root's and was read before, so that the ports are known. */
static int enter_cage(const struct config *c, struct err *e)
{
	auto_free uint16_t *ports = mem_zalloc(c->nplanes * sizeof(*ports));

	for (size_t i = 0; i < c->nplanes; i++) {
		const char *colon = strrchr(c->planes[i].address, ':');
		ports[i] = colon ? (uint16_t)strtoul(colon + 1, NULL, 10) : 0;
	}
	return cage_enter(ports, c->nplanes, e);
}

/* The exit status; `e` is filled if a line of the log is to say why. */
static int run(const struct config *c, bool confined, struct err *e)
{
	if (!confined)
		cage_stay_out();
	else if (enter_cage(c, e))
		return 1;
	if (c->check_state)
		return first_call_make(e) ? 1 : 0;
	if (c->check || c->connect)
		return worker_check(c, LINK_FD);
	return serve(c, e) ? 1 : 0;
}

/* The broker says it last; the settings may be what could not be read. */
static bool is_trial(int argc, char **argv)
{
	return argc > 1 && !strcmp(argv[argc - 1], "--check-state");
}

/* A trial's reason is for the agentd that runs, which logs it (broker/life/upgrade.h). */
static void say(bool trial, const char *why)
{
	if (trial)
		puts(why);
	else
		log_error(NULL, "%s", why);
}

#ifdef __SANITIZE_ADDRESS__
/* LeakSanitizer looks at the end of main(), and takes what a thread of grpc is just freeing for
 * lost. */
enum { FREEING_US = 100 * 1000 };
#else
enum { FREEING_US = 0 };
#endif

int main(int argc, char **argv)
{
	bool confined = !take_no_privsep(&argc, argv);
	struct config config = {0};
	auto_free char *text = NULL;
	size_t len = 0;
	struct err e = {0};
	int status = 0;

	if (confined)
		cage_hide_memory();
	library_stays();
	json_set_alloc_funcs(malloc, mem_wipe_free_block); /* tokens come as JSON */
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		flags_help(stdout, FLAG_WORKER);
		return 0;
	}
	/* The broker starts us by fd; kernels before 6.14 make the fd's number our name. */
	prctl(PR_SET_NAME, "agentd-worker");
	log_init(flags_log_json(argc, argv) > 0);
	text = read_config(LINK_CONFIG_FD, &len, &e);
	if (!text ||
	    config_load(&config, &(struct config_file){"agentd.yaml", text, len}, argc, argv, &e) ||
	    log_set_levels(config.log_level, &e)) {
		status = 2;
	} else {
		log_init(config.log_json);
		status = run(&config, confined, &e);
	}
	if (status && *e.msg)
		say(is_trial(argc, argv), e.msg);
	config_clear(&config);
	usleep(FREEING_US);
	return status;
}
