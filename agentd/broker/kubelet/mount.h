/* mount.h - bind mounts by descriptor: no path is looked up twice, and none by its name.
 *
 * Callers have opened both ends where nobody but root can change what they mean.  Looks ask the
 * kernel, and never a file system whose server may not answer (FUSE, NFS).
 */
#pragma once
#include "common/err.h"
#include <limits.h>
#include <stdbool.h>

/* A detached copy of the mount of the directory `source`: read-only, nosuid, nodev, noexec.  It is
 * so before anybody can see it; where it is attached below a shared mount, all peers have it so
 * (kubelet-csi.md 3f).  `staging`: a path that may be made and mounted over meanwhile. */
int kubelet_mount_copy(int source, const char *staging, struct err *e);
/* The same without mount_setattr(2), which Linux 5.12 brought. */
int kubelet_mount_copy_by_remount(int source, const char *staging, struct err *e);

/* `copy` is then a descriptor of the mount on the directory `at`. */
int kubelet_mount_attach(int copy, int at, struct err *e);
/* The one mount whose root `mounted` is, and mounts below it. */
int kubelet_mount_detach(int mounted, struct err *e);

/* Is the directory `at` of another mount than `above`, one that begins there? */
bool kubelet_mount_begins(int above, int at);
bool kubelet_mount_same(int a, int b);     /* one directory, seen through one mount */
bool kubelet_mount_shows(int at, int dir); /* one directory, through any mount */
bool kubelet_mount_is_of(int at, int dir); /* one file system */
/* Does the node see mounts below the directory?  It does if the directory is shared, or if we are
 * in the mount namespace of the node's first process (which only root with all capabilities can
 * see). */
bool kubelet_mount_is_seen(const char *dir);
/* Which directory of its file system is the root of the mount: as mountinfo says it. */
bool kubelet_mount_root(int mounted, char out[PATH_MAX]);
/* What was mounted: as mountinfo says it. */
bool kubelet_mount_source(int mounted, char out[PATH_MAX]);
