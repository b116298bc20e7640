/* pod_sockets.h - the sockets at which a pod's DNS proxy is asked (kernels.md 9).
 *
 * The programs send a query there only while the socket has the broker's mark, and it has one only
 * while a worker answers.  When that worker is gone the mark is, too: queries go to the pod's own
 * resolver.  Who asked before and waits is told at once to ask again ("server failure"), and so is
 * who goes on asking through a socket he connected before.
 *
 * Nothing of it outlives this broker, unlike other sockets: with a mark and nobody to take it off,
 * a kept socket would swallow every query for as long as agentd stays away.  Closed, it is none.
 */
#pragma once
#include "common/err.h"
#include "common/protocol.h"
#include "netns.h"

struct pod_sockets;

struct pod_sockets_rig {
	int epoll;
	const struct netns_home *home;
	/* The network namespace of a pod whose DNS is captured, and the port; -1: `e`.  Its
	 * owner's.
	 */
	int (*place)(void *ctx, const struct uuid *pod, uint16_t *port, struct err *e);
	/* The programs may send the pod's queries to this socket, or not any more. */
	int (*mark)(void *ctx, const struct uuid *pod, int socket, bool answered, struct err *e);
	void *ctx;
};
struct pod_sockets *pod_sockets_new(const struct pod_sockets_rig *rig);
void pod_sockets_free(struct pod_sockets **d); /* closes all */

bool pod_sockets_is_kind(unsigned kind); /* of LINK_LISTEN */
/* A new socket of the kind, marked; it stays ours.  One that was there is closed: who has a copy
 * may have spoilt it.  -1: the pod has neither of the two any more. */
int pod_sockets_listen(struct pod_sockets *d, const struct uuid *pod, unsigned kind, struct err *e);
/* The worker is gone: no mark, and nobody waits for it. */
void pod_sockets_detach(struct pod_sockets *d);
/* The next one has said what there is: nobody is answered for it any more. */
void pod_sockets_sweep(struct pod_sockets *d);
/* The pod is gone, or its network namespace is, or it is captured in another way. */
void pod_sockets_end(struct pod_sockets *d, const struct uuid *pod); /* none: nothing */
