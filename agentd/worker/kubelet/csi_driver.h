/* csi_driver.h - agentd as the kubelet sees it: one socket for registration, identity and node.
 *
 * pluginregistration.Registration, csi.v1.Identity and csi.v1.Node, no registrar beside it: the
 * endpoint that is told is empty, which means this same socket (kubelet-csi.md 5).
 */
#pragma once
#include "csi_volume.h"

struct csi_driver;
struct rpc;
struct rpc_server;

/* The kubelet says whether it has registered us (NotifyRegistrationStatus). */
typedef void (*csi_registered)(void *ctx, bool yes);

/* All of it outlives the driver. */
struct csi_driver_rig {
	struct csi_volumes *volumes;
	const char *node_name;
	csi_registered registered;
	void *ctx;
};
struct csi_driver *csi_driver_new(struct loop *l, struct rpc *r, const struct csi_driver_rig *rig);
void csi_driver_free(struct csi_driver **d);             /* before its volumes */
struct rpc_server *csi_driver_rpc(struct csi_driver *d); /* adopts the kubelet's connections */
