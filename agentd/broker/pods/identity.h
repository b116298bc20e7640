/* pod_identity.h - how the kernel shows that a connection is a pod's: network namespace, cgroup.
 *
 * The namespace is that of the first peer who was in the pod's cgroup (or, where no cgroup is named
 * or none can be seen, of the first one at all); another one is learned when the cgroup has been
 * empty since.  It is one pod's only (i#61211), never the node's, and is kept beyond this broker:
 * after a restart the first comer cannot teach another one.  uids are never looked at
 * (security-rules.md 4, decisions.md 4).
 */
#pragma once
#include "broker/netns/netns.h"
#include "cgroup.h"
#include "common/err.h"
#include "common/protocol.h"
#include "peer.h"

struct broker_states;

/* Of all pods. */
struct pod_identities {
	int epoll;
	enum pod_peer_way way;
	const struct broker_options *options;
	const struct netns_home *home;
	struct broker_states *states;
	struct pod_identity *list;
	/* Each NULL where nobody asks, or nobody knows. */
	bool (*gone)(void *ctx, const struct uuid *pod); /* the namespace an earlier broker knew */
	void (*emptied)(void *ctx, const struct uuid *pod); /* its cgroup */
	void (*of_host)(void *ctx, const struct uuid *pod); /* who is in it, but in the node's own
							       namespace */
	void *ctx;
};

/* Of one; embed it zeroed.  Stays where it is from _begin() to _end(). */
struct pod_identity {
	struct pod_identities *all;
	struct uuid uid;
	char name[UUID_TEXT_SIZE];
	struct netns_id netns;    /* zero: not known */
	int netns_fd;             /* later sockets are made in it; -1: not seen by this broker */
	struct pod_cgroup cgroup; /* since the namespace was learned */
	struct pod_identity *prev, *next;
};

/* Goes on with what an earlier broker knew. */
void pod_identity_begin(struct pod_identity *i, struct pod_identities *all, const struct uuid *uid);
void pod_identity_end(struct pod_identity *i); /* what is kept stays */

/* Is the peer of `conn` the pod's?  Fills in `out`: cookie, cgroup id, addresses; cgroup id 0 with
 * `why` when nobody can know, which `require` does not let pass.  -1 with a code: ESRCH the peer is
 * gone, EACCES it is in another cgroup, ENODATA nobody can know, EPERM another namespace. */
int pod_identity_check(
    struct pod_identity *i, int conn, bool require, struct link_packet *out, struct err *e);
