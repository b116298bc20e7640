/* csi_refused.h - volumes that the kubelet was refused, with the reason: it alone knows of them,
 * and asks again, two minutes later at most.
 *
 * An entry goes in three cases: the volume is asked for again or unpublished; the pod's directory
 * is gone; nobody asked for five minutes.  The kubelet does not unpublish what was refused for good
 * (kubelet-csi.md 3a, 5): it removes the directory some seconds after the pod is gone.  A pod that
 * has failed keeps its directory, and is asked for no more.
 */
#pragma once
#include "base/loop.h"
#include "csi_request.h"

struct link;
struct csi_refused;

/* Embed it zeroed, with `loop` and `link`. */
struct csi_refusals {
	struct loop *loop;
	struct link *link;
	struct csi_refused *list;
};

/* The oldest of too many goes. */
void csi_refused_add(struct csi_refusals *all, const struct csi_publish *p, const char *why);
void csi_refused_drop(struct csi_refusals *all, const struct uuid *pod);
/* Adds {uid, volume, pod, problem} for each. */
void csi_refused_dump(struct csi_refusals *all, json_t *to);
void csi_refused_clear(struct csi_refusals *all);
