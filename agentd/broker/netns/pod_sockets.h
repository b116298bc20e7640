/* pod_sockets.h - the sockets at which a pod's DNS proxy is asked (kernels.md 9).
 *
 * The programs send a query there only while the socket has the broker's mark.  Between two workers
 * it keeps the mark, and queries wait in it: the pod's own resolver would deny istiod's names, and
 * apps believe that.  They wait for POD_SOCKETS_WAIT_MS at most.  Then the mark goes, and the pod's
 * resolver is asked.  A client that still waits is told at once to ask again ("server failure").
 * So is a client that asks through a socket it connected earlier.
 *
 * The next worker gets a socket of its own: a holder of a copy may have spoilt the old one.  The
 * two share the port for a moment, so a query always finds a marked one.  What waits in the old one
 * is told to ask again: a query that killed a worker might kill the next one as well.
 *
 * The next broker finds them among the kept descriptors, but systemd gets none.  It would hold a
 * marked socket for as long as agentd stays away, and each query would be swallowed.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/fdstore.h"
#include "broker/base/loop.h"
#include "common/err.h"
#include "netns.h"

/* Less than two rounds of a resolver, which has 5 s for one. */
enum { POD_SOCKETS_WAIT_MS = 8000 };

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

/* none -> served -> waits -> served, refuses or none;  refuses -> served or none
 * An earlier broker's: none -> waits.  TCP never refuses, it is closed. */
enum pod_socket_state {
	POD_SOCKET_NONE,
	POD_SOCKET_SERVED,  /* by a worker: marked, and not read here */
	POD_SOCKET_WAITS,   /* for the next one: marked, and not read */
	POD_SOCKET_REFUSES, /* none comes: not marked, each query is refused here */
};

/* Of one; embed it zeroed.  Stays where it is while it has a socket. */
struct pod_sockets {
	const struct pod_sockets_rig *rig; /* NULL before the first _listen() */
	struct broker_fdstore *kept;
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
/* The name of a kept descriptor: is it one of these sockets? */
bool pod_sockets_is_kept(const char *name);

/* Before all else: what an earlier broker kept waits from now on. */
void pod_sockets_begin(struct pod_sockets *s, const struct uuid *pod, struct broker_fdstore *kept);
/* A new socket of the kind, marked; it stays ours.  -1: the pod has neither of the two any more. */
int pod_sockets_listen(struct pod_sockets *s, const struct pod_sockets_rig *rig,
    const struct pod_sockets_place *at, unsigned kind, struct err *e);
/* The worker is gone: queries wait, the one it may have died of among them.  Nobody is told before
 * there is somebody to ask: two refusals end a look-up of most resolvers. */
void pod_sockets_detach(struct pod_sockets *s);
/* No worker comes soon: no mark, and nobody waits.  False: no socket is left. */
bool pod_sockets_give_up(struct pod_sockets *s);
bool pod_sockets_wait(const struct pod_sockets *s); /* one of them does */
/* A worker is ready: a socket that refuses does so no more, and is closed. */
void pod_sockets_sweep(struct pod_sockets *s);
/* Another broker has them, and their marks: nothing but our copies goes. */
void pod_sockets_leave(struct pod_sockets *s);
/* The pod is gone, or its network namespace is, or it is captured in another way. */
void pod_sockets_end(struct pod_sockets *s); /* none: nothing */
/* Between _give_up() and _end() of all pods: a program that saw a mark may just be sending its
 * query. */
void pod_sockets_await_last_queries(void);
