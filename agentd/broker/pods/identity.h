/* identity.h - how the kernel shows that a connection is a pod's: network namespace, cgroup.
 *
 * The namespace is that of the first peer who was in the pod's cgroup (or, where no cgroup is named
 * or none can be seen, of the first one at all); another one is learned when the cgroup has been
 * empty since.  It is one pod's only (i#61211), never the node's, and is kept beyond this broker:
 * after a restart the first comer cannot teach another one.  uids are never looked at
 * (security-rules.md 4, decisions.md 4).
 */
#pragma once
#include "border/protocol.h"
#include "broker/netns/netns.h"
#include "cgroup.h"
#include "common/err.h"
#include "peer.h"

struct broker_states;

/* Of all pods. */
struct pod_identities {
	enum pod_peer_way way;
	const struct broker_options *options;
	const struct netns_home *home;
	struct broker_states *states;
};

/* Of one; embed it with what is marked *, zeroed else.  Stays where it is from _begin() to _end().
 */
struct pod_identity {
	const struct pod_identities *all; /* * */
	struct uuid uid;                  /* * */
	const char *name;                 /* * */
	struct netns_id netns;            /* zero: not known */
	int netns_fd;             /* later sockets are made in it; -1: not seen by this broker */
	struct pod_cgroup cgroup; /* * since the namespace was learned */
	struct err unkept;        /* why what is kept of it is not so; code 0: it is */
};

/* Goes on with what an earlier broker knew, unless that namespace is no more (`gone`).  One that
 * has the pod's uid for a name is there at once, and not only with the next connection. */
void pod_identity_begin(struct pod_identity *i, bool gone);
void pod_identity_end(struct pod_identity *i); /* what is kept stays */
/* Its cgroup is empty: the kept namespace is dropped. */
void pod_identity_emptied(struct pod_identity *i);
/* Keeps what could not be kept before; -1: not yet. */
int pod_identity_mend(struct pod_identity *i, struct err *e);
/* The namespace, if it was learned in this cgroup, which was not empty since; or -1. */
int pod_identity_netns_in(const struct pod_identity *i, uint64_t cgroup);

/* An accepted connection, the namespace it came from, and the other pod whose that is, or NULL. */
struct pod_identity_peer {
	int conn, netns;
	struct netns_id id;
	const char *owner;
	bool machine; /* it has a manifest */
};
/* Is it the pod's?  Fills in `out`: cookie, cgroup id, addresses; cgroup id 0 with `why` when
 * nobody can know, which `require` refuses; takes `netns`.  -1 with a code: ESRCH the peer is gone,
 * EACCES it is in another cgroup, ENODATA nobody can know, EPERM another namespace. */
int pod_identity_check(struct pod_identity *i, struct pod_identity_peer *peer, bool require,
    struct link_packet *out, struct err *e);
/* Is it in the pod's cgroup, whatever its namespace? */
bool pod_identity_is_member(const struct pod_identity *i, int conn);
