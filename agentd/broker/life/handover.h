/* handover.h - another agentd process takes over all that this one keeps.
 *
 * <run>/handover, 0600, SOCK_SEQPACKET.  For a DaemonSet's surge: unlike an upgrade in place the
 * two live side by side for a while, and the old one goes only when the new one serves what it
 * served.  The lock travels with the rest, so it is never free.  The asking agentd must be root,
 * and not just of its own user namespace, and in our network namespace (security-rules.md 7).
 */
#pragma once
#include "alive.h"
#include "broker/base/fdstore.h"
#include "broker/base/loop.h"
#include "common/err.h"
#include <stdbool.h>
#include <sys/types.h>

enum { HANDOVER_VERSION = 1, HANDOVER_CALLERS = 4, HANDOVER_SECONDS_MAX = 240 };

/* --- the old one --- */

typedef void (*handover_asked)(void *ctx);

struct handover;
struct handover_caller { /* it may ask, and has not yet; watch.ready NULL: nobody */
	struct broker_watch watch;
	struct handover *of;
	pid_t pid;
};

struct handover {
	struct broker_watch watch; /* of the listener */
	struct handover_caller callers[HANDOVER_CALLERS];
	unsigned next;
	int epoll, conn; /* conn: to the asking agentd; -1: none */
	pid_t peer;
	unsigned wants_s; /* to become ready in; 0: an older release */
	handover_asked asked;
	void *ctx;
};
/* `asked` runs when an agentd that may do so has asked: end the worker, then give (or refuse). */
int handover_open(
    struct handover *h, int epoll, const char *run, handover_asked asked, void *ctx, struct err *e);
void handover_close(struct handover *h);
void handover_refuse(struct handover *h, const char *why);

enum broker_handed {
	BROKER_HANDED_OVER, /* end, and touch nothing more */
	BROKER_HANDED_BACK, /* it failed (logged) and is gone: open again, start a worker */
};
/* Waits until the new one is ready, gives back or is gone, and answers `a` meanwhile; SIGTERM and
 * SIGINT (blocked) end the waiting. */
enum broker_handed handover_give(struct handover *h, struct broker_fdstore *k, struct alive *a);

/* --- the new one --- */

struct handover_from {
	int conn; /* -1: there is no other, or not any more */
	pid_t pid;
};
/* 0: the other's descriptors are found ones of `k`, or there is no other.  -1: refused.  `seconds`:
 * for as long the other waits, and more. */
int handover_take(const char *run, unsigned seconds, struct broker_fdstore *k,
    struct handover_from *f, struct err *e);
/* It would take all back. */
bool handover_is_waited_for(const struct handover_from *f);
/* We serve what it served: it may go. */
void handover_done(struct handover_from *f);
/* We do not: it goes on.  After our worker has ended. */
void handover_give_back(struct handover_from *f, const char *why);
