/* pidfd.h - the process behind a unix connection, as a descriptor that never means another one.
 *
 * A number of a process can be given again, a pidfd cannot.  Used by broker and worker; libc only,
 * and newer than the headers of Debian 12 (threats-and-faults.md 0.9, kernels.md 5).
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The process that connected; valid, and the same process, even after it ended.  -1 with errno:
 * ENOPROTOOPT before Linux 6.5. */
int pidfd_of_peer(int conn);
/* The number it had; 0: it is in a pid namespace that cannot be seen from ours. */
pid_t pidfd_number_of_peer(int conn);
int pidfd_of_number(pid_t pid); /* -1: ESRCH */
bool pidfd_ended(int pidfd);    /* all its threads */
/* The inode of its cgroup's directory in cgroup v2.  -1 with errno: ESRCH when it ended, ENODATA
 * before Linux 6.13. */
int pidfd_cgroup(int pidfd, uint64_t *id);
