/* pods.h - the pods the worker may act for, and what the broker keeps of each.
 *
 *   <run>/pods/<uid>/        root only
 *   <run>/pods/<uid>/mount/  what the pod sees: socket, XDS, envoy-rev.json, root-cert.pem
 *
 * A directory is made once and adopted ever after: it is mounted into a pod that may live longer
 * than several brokers.
 */
#pragma once
#include "broker/base/listener.h"
#include "broker/base/options.h"
#include "broker/netns/netns.h"
#include "common/err.h"
#include "common/protocol.h"

struct broker_pod;
struct pods;

struct pods_rig {
	int epoll;
	const struct broker_options *options;
	const struct netns_home *home;
	struct broker_fdstore *kept;
	struct broker_states *states;
	void (*renewed)(void *ctx); /* the worker shut a listener down: it is to be told */
	bool (*gone)(void *ctx, const struct uuid *pod);    /* pod_identity.h */
	void (*emptied)(void *ctx, const struct uuid *pod); /* nobody is in its cgroup any more */
	void (*of_host)(void *ctx, const struct uuid *pod); /* pod_identity.h */
	void *ctx;
};
struct pods *pods_new(const struct pods_rig *rig);
/* Directories and sockets' files stay, and so does what is kept elsewhere. */
void pods_free(struct pods **ps);

/* A worker comes: what it does not add is swept when it is ready. */
void pods_generation(struct pods *ps);
/* Pods of earlier workers and brokers go, unless their manifest or their volume is still there: one
 * that is refused now belongs to a running pod all the same. */
void pods_sweep(struct pods *ps);
/* A listener the worker is to be told of. */
bool pods_pending(const struct pods *ps);
void pods_next(struct pods *ps, struct link_packet *p, int *fd); /* not the caller's */

int pods_add(struct pods *ps, const struct uuid *uid, struct err *e);
struct broker_pod *pods_find(const struct pods *ps, const struct uuid *uid, struct err *e);
/* Its directory goes too, unless something is in it that is not ours.  Not there: fine; known to an
 * earlier broker only: the same. */
int pods_remove(struct pods *ps, const struct uuid *uid, struct err *e);

/* A listening socket; it stays the broker's. */
int broker_pod_listen(struct pods *ps, struct broker_pod *pod, unsigned kind, struct err *e);
int broker_pod_write(struct broker_pod *pod, unsigned kind, int memfd, struct err *e);
/* Is the peer of the accepted connection the pod's?  pod_identity_check() */
int broker_pod_peer(
    struct broker_pod *pod, int conn, bool require, struct link_packet *out, struct err *e);
int broker_pod_netns_fd(const struct broker_pod *pod); /* the pod's; -1: not learned */
/* The same, if it was learned in this cgroup, which was not empty since. */
int broker_pod_netns_in(const struct broker_pod *pod, uint64_t cgroup);
/* A socket in it, the caller's: netns_dial(). */
int broker_pod_dial(
    const struct pods *ps, struct broker_pod *pod, const struct link_request *r, struct err *e);
