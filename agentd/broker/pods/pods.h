/* pods.h - the table of pods the worker may act for.
 *
 *   <run>/pods/<uid>/        root only
 *   <run>/pods/<uid>/mount/  what the pod sees: socket, XDS, envoy-rev.json, root-cert.pem
 *
 * A directory is made once and adopted ever after: it is mounted into a pod that may live longer
 * than several brokers.
 */
#pragma once
#include "pod.h"

struct pods;

struct pods *pods_new(const struct pods_rig *rig, struct err *e);
/* Directories and sockets' files stay, and so does what is kept elsewhere. */
void pods_free(struct pods **ps);

/* Another broker has taken all over: what would end something for both does not happen. */
void pods_leave(struct pods *ps);

/* Its worker is gone: nobody has copies, and DNS queries wait for the next one, for
 * POD_SOCKETS_WAIT_MS at most.  Pods that it does not add are swept when it is ready. */
void pods_detach(struct pods *ps);
/* Pods of earlier workers and brokers go, unless their manifest or their volume is still there: one
 * that is refused now belongs to a running pod all the same. */
void pods_sweep(struct pods *ps);
/* The worker was killed: who held most has to wait for the next one.  How many these are: all that
 * held half of the most, if that is enough to kill anybody. */
unsigned pods_blame(struct pods *ps);
void pods_hold_nothing(struct pods *ps); /* the next one has begun */
/* What the worker says of its connections; how long the next worker's have to wait. */
void pods_hold(struct broker_pod *pod, uint32_t kib);
uint32_t pods_wait_s(const struct broker_pod *pod);
/* A listener, or a note, of which the worker is to be told. */
bool pods_pending(const struct pods *ps);
void pods_next(struct pods *ps, struct link_packet *p, int *fd); /* not the caller's */

/* `gone`: the network namespace that an earlier broker knew is no more. */
int pods_add(struct pods *ps, const struct uuid *uid, bool gone, struct err *e);
/* That the worker which runs has added. */
struct broker_pod *pods_find(const struct pods *ps, const struct uuid *uid, struct err *e);
struct broker_pod *pods_known(const struct pods *ps, const struct uuid *uid); /* or NULL */
/* Does it have its directory?  Then it was added, by this broker or an earlier one. */
bool pods_is_there(const struct pods *ps, const struct uuid *uid);
/* Has a client connected to one of its sockets, and nobody has accepted it?  Not known: no. */
bool pods_is_awaited(const struct pods *ps, const struct uuid *uid);
struct broker_pod *pods_first(const struct pods *ps); /* the others by `next` */
/* Its directory goes too, unless something is in it that is not ours.  Not there: fine; known to an
 * earlier broker only: the same. */
int pods_remove(struct pods *ps, const struct uuid *uid, struct err *e);

/* Is the peer of the accepted connection the pod's?  pod_identity_check() */
enum pods_peer {
	PODS_PEER_IS,
	PODS_PEER_REFUSED,
	PODS_PEER_OF_HOST, /* refused: it is in the pod's cgroup, but in the node's own namespace */
};
struct pods_connection {
	int conn;
	bool require; /* that somebody knows its cgroup */
	bool machine; /* its pod has a manifest */
};
enum pods_peer pods_peer(struct pods *ps, struct broker_pod *pod, struct pods_connection c,
    struct link_packet *out, struct err *e);
