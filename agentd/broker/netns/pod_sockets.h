/* pod_sockets.h - the sockets at which a pod's DNS proxy is asked (kernels.md 9).
 *
 * The programs send a query there only while the socket has the broker's mark, and it has one only
 * while a worker answers.  When that worker is gone the mark is, too: queries go to the pod's own
 * resolver.  A client that waits is told at once to ask again ("server failure").  So is a client
 * that asks through a socket it connected earlier.
 *
 * Nothing of it outlives this broker, unlike other sockets.  A kept socket would keep its mark, and
 * swallow every query for as long as agentd stays away.
 */
#pragma once
#include "broker/base/loop.h"
#include "common/err.h"
#include "common/protocol.h"
#include "netns.h"

/* Of all pods. */
struct pod_sockets_rig {
	int epoll;
	const struct netns_home *home;
	/* The programs may send the pod's queries to this socket, or not any more.  A callback,
	 * since the end of a socket ends its mark, and the map of marks is redirection's, which
	 * stands above. */
	int (*mark)(void *ctx, const struct uuid *pod, int socket, bool answered, struct err *e);
	void *ctx;
};

/* none -> served -> refuses -> served, or none; TCP never refuses, it is closed. */
enum pod_socket_state {
	POD_SOCKET_NONE,
	POD_SOCKET_SERVED,  /* by a worker: marked, and not read here */
	POD_SOCKET_REFUSES, /* no worker: not marked, each query is refused here */
};

/* Of one; embed it zeroed.  Stays where it is while it has a socket. */
struct pod_sockets {
	const struct pod_sockets_rig *rig;
	struct uuid pod;
	struct pod_socket {
		enum pod_socket_state state;
		struct broker_watch watch; /* its fd, unless there is none */
		struct pod_sockets *of;
	} udp, tcp;
};

struct pod_sockets_place {
	const struct uuid *pod;
	int netns; /* the caller's */
	uint16_t port;
};

bool pod_sockets_is_kind(unsigned kind); /* of LINK_LISTEN */
/* A new socket of the kind, marked; it stays ours.  The previous one is closed: a holder of a copy
 * may have spoilt it.  -1: the pod has neither of the two any more. */
int pod_sockets_listen(struct pod_sockets *s, const struct pod_sockets_rig *rig,
    const struct pod_sockets_place *at, unsigned kind, struct err *e);
/* The worker is gone: no mark, and nobody waits for it.  False: no socket is left. */
bool pod_sockets_detach(struct pod_sockets *s);
/* The next worker is ready: a socket it did not ask for refuses no more, and is closed. */
void pod_sockets_sweep(struct pod_sockets *s);
/* The pod is gone, or its network namespace is, or it is captured in another way. */
void pod_sockets_end(struct pod_sockets *s); /* none: nothing */
/* Between _detach() and _end() of all pods: a program that saw a mark may just be sending its
 * query. */
void pod_sockets_await_last_queries(void);
