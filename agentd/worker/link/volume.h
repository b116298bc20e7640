/* volume.h - what the worker asks of the root broker for the kubelet's volumes: link.h's third
 * part.  Without --kubelet-root the broker refuses it all.
 */
#pragma once
#include "link.h"

/* Is the node's kubelet at the other end of this connection, accepted on csi.sock?  `fd` stays the
 * caller's.  EPERM: another one, `e` says who; EACCES: it is not root; ESRCH: it is gone. */
void link_caller(struct link *p, struct link_call **slot, int fd, link_done done, void *ctx);

/* The pod's directory is seen, read-only, where the kubelet wants the volume `volume` (a DNS label;
 * anything else is refused with EINVAL) of the pod, which was added.  Mounted by us already: fine,
 * and no second mount.  EBUSY: somebody else's mount is there. */
void link_publish(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *volume, link_done done, void *ctx);
/* It is not any more, and the directory it was on is gone; the pod need not have been added.
 * Nothing there: fine. */
void link_unpublish(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *volume, link_done done, void *ctx);

/* Has the kubelet registered csi.sock, by the link that leads to it now (broker/kubelet/csi.h)? And
 * how often somebody removed or replaced one of the two since the broker began (all of it is there
 * again).  Told at the start unless no and 0, and when it changes.  NULL: no more. */
typedef void (*link_csi_noted)(void *ctx, bool registered, unsigned restored);
void link_on_csi(struct link *p, link_csi_noted noted, void *ctx);

/* The kubelet said so.  Nobody waits for this. */
void link_csi_registered(struct link *p);

/* A CSI volume that the kubelet has for a pod, of any driver. */
struct link_volume {
	struct uuid pod;
	const char *name; /* NULL: that was all (then `e`: why it was not) */
	bool mounted;     /* our directory is on it */
	bool directory;   /* the kubelet's own directory of the volume is there */
	const char
	    *vol_data; /* vol_data.json, NUL-terminated behind `size`; NULL: none, `e`: why */
	size_t size;
	const struct err *e;
};
typedef void (*link_volume_found)(void *ctx, const struct link_volume *v); /* valid meanwhile */
void link_volume_list(struct link *p, struct link_call **slot, link_volume_found found, void *ctx);
