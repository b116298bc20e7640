/* csi_refused.h - volumes that the kubelet was refused, with the reason: it alone knows of them,
 * and asks again, two minutes later at most.
 *
 * An entry goes when the volume is asked for again or unpublished, and when nobody asked for five
 * minutes: the kubelet forgets what was refused for good.
 */
#pragma once
#include "csi_request.h"
#include "worker/base/loop.h"

struct csi_refused; /* a list; NULL: empty */

/* The oldest of too many goes. */
void csi_refused_add(
    struct csi_refused **list, struct loop *l, const struct csi_publish *p, const char *why);
void csi_refused_drop(struct csi_refused **list, const struct uuid *pod);
/* Adds {uid, volume, pod, problem} for each. */
void csi_refused_dump(struct csi_refused **list, struct loop *l, json_t *to);
void csi_refused_clear(struct csi_refused **list);
