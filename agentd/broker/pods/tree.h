/* tree.h - a pod's directory as a file system of its own, and its end.
 *
 *   <run>/pods/<uid>/          a tmpfs, root's alone: what has its first name only
 *                    mount/    what the pod's containers have mounted
 *
 * Containers get `mount` read-only.  Should one have it writable all the same (kubelet-csi.md 3b),
 * it fills this file system and no other, its names lead nowhere else, and all of it goes at once.
 * The tmpfs lies below <run>, so it outlives us as the sockets in it do; in a DaemonSet that takes
 * Bidirectional propagation, as the state does (security-rules.md 7).
 *
 * The directory of a manifest's pod is a plain one: root of the machine mounts it, read-only, and
 * agentd mounts nothing there.  So is that of a pod that an earlier agentd published: its
 * containers have that one mounted, and may write in it.
 */
#pragma once
#include "common/err.h"
#include <stdbool.h>

struct broker_pod;

/* Its directory is there.  1: mounted now; 0: it was, or the pod has a plain one; -1: cannot be. */
int pod_tree_mount(const struct broker_pod *pod, struct err *e);
/* May a container write in `mount`?  Only an earlier agentd's, and only if it took it so. */
bool pod_tree_may_be_written(const struct broker_pod *pod);
/* The directory and all that is in it.  Not there: fine.  EAGAIN: so much is there that the rest is
 * for the next call. */
int pod_tree_remove(const char *dir, struct err *e);
