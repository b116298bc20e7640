/* csi.h - the socket by which the kubelet finds and calls us, and whether it has.
 *
 *   <run>/csi.sock                                              0600
 *   <kubelet-root>/plugins_registry/agentd.node.mesh-reg.sock   a link to it, or with a number:
 *                                   agentd.node.mesh-7-reg.sock
 *
 * The kubelet looks at an entry when it appears, and at all of them when it starts.  An entry
 * behind which nobody answers at that moment is ignored, or tried again with a back-off of two
 * minutes that belongs to its name (kubelet-csi.md 6, learned.md 1).  What a link leads to may
 * change unseen.
 *
 * So the link stays when agentd ends, and while one agentd takes over from another.  It gets the
 * next number (24 to 58 ms without a driver) in three cases: an agentd starts and follows no other;
 * somebody removed or replaced the link (security-rules.md 5); the kubelet has not registered it,
 * 2 s after a worker got the socket, then ever more rarely, up to once a minute.
 *
 * "Registered" is the kubelet's own word (NotifyRegistrationStatus, which the worker hears) about
 * the link as it is named now.  <run>/registered, a link to that name, keeps it for the next
 * agentd.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/options.h"
#include "common/err.h"
#include <stdbool.h>

struct kubelet_csi;
struct broker_fdstore;

struct kubelet_csi_rig {
	int epoll;
	const struct broker_options *options; /* with a kubelet_root */
	struct broker_fdstore *kept;
	bool inherited; /* from an agentd that handed over: the kubelet noticed nothing */
	void (*renewed)(void *ctx); /* the worker's copy of the socket is worthless */
	void (*changed)(void *ctx); /* something is pending */
	void *ctx;
};
struct kubelet_csi *kubelet_csi_new(const struct kubelet_csi_rig *rig, struct err *e);
void kubelet_csi_free(struct kubelet_csi **c); /* link and file stay */
/* The listening socket, for a worker that comes; it stays ours. */
int kubelet_csi_listener(struct kubelet_csi *c, struct err *e);
/* The kubelet said to the worker that it registered us, or why not. */
void kubelet_csi_registered(struct kubelet_csi *c, bool yes);
/* Has the worker to be told whether we are registered, and how often we put something back? Without
 * a `c`: no. */
bool kubelet_csi_pending(const struct kubelet_csi *c);
void kubelet_csi_next(struct kubelet_csi *c, struct link_packet *p);
