/* succession.c - two ways out, one way back.
 *
 *   SIGUSR2 -> trial -> reaped, good -> the worker ends -> execveat(), and we are another one
 *   asked over <run>/handover        -> the worker ends -> all is given -> we end
 *   whatever fails                   -> the next worker starts, and all goes on
 */
#include "succession.h"
#include "broker/base/rundir.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/version.h"
#include "notify.h"
#include <signal.h>
#include <string.h>

LOG_SCOPE("broker");

static void go_on(struct succession *s)
{
	struct err e;

	if (keeper_start(s->keeper, true, &e))
		log_error(NULL, "the worker cannot be started: %s", e.msg);
}

/* --- an upgrade --- */

static void on_trial_too_long(void *ctx)
{
	struct succession *s = ctx;

	if (s->upgrade.trial)
		kill(s->upgrade.trial, SIGKILL);
}

static void refuse(struct succession *s, const struct err *e)
{
	snprintf(s->refused, sizeof(s->refused), "no upgrade: %s", e->msg);
	log_error(NULL, "no upgrade, agentd %s goes on: %s", version_text, e->msg);
}

void succession_upgrade(struct succession *s)
{
	struct err e;

	if (upgrade_try(&s->upgrade, s->kept, &e)) {
		refuse(s, &e);
		return;
	}
	s->refused[0] = '\0';
	log_info(NULL, "an upgrade is tried: %s", s->upgrade.path);
	broker_timer_set(&s->trial, BROKER_TRIAL_MS);
}

static void on_ended_for_upgrade(void *ctx, int status)
{
	struct succession *s = ctx;
	struct err e;

	(void)status;
	upgrade_exec(&s->upgrade, s->kept, &e);
	refuse(s, &e);
	go_on(s);
}

bool succession_reaped(struct succession *s, pid_t pid, int status)
{
	struct err e;

	if (!pid || pid != s->upgrade.trial)
		return false;
	broker_timer_set(&s->trial, -1);
	if (upgrade_tried(&s->upgrade, status, &e)) {
		refuse(s, &e);
	} else if (keeper_is_ending(s->keeper)) {
		upgrade_drop(&s->upgrade);
	} else {
		log_info(NULL, "the trial went well; the worker ends");
		notify_reloading();
		keeper_end(s->keeper, on_ended_for_upgrade, s);
	}
	return true;
}

/* --- a hand-over --- */

static void sign_again(void *ctx, const char *name, int fd)
{
	if (!strcmp(name, BROKER_RUNDIR_LOCK))
		broker_rundir_sign(fd, ctx);
}

static void on_ended_for_handover(void *ctx, int status)
{
	struct succession *s = ctx;
	int epoll = s->handover.epoll;
	struct err e;

	(void)status;
	s->is_over = handover_give(&s->handover, s->kept) == BROKER_HANDED_OVER;
	if (s->is_over)
		return;
	/* The other one may have put its pid and its socket where ours were. */
	broker_fdstore_each(s->kept, BROKER_FDSTORE, sign_again, &e);
	handover_close(&s->handover);
	if (handover_open(&s->handover, epoll, s->run, s->handover.asked, s, &e))
		log_error(NULL, "%s", e.msg);
	go_on(s);
}

static void on_asked(void *ctx)
{
	struct succession *s = ctx;

	if (keeper_is_ending(s->keeper) || s->upgrade.trial)
		handover_refuse(&s->handover, "it is ending, or being upgraded");
	else
		keeper_end(s->keeper, on_ended_for_handover, s);
}

/* --- life --- */

void succession_inherit(struct succession *s, struct broker_fdstore *k, char **argv)
{
	*s = (struct succession){.kept = k, .before = -1, .trial.watch.fd = -1};
	upgrade_open(&s->upgrade, argv);
	upgrade_receive(k);
	notify_open();
	notify_keep(k);
}

int succession_take_over(struct succession *s, const char *run, struct err *e)
{
	return handover_take(run, s->kept, &s->before, e);
}

static void count_any(void *ctx, const char *name, int fd)
{
	(void)name;
	(void)fd;
	*(unsigned *)ctx += 1;
}

bool succession_is_patient(const struct succession *s)
{
	unsigned n = 0;

	broker_fdstore_each(s->kept, BROKER_FOUND, count_any, &n);
	return n && s->before < 0;
}

int succession_open(
    struct succession *s, struct keeper *keeper, int epoll, const char *run, struct err *e)
{
	s->keeper = keeper;
	s->run = run;
	if (broker_timer_open(&s->trial, epoll, on_trial_too_long, s))
		return err_sys(e, "timerfd");
	return handover_open(&s->handover, epoll, run, on_asked, s, e);
}

void succession_close(struct succession *s)
{
	handover_close(&s->handover);
	upgrade_close(&s->upgrade);
	broker_timer_close(&s->trial);
	mem_closep(&s->before);
	notify_close();
}

static void count_pods(void *ctx, const char *name, int fd)
{
	const char *dot = strrchr(name, '.');

	(void)fd;
	*(unsigned *)ctx += dot && !strcmp(dot, ".sds");
}

static void tell(struct succession *s, const char *what)
{
	unsigned pods = 0;

	broker_fdstore_each(s->kept, BROKER_FDSTORE, count_pods, &pods);
	notify("%s=1\nSTATUS=%u pods, worker %d", what, pods, (int)keeper_pid(s->keeper));
}

void succession_ready(struct succession *s)
{
	handover_done(&s->before);
	tell(s, "READY");
}

void succession_alive(struct succession *s)
{
	tell(s, "WATCHDOG");
}

const char *succession_problem(const struct succession *s)
{
	return *s->refused ? s->refused : notify_problem();
}
