/* handover.h - another agentd process takes over all that this one keeps.
 *
 * <run>/handover, 0600, SOCK_SEQPACKET.  For a DaemonSet's surge: unlike an upgrade in place the
 * two live side by side for a moment, and the old one goes only when the new one's worker is ready.
 * The lock travels with the rest, so it is never free.  The asking agentd must be root, and not
 * just of its own user namespace, and in our network namespace (security-rules.md 7).
 */
#pragma once
#include "broker/base/fdstore.h"
#include "broker/base/loop.h"
#include "common/err.h"
#include <stdbool.h>
#include <sys/types.h>

enum { HANDOVER_VERSION = 1 };

/* --- the old one --- */

typedef void (*handover_asked)(void *ctx);

struct handover {
	struct broker_watch watch; /* of the listener */
	int epoll, conn;           /* conn: to the asking agentd; -1: none */
	pid_t peer;
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
/* Waits until the new one is ready or gone; SIGTERM and SIGINT (blocked) end the waiting. */
enum broker_handed handover_give(struct handover *h, struct broker_fdstore *k);

/* --- the new one --- */

/* 0 and *conn: the other's descriptors are found ones of `k`; *conn -1: there is no other.
 * -1: refused. */
int handover_take(const char *run, struct broker_fdstore *k, int *conn, struct err *e);
/* Our worker is ready: the other may go.  Closes *conn. */
void handover_done(int *conn);
