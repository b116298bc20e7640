/* succession.c - two ways out, one way back, and one way in.
 *
 *   SIGUSR2 -> trial -> reaped, good -> the worker ends -> execveat(), and we are another one
 *   asked over <run>/handover        -> the worker ends -> all is given -> we end
 *   whatever fails                   -> the next worker starts, and all goes on
 *
 *   all was given to us -> our worker serves -> nothing is lost -> the one before may go
 *                                            -> something is, and time is over -> our worker ends
 *                                               -> it goes on
 *                       -> the one before has gone: we go on
 */
#include "succession.h"
#include "broker/base/rundir.h"
#include "broker/requests/broker.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/version.h"
#include "notify.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

LOG_SCOPE("broker");

enum { PAUSE_MAX_MS = 300000 };

static void go_on(struct succession *s)
{
	struct err e;

	if (keeper_start(s->keeper, true, &e))
		log_error(NULL, "the worker cannot be started: %s", e.msg);
}

/* --- an upgrade --- */

static void refuse(struct succession *s, const struct err *e)
{
	snprintf(s->refused, sizeof(s->refused), "no upgrade: %s", e->msg);
	log_error(NULL, "no upgrade, agentd %s goes on: %s", version_text, e->msg);
}

void succession_upgrade(struct succession *s)
{
	struct err e;

	if (s->before.conn >= 0) {
		err_set(&e, EBUSY, "this agentd is taking over from another one");
		refuse(s, &e);
		return;
	}
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
	alive_say(s->alive, ALIVE_OVER, "another agentd takes over");
	s->is_over = handover_give(&s->handover, s->kept, s->alive) == BROKER_HANDED_OVER;
	if (s->is_over)
		return;
	if (s->in_charge)
		alive_say(s->alive, ALIVE_READY, "");
	else
		alive_say(s->alive, ALIVE_NOT, s->lost);
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

	if (keeper_is_ending(s->keeper) || s->upgrade.trial || s->before.conn >= 0)
		handover_refuse(&s->handover, "it is ending, being upgraded, or taking over");
	else
		keeper_end(s->keeper, on_ended_for_handover, s);
}

/* --- our own trial --- */

int64_t succession_pause_ms(unsigned times, unsigned seconds)
{
	int64_t ms = (int64_t)seconds * 1000;

	while (times-- > 1 && ms < PAUSE_MAX_MS)
		ms *= 2;
	return ms < PAUSE_MAX_MS ? ms : PAUSE_MAX_MS;
}

static void end_trial(struct succession *s)
{
	broker_timer_set(&s->trial, -1);
	broker_hold_back(s->broker, false);
}

/* What the one before served is served: it is for us to go on. */
static void take_charge(struct succession *s)
{
	if (s->before.conn >= 0)
		end_trial(s);
	handover_done(&s->before);
	s->in_charge = true;
	alive_say(s->alive, ALIVE_READY, "");
}

void succession_served(struct succession *s, unsigned lost, const char *why)
{
	snprintf(s->lost, sizeof(s->lost), "%s", why);
	if (!lost && !s->in_charge)
		take_charge(s);
	else if (!s->in_charge)
		alive_say(s->alive, s->before.conn < 0 ? ALIVE_NOT : ALIVE_STARTING, why);
}

static void on_ended_to_give_back(void *ctx, int status)
{
	struct succession *s = ctx;

	(void)status;
	s->is_over = s->given_back = true;
}

/* Nobody is there to go on: better some pods than none. */
static void go_on_alone(struct succession *s)
{
	log_error(NULL, "the agentd before this one has gone; not served are: %s", s->lost);
	mem_closep(&s->before.conn);
	end_trial(s);
	alive_say(s->alive, ALIVE_NOT, s->lost);
}

static void give_up(struct succession *s)
{
	if (!*s->lost)
		snprintf(s->lost, sizeof(s->lost), "its worker was not ready in time");
	log_error(NULL, "all is given back, for pods would lose what they had: %s", s->lost);
	keeper_end(s->keeper, on_ended_to_give_back, s);
}

static void on_trial_too_long(void *ctx)
{
	struct succession *s = ctx;

	if (s->upgrade.trial)
		kill(s->upgrade.trial, SIGKILL);
	else if (s->before.conn < 0 || keeper_is_ending(s->keeper))
		return;
	else if (handover_is_waited_for(&s->before))
		give_up(s);
	else
		go_on_alone(s);
}

void succession_give_back(struct succession *s)
{
	handover_give_back(&s->before, s->lost);
}

/* --- life --- */

void succession_inherit(
    struct succession *s, struct broker_fdstore *k, struct alive *a, char **argv)
{
	*s = (struct succession){.kept = k, .alive = a, .before.conn = -1, .trial.watch.fd = -1};
	upgrade_open(&s->upgrade, argv);
	upgrade_receive(k);
	notify_open();
	notify_keep(k);
}

int succession_take_over(struct succession *s, const char *run, unsigned seconds, struct err *e)
{
	return handover_take(run, seconds, s->kept, &s->before, e);
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
	return n && s->before.conn < 0;
}

int succession_open(struct succession *s, const struct succession_of *of, struct err *e)
{
	int epoll = broker_epoll(of->broker);

	s->broker = of->broker;
	s->keeper = of->keeper;
	s->run = of->run;
	if (broker_timer_open(&s->trial, epoll, on_trial_too_long, s))
		return err_sys(e, "timerfd");
	if (s->before.conn >= 0) {
		broker_hold_back(s->broker, true);
		broker_timer_set(&s->trial, (int64_t)of->seconds * 1000);
	}
	return alive_watch(s->alive, epoll, e) ||
		       handover_open(&s->handover, epoll, of->run, on_asked, s, e)
		   ? -1
		   : 0;
}

/* What the one before waits for it hears last: succession_give_back(), or our end. */
void succession_close(struct succession *s)
{
	alive_unwatch(s->alive);
	handover_close(&s->handover);
	upgrade_close(&s->upgrade);
	broker_timer_close(&s->trial);
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
