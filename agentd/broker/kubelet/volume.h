/* volume.h - the volumes that the kubelet keeps for pods, and our mounts on them.
 *
 *   <kubelet-root>/pods/<uid>/volumes/kubernetes.io~csi/<volume>/               the kubelet's, its
 *                                                               vol_data.json   own file, and
 *                                                               mount           ours
 *
 * Both ends of a mount are computed here from a uid and a name (security-rules.md 6).  All names
 * are looked up beneath the kubelet's directory and through no link, each once.  A mount is ours
 * when it shows this very pod's directory in <run>, or is of the file system that we made for the
 * pod; nothing else is ever unmounted.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/options.h"
#include "common/err.h"
#include <dirent.h>

enum { KUBELET_VOLUME_SOURCE_SIZE = sizeof("agentd:") + UUID_TEXT_SIZE };
/* What mountinfo calls a pod's own file system (broker/pods/tree.h). */
void kubelet_volume_source(const struct uuid *pod, char out[KUBELET_VOLUME_SOURCE_SIZE]);

/* `r`: uid, volume.  Mounted already: fine.  EBUSY: by somebody else. */
int kubelet_volume_publish(
    const struct broker_options *o, const struct link_request *r, struct err *e);
/* Nothing is there: fine. */
int kubelet_volume_unpublish(
    const struct broker_options *o, const struct link_request *r, struct err *e);

/* Is a mount of ours on any volume of the pod? */
bool kubelet_volume_is_published(const struct broker_options *o, const struct uuid *pod);
/* Has the kubelet any CSI volume of the pod?  A place that cannot be looked at counts as one. */
bool kubelet_volume_is_there(const struct broker_options *o, const struct uuid *pod);

/* A walk: `*dir` is opened at the first call, and closed and NULL when false is returned. */
bool kubelet_volume_next(const struct broker_options *o, const struct uuid *pod, DIR **dir,
    char volume[LINK_VOLUME_SIZE]);
/* One volume's state; `p`: name, state, why; `fd` (or -1) is its vol_data.json.  False: it went.
 */
bool kubelet_volume_tell(
    const struct broker_options *o, const struct uuid *pod, struct link_packet *p, int *fd);
