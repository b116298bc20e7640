/* kubelet_csi.h - the socket by which the kubelet finds and calls us.
 *
 *   <run>/csi.sock                                              0600
 *   <kubelet-root>/plugins_registry/agentd.node.mesh-reg.sock   a link to it, as the kubelet sees
 * it
 *
 * The kubelet watches its registry: an entry that is replaced costs a second without a driver, what
 * a link leads to may change unseen (kubelet-csi.md 6).  So the link is made once and stays, also
 * when agentd ends.  Both are watched, and put back when somebody removes or replaces them
 * (security-rules.md 5), within a second; so is the link when the registry appears.
 */
#pragma once
#include "broker/base/options.h"
#include "common/err.h"
#include "common/protocol.h"

struct kubelet_csi;
struct broker_fdstore;

struct kubelet_csi_rig {
	int epoll;
	const struct broker_options *options; /* with a kubelet_root */
	struct broker_fdstore *kept;
	void (*renewed)(void *ctx); /* the worker's copy of the socket is worthless */
	void (*changed)(void *ctx); /* something is pending */
	void *ctx;
};
struct kubelet_csi *kubelet_csi_new(const struct kubelet_csi_rig *rig, struct err *e);
void kubelet_csi_free(struct kubelet_csi **c); /* link and file stay */
/* The listening socket, for a worker that comes; it stays ours. */
int kubelet_csi_listener(struct kubelet_csi *c, struct err *e);
/* Has the worker to be told how often we put something back?  Without a `c`: no. */
bool kubelet_csi_pending(const struct kubelet_csi *c);
void kubelet_csi_next(struct kubelet_csi *c, struct link_packet *p);
