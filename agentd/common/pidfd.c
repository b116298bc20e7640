/* pidfd.c - SO_PEERPIDFD and PIDFD_GET_INFO, whose constants Debian 12 does not have. */
#include "pidfd.h"
#include <errno.h>
#include <linux/ioctl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* The first version of the structure (64 bytes); later kernels fill in as much. */
struct info {
	uint64_t mask, cgroupid;
	uint32_t pid, tgid, ppid, ids[8], spare;
};
enum { INFO_CGROUPID = 1 << 2 };
#define GET_INFO _IOWR(0xFF, 11, struct info)
_Static_assert(sizeof(struct info) == 64, "the kernel's first size");

int pidfd_of_peer(int conn)
{
	int fd = -1;
	socklen_t len = sizeof(fd);

	return getsockopt(conn, SOL_SOCKET, SO_PEERPIDFD, &fd, &len) ? -1 : fd;
}

pid_t pidfd_number_of_peer(int conn)
{
	struct ucred cred = {.pid = 0};
	socklen_t len = sizeof(cred);

	return getsockopt(conn, SOL_SOCKET, SO_PEERCRED, &cred, &len) ? 0 : cred.pid;
}

int pidfd_of_number(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

bool pidfd_ended(int pidfd)
{
	struct pollfd p = {.fd = pidfd, .events = POLLIN};

	return poll(&p, 1, 0) != 0;
}

int pidfd_cgroup(int pidfd, uint64_t *id)
{
	struct info info = {.mask = INFO_CGROUPID};

	if (ioctl(pidfd, GET_INFO, &info)) {
		errno = errno == ESRCH ? ESRCH : ENODATA;
		return -1;
	}
	if (!(info.mask & INFO_CGROUPID) || !info.cgroupid) {
		errno = ENODATA;
		return -1;
	}
	*id = info.cgroupid;
	return 0;
}
