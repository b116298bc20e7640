/* alive.h - this very agentd answers: does its broker turn, and is it ready?
 *
 * With --alive, at that path, 0600, SOCK_SEQPACKET: root connects, is sent one packet, and is hung
 * up on; nothing is read.  Two agentds share <run> during a hand-over, and admin.sock answers for
 * the one that has the pods.  A kubelet asks each container about itself, so each has a place of
 * its own, and answers also while it has no worker: while it hands over, waits, or lingers.
 */
#pragma once
#include "broker/base/loop.h"
#include "common/err.h"
#include <stdint.h>

enum alive_word {
	ALIVE_STARTING, /* "starting": nothing can be said yet; never again once something was */
	ALIVE_READY,    /* "ready": it has the pods, and all that the one before it served */
	ALIVE_NOT,      /* "not ready", and a line for each reason */
	ALIVE_OVER,     /* "over": another agentd has the pods */
};
enum { ALIVE_WHY_SIZE = 4096 };

struct alive {
	struct broker_watch watch; /* of the listener; fd -1: nobody asks */
	int epoll;                 /* -1: it is not watched */
	enum alive_word word;
	char why[ALIVE_WHY_SIZE];
};
/* `path` NULL: nobody asks. */
int alive_open(struct alive *a, const char *path, struct err *e);
void alive_close(struct alive *a);
void alive_say(struct alive *a, enum alive_word word, const char *why);

/* While a loop runs. */
int alive_watch(struct alive *a, int epoll, struct err *e);
void alive_unwatch(struct alive *a);
/* Where none does: answers all who ask now.  `a->watch.fd` is readable if somebody does. */
void alive_answer(struct alive *a);
/* Answers until `ms` have passed (-1: for ever), or `process` (a pidfd, or -1) has ended: false;
 * or until SIGTERM or SIGINT, which are blocked: true. */
bool alive_rest(struct alive *a, int process, int64_t ms);
