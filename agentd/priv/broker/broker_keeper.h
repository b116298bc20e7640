/* broker_keeper.h - one worker after the other: start, ready, death, the next one.
 *
 * An end before the first worker was ever ready is the broker's end (a bad configuration must be
 * seen at once); after that each death is answered by a new worker, which gets the same sockets.
 */
#pragma once
#include "broker/requests/requests.h"
#include "broker_worker.h"
#include <sys/types.h>

struct broker_keeper;

struct broker_keeper_events {
	void (*ready)(void *ctx); /* of each worker, once: all pods are listened for or refused */
	/* The worker's loop turned (it answered a ping), or there is rightly none at the moment. */
	void (*alive)(void *ctx);
	void (*failed)(void *ctx, int status); /* of wait(2): the first worker was never ready */
};

/* `b` and `wk` must live longer; `wk` is open. */
struct broker_keeper *broker_keeper_new(
    struct broker *b, const struct broker_options *o, struct broker_worker *wk);
void broker_keeper_free(struct broker_keeper **k); /* kills a worker that runs */
void broker_keeper_observe(
    struct broker_keeper *k, const struct broker_keeper_events *ev, void *ctx);
/* Pings every sixth of the period, and replaces a worker that is silent for half of it. */
int broker_keeper_watchdog(struct broker_keeper *k, int64_t period_ms, struct broker_why *w);

/* The first worker, or the next one after broker_keeper_end().  `patient`: sockets of an earlier
 * broker are held and would be lost, so that even the first failure is only a reason to wait. */
int broker_keeper_start(struct broker_keeper *k, bool patient, struct broker_why *w);
/* Ends the worker in order (SIGTERM, ten seconds, SIGKILL); no other one is started.  `done` runs
 * once, from the loop, with the status of wait(2).  A second call replaces `done`. */
typedef void (*broker_keeper_ended)(void *ctx, int status);
void broker_keeper_end(struct broker_keeper *k, broker_keeper_ended done, void *ctx);
bool broker_keeper_is_ending(const struct broker_keeper *k);
/* True: it was the worker's.  Call it for each child that was waited for. */
bool broker_keeper_reaped(struct broker_keeper *k, pid_t pid, int status);
void broker_keeper_turn(struct broker_keeper *k);       /* one event of the broker's loop */
pid_t broker_keeper_pid(const struct broker_keeper *k); /* 0: none runs */

/* How long to wait before the next worker. Pure. */
struct broker_backoff {
	int64_t delay_ms;   /* before the next start */
	unsigned in_a_row;  /* deaths without a good life in between */
	unsigned forbidden; /* the last ones of these that were a forbidden system call */
};
/* `previous` zeroed: there was no death.  `lived_ms`: since READY; -1: it was never ready. */
struct broker_backoff broker_backoff_next(
    struct broker_backoff previous, int status, int64_t lived_ms);
