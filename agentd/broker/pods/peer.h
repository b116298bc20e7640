/* peer.h - is the process behind a connection in the pod's cgroup?
 *
 * Three ways, by what the kernel has (kernels.md 5).  Each is about one process, never about a
 * number that another process may have by now: where only the number is known, a process that began
 * so lately that it may have inherited the number is refused, and may come again.
 */
#pragma once
#include "common/err.h"
#include <stdint.h>
#include <sys/types.h>

enum pod_peer_way {
	POD_PEER_BY_INFO,  /* SO_PEERPIDFD, PIDFD_GET_INFO: Linux 6.13 */
	POD_PEER_BY_PIDFD, /* SO_PEERPIDFD, the number looked for in cgroup.procs: 6.5 */
	POD_PEER_BY_PID,   /* SO_PEERCRED, pidfd_open, cgroup.procs: 5.10 */
};
enum pod_peer_way pod_peer_best_way(void);

/* A pidfd of the process that made the connection and has (or had) the number `pid`.  -1 with a
 * code: ESRCH it is gone, ENODATA nobody can know. */
int pod_peer_open(enum pod_peer_way way, int conn, pid_t pid, struct err *e);

/* `dir`: the pod's cgroup, open for reading.  Tells the id of the peer's cgroup: that, or one below
 * it.  -1 with a code: ESRCH the peer is gone, EACCES it is elsewhere, ENODATA nobody can know. */
int pod_peer_cgroup(enum pod_peer_way way, int conn, int dir, uint64_t *id, struct err *e);
