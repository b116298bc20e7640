/* priv_volume.h - what the worker asks of the root broker for the kubelet's volumes: priv.h's third
 * part.  Without --kubelet-root the broker refuses it all.
 */
#pragma once
#include "priv.h"

/* Is the node's kubelet at the other end of this connection, accepted on csi.sock?  `fd` stays the
 * caller's.  EPERM: another one, `e` says who; EACCES: it is not root; ESRCH: it is gone. */
void priv_caller(struct priv *p, struct priv_call **slot, int fd, priv_done done, void *ctx);

/* The pod's directory is seen, read-only, where the kubelet wants the volume `volume` (a DNS label;
 * anything else is refused with EINVAL) of the pod, which was added.  Mounted by us already: fine,
 * and no second mount.  EBUSY: somebody else's mount is there. */
void priv_publish(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    const char *volume, priv_done done, void *ctx);
/* It is not any more, and the directory it was on is gone; the pod need not have been added.
 * Nothing there: fine. */
void priv_unpublish(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    const char *volume, priv_done done, void *ctx);

/* How often somebody removed or replaced csi.sock, or the kubelet's link to it, since the broker
 * began (all of it is there again): told at the start unless 0, and when it changes.  NULL: no
 * more. */
typedef void (*priv_csi_noted)(void *ctx, unsigned n);
void priv_on_csi(struct priv *p, priv_csi_noted noted, void *ctx);

/* A CSI volume that the kubelet has for a pod, of any driver. */
struct priv_volume {
	struct uuid pod;
	const char *name; /* NULL: that was all (then `e`: why it was not) */
	bool mounted;     /* our directory is on it */
	bool directory;   /* the kubelet's own directory of the volume is there */
	const char
	    *vol_data; /* vol_data.json, NUL-terminated behind `size`; NULL: none, `e`: why */
	size_t size;
	const struct err *e;
};
typedef void (*priv_volume_found)(void *ctx, const struct priv_volume *v); /* valid meanwhile */
void priv_volume_list(struct priv *p, struct priv_call **slot, priv_volume_found found, void *ctx);
