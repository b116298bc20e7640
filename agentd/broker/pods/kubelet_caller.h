/* kubelet_caller.h - is the node's kubelet at the other end of a connection of csi.sock?
 *
 * A process that is root in a container with the kubelet's directory can connect too, and could ask
 * for a volume of any pod (security-rules.md 5).  So it must be root, its process must be seen from
 * here, and its cgroup must not be inside the tree that the kubelet makes for pods.
 */
#pragma once
#include "common/err.h"
#include <stdbool.h>

/* -1 with a code: EACCES it is not root, EPERM it is in a pod or cannot be told from one, ESRCH it
 * is gone, EINVAL this is no such connection. */
int kubelet_caller_check(int conn, struct err *e);
