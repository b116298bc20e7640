/* keeper.h - one worker after the other: start, ready, death, the next one.
 *
 * An end before the first worker was ever ready is the broker's end (a bad configuration must be
 * seen at once); after that each death is answered by a new worker, which gets the same sockets.
 */
#pragma once
#include "broker/requests/broker.h"
#include "common/err.h"
#include "worker.h"
#include <sys/types.h>

struct keeper;

struct keeper_events {
	void (*ready)(void *ctx); /* of each worker, once: all pods are listened for or refused */
	/* broker.h; of each worker, after `ready`. */
	void (*served)(void *ctx, unsigned lost, const char *why);
	/* The worker's loop turned (it sent a packet), or there is rightly none at the moment. */
	void (*alive)(void *ctx);
	void (*failed)(void *ctx, int status); /* of wait(2): the first worker was never ready */
	const char *(*problem)(void *ctx);     /* for people; NULL: there is none */
};

/* `b` and `wk` must live longer; `wk` is open. */
struct keeper *keeper_new(struct broker *b, const struct broker_options *o, struct life_worker *wk);
void keeper_free(struct keeper **k); /* kills a worker that runs */
void keeper_observe(struct keeper *k, const struct keeper_events *ev, void *ctx);
/* Pings every sixth of the period, and replaces a worker that says nothing for half of it. */
int keeper_watchdog(struct keeper *k, int64_t period_ms, struct err *e);

/* The first worker, or the next one after keeper_end().  `patient`: we hold sockets of an earlier
 * broker that would be lost, so even the first failure is only a reason to wait. */
int keeper_start(struct keeper *k, bool patient, struct err *e);
/* Ends the worker in order; no other one is started.  SIGTERM; it hangs up within four seconds and
 * exits within ten more, or SIGKILL.  `done` runs
 * once, from the loop, with the status of wait(2).  A second call replaces `done`. */
typedef void (*keeper_ended)(void *ctx, int status);
void keeper_end(struct keeper *k, keeper_ended done, void *ctx);
bool keeper_is_ending(const struct keeper *k);
/* True: it was the worker's.  Call it for each child that was waited for. */
bool keeper_reaped(struct keeper *k, pid_t pid, int status);
void keeper_turn(struct keeper *k);       /* one event of the broker's loop */
pid_t keeper_pid(const struct keeper *k); /* 0: none runs */

/* How long to wait before the next worker. Pure.
 *
 * A worker that dies before it was ready, or by itself (an end, a crash, a rule that it broke,
 * silence), waits twice as long each time.  One that somebody killed was well: what kills workers
 * must not take the node's service away by it.  It may have been the kernel, for memory, so a floor
 * bounds how often that happens. */
struct broker_backoff {
	int64_t delay_ms;   /* before the next start */
	unsigned in_a_row;  /* deaths by itself without a good life in between */
	unsigned killed;    /* the same, by somebody */
	unsigned forbidden; /* the last ones by itself that were a forbidden system call */
};
struct broker_death {
	int status;       /* of wait(2) */
	int64_t lived_ms; /* since READY; -1: it was never ready */
	bool by_us;       /* we killed it, for it broke a rule or was silent */
};
/* `previous` zeroed: there was no death. */
struct broker_backoff broker_backoff_next(
    struct broker_backoff previous, const struct broker_death *d);
