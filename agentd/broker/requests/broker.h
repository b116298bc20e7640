/* broker.h - the broker: one worker at a time, its requests and their answers. */
#pragma once
#include "broker/base/options.h"
#include "common/err.h"
#include <stdbool.h>

struct broker;
struct broker_fdstore;

enum broker_turned {
	BROKER_SERVING,
	BROKER_WORKER_LEFT,     /* its end of the pair is closed */
	BROKER_WORKER_BROKE,    /* the protocol: kill it; the reason is logged */
	BROKER_WORKER_OUTDATED, /* the same, through no fault of its own */
};

/* Takes over the run directory: makes it, locks it, listens on admin.sock.  `kept` must live
 * longer; what an earlier broker left is found in it before this is called. */
struct broker *broker_new(
    const struct broker_options *o, struct broker_fdstore *kept, struct err *e);
void broker_free(struct broker **b);
void broker_leave(struct broker *b);      /* before that: another one has taken all over */
int broker_epoll(const struct broker *b); /* for further watches */

struct broker_events {
	void (*ready)(void *ctx); /* what the worker did not claim was swept */
	/* Pods that lost what an earlier worker gave them, or may have: how many, and a line of
	 * names and reasons for each.  The last time: 0. */
	void (*served)(void *ctx, unsigned lost, const char *why);
	void (*heard)(void *ctx);          /* a packet of the worker's: it turns */
	const char *(*problem)(void *ctx); /* for people; NULL: there is none */
};
void broker_observe(struct broker *b, const struct broker_events *ev, void *ctx);

/* Another agentd may take everything back: until `hold` is false nothing that it left is swept or
 * deleted.  The worker asks again for what it wants deleted. */
void broker_hold_back(struct broker *b, bool hold);

/* Greets the worker behind `fd` (taken) and serves it from then on. */
int broker_attach(struct broker *b, int fd, struct err *e);
/* The worker was killed, and nobody of ours did it; before the next one is attached.  True: for the
 * memory of some pods, as it seems, and these wait. */
bool broker_blame(struct broker *b);
/* Its connection, follows and lists end; pods and sockets stay for the next one. */
void broker_detach(struct broker *b);
/* A child has ended: a worker that was not read while too many closed its descriptors is again. */
void broker_reaped(struct broker *b);
/* As soon as there is room for it: a worker that is told much gets it, too.  Says besides how the
 * broker is. */
void broker_ping(struct broker *b, uint32_t ping);
enum broker_turned broker_turn(struct broker *b, int timeout_ms); /* handles one event at most */
