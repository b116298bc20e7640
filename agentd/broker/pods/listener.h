/* listener.h - a listening socket of a pod's, and whether the worker that runs knows it.
 *
 *   IDLE -> SERVED -> RENEWED -> SERVED
 *   SERVED, RENEWED -> LOST -> RENEWED: it is gone, and could not be made again at once
 *   any -> IDLE: its worker is gone, or what it asked for could not be made
 *
 *   Not IDLE -> RENEWED: a worker is never told of a socket that only its predecessor had.
 *   It would take the packet for an answer to nothing, or the socket for one it asked for.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/listener.h"
#include "common/err.h"

enum pod_listener_state {
	POD_LISTENER_IDLE,    /* open or not, the worker that runs has no copy */
	POD_LISTENER_SERVED,  /* it has one */
	POD_LISTENER_RENEWED, /* which is dead, and it was not told yet */
	POD_LISTENER_LOST,    /* which is dead, and there is no other one yet */
};

/* Embed it with `renewed` and `ctx`, zeroed else; stays where it is while it is open. */
struct pod_listener {
	enum pod_listener_state state;
	/* The worker must be told, or it is lost.  A callback, since a loss is an event of the
	 * socket's. */
	void (*renewed)(void *ctx);
	void *ctx;
	struct broker_listener_spec spec;
	struct broker_listener listener; /* its owner ends it */
};

/* Where it is to be: in the directory that the pod sees, and kept under the pod's name. */
struct pod_listener_place {
	int epoll;
	struct broker_fdstore *kept;
	const char *dir, *pod;
	bool may_be_written; /* a container may write in the directory: a lost socket stays lost */
};
void pod_listener_describe(
    struct pod_listener *l, enum link_listener kind, const struct pod_listener_place *at);
int pod_listener_open(struct pod_listener *l, struct err *e); /* stays ours: the worker has it */
/* Is it where clients look for it?  1: it was not, and is made again, to be told; -1: cannot be.
 * EPERM: its directory may be written by the pod. */
int pod_listener_mend(struct pod_listener *l, struct err *e);
int pod_listener_told(struct pod_listener *l); /* RENEWED; its fd, ours */

const char *pod_listener_file(enum link_listener kind); /* its name in the directory */
