/* volume.h - requests to the root broker about the kubelet's volumes: part of link.h.  Without
 * --kubelet-root the broker refuses all of them.
 */
#pragma once
#include "link.h"

/* Is the node's kubelet at the other end of this connection, accepted on csi.sock?  `fd` stays the
 * caller's.  EPERM: another one, `e` says who; EACCES: it is not root; ESRCH: it is gone. */
void link_caller(struct link *p, struct link_call **slot, int fd, link_done done, void *ctx);

/* Mounts the pod's directory, read-only, where the kubelet wants the volume `volume` (a DNS label,
 * else EINVAL).  The pod must have been added.  A mount of ours that is there already is fine, and
 * stays the only one.  EBUSY: another program's mount is there. */
void link_publish(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *volume, link_done done, void *ctx);
/* Unmounts it and removes the directory below; the pod need not have been added.  It succeeds if
 * nothing is there. */
void link_unpublish(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *volume, link_done done, void *ctx);

/* `registered`: the kubelet has registered csi.sock, by the link that leads to it now
 * (broker/kubelet/csi.h).  `restored`: how often one of the two was removed or replaced, and put
 * back, since the broker began.  The broker notes this at the start, unless it is no and 0, and at
 * each change.  NULL: no more. */
typedef void (*link_csi_noted)(void *ctx, bool registered, unsigned restored);
void link_on_csi(struct link *p, link_csi_noted noted, void *ctx);

/* The kubelet said that it registered us, or refused to.  There is no answer. */
void link_csi_registered(struct link *p, bool yes);

/* A CSI volume that the kubelet has for a pod, of any driver. */
struct link_volume {
	struct uuid pod;
	const char *name; /* NULL: the end (then `e`: why it is not complete) */
	bool mounted;     /* our directory is on it */
	bool redirected;  /* the pod's traffic is */
	bool directory;   /* the kubelet's own directory of the volume is there */
	const char
	    *vol_data; /* vol_data.json, NUL-terminated behind `size`; NULL: none, `e`: why */
	size_t size;
	const struct err *e;
};
typedef void (*link_volume_found)(void *ctx, const struct link_volume *v); /* valid meanwhile */
void link_volume_list(struct link *p, struct link_call **slot, link_volume_found found, void *ctx);
