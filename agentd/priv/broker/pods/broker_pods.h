/* broker_pods.h - the pods the worker may act for, and what the broker keeps of each.
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

struct broker_pod;
struct broker_pods;

struct broker_pods_rig {
	int epoll;
	const struct broker_options *options;
	const struct netns_home *home;
	struct broker_fdstore *kept;
	struct broker_states *states;
	void (*renewed)(void *ctx); /* the worker shut a listener down: it is to be told */
	bool (*gone)(void *ctx, const struct uuid *pod);    /* broker_identity.h */
	void (*emptied)(void *ctx, const struct uuid *pod); /* nobody is in its cgroup any more */
	void (*of_host)(void *ctx, const struct uuid *pod); /* broker_identity.h */
	void *ctx;
};
struct broker_pods *broker_pods_new(const struct broker_pods_rig *rig);
/* Directories and sockets' files stay, and so does what is kept elsewhere. */
void broker_pods_free(struct broker_pods **ps);

/* A worker comes: what it does not add is swept when it is ready. */
void broker_pods_generation(struct broker_pods *ps);
/* Pods of earlier workers and brokers go, unless their manifest or their volume is still there: one
 * that is refused now belongs to a running pod all the same. */
void broker_pods_sweep(struct broker_pods *ps);
/* A listener the worker is to be told of. */
bool broker_pods_pending(const struct broker_pods *ps);
void broker_pods_next(
    struct broker_pods *ps, struct priv_packet *p, int *fd); /* not the caller's */

int broker_pods_add(struct broker_pods *ps, const struct uuid *uid, struct broker_why *w);
struct broker_pod *broker_pods_find(
    const struct broker_pods *ps, const struct uuid *uid, struct broker_why *w);
/* Its directory goes too, unless something is in it that is not ours.  Not there: fine; known to an
 * earlier broker only: the same. */
int broker_pods_remove(struct broker_pods *ps, const struct uuid *uid, struct broker_why *w);

/* A listening socket; it stays the broker's. */
int broker_pod_listen(
    struct broker_pods *ps, struct broker_pod *pod, unsigned kind, struct broker_why *w);
int broker_pod_write(struct broker_pod *pod, unsigned kind, int memfd, struct broker_why *w);
/* Is the peer of the accepted connection the pod's?  broker_identity_check() */
int broker_pod_peer(
    struct broker_pod *pod, int conn, bool require, struct priv_packet *out, struct broker_why *w);
int broker_pod_netns_fd(const struct broker_pod *pod); /* the pod's; -1: not learned */
/* The same, if it was learned in this cgroup, which was not empty since. */
int broker_pod_netns_in(const struct broker_pod *pod, uint64_t cgroup);
/* A socket in it, the caller's: netns_dial(). */
int broker_pod_dial(const struct broker_pods *ps, struct broker_pod *pod,
    const struct priv_request *r, struct broker_why *w);
