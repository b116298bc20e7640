/* main.c - agentd-worker: configuration from the broker's fd and our flags, loop, agent, run.
 *
 * Ends on SIGTERM or SIGINT (0) and when the broker goes away (1): the sockets live on in the next
 * broker, so there is nothing to save here.
 */
#include "agent.h"
#include "base/err.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "config.h"
#include "priv/protocol.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

LOG_SCOPE("main");

#ifndef __has_feature /* clang's */
#define __has_feature(x) 0
#endif

enum { CONFIG_SIZE_MAX = 1 << 20 };

struct worker {
	struct loop *loop;
	struct loop_fd signals;
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

static void on_signal(void *ctx)
{
	struct worker *w = ctx;
	struct signalfd_siginfo info;
	unsigned signo;

	if (read(w->signal_fd, &info, sizeof(info)) != sizeof(info))
		return;
	signo = info.ssi_signo;
	log_info(NULL, "signal %u: ending", signo);
	loop_stop(w->loop);
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
	struct agent *agent = agent_new(w->loop, c, PRIV_FD, e);
	bool lost;

	if (!agent)
		return -1;
	loop_fd_watch(w->loop, &w->signals, w->signal_fd, LOOP_READ, on_signal, w);
	loop_run(w->loop);
	loop_fd_stop(&w->signals);
	lost = agent_broker_lost(agent);
	agent_free(&agent);
	return lost ? err_set(e, ERR_UNAVAILABLE, "the broker went away") : 0;
}

static int serve(const struct config *c, struct err *e)
{
	struct worker w = {.signal_fd = -1};
	int rc = -1;

	if (!watch_signals(&w, e) && (w.loop = loop_new(e)))
		rc = run_agent(&w, c, e);
	loop_free(&w.loop);
	if (w.signal_fd >= 0)
		close(w.signal_fd);
	return rc;
}

/* Keys must not reach a core handler (which a core size of 0 does not stop if it is a pipe), nor a
 * debugger of the same user.  LeakSanitizer is such a debugger. */
static void keep_memory_private(void)
{
#if !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer)
	prctl(PR_SET_DUMPABLE, 0);
#endif
}

int main(int argc, char **argv)
{
	struct config config = {0};
	auto_free char *text = NULL;
	size_t len = 0;
	struct err e = {0};

	keep_memory_private();
	if (argc == 2 && !strcmp(argv[1], "--help")) {
		config_help(stdout);
		return 0;
	}
	/* The broker starts us by fd; kernels before 6.14 make the fd's number our name. */
	prctl(PR_SET_NAME, "agentd-worker");
	log_init(false);
	text = read_config(PRIV_CONFIG_FD, &len, &e);
	if (!text || config_load(&config, "agentd.yaml", text, len, argc, argv, &e) ||
	    log_set_levels(config.log_level, &e)) {
		log_error(NULL, "%s", e.msg);
		config_clear(&config);
		return 2;
	}
	log_init(config.log_json);
	if (config.check) {
		printf("configuration  ok: %zu control plane%s\n", config.nplanes,
		    config.nplanes == 1 ? "" : "s");
	} else if (serve(&config, &e)) {
		log_error(NULL, "%s", e.msg);
		config_clear(&config);
		return 1;
	}
	config_clear(&config);
	return 0;
}
