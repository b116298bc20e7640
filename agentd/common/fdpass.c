/* fdpass.c - sendmsg() and recvmsg() with SCM_RIGHTS. */
#include "fdpass.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

int fdpass_send(int sock, const void *packet, size_t size, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = (void *)packet, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
	ssize_t n;

	if (fd >= 0) {
		msg.msg_control = &control;
		msg.msg_controllen = sizeof(control);
		struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(c), &fd, sizeof(int));
	}
	do
		n = sendmsg(sock, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -1 : 0;
}

/* All are taken out and counted: CMSG_SPACE of one fd has room for two, and the kernel would not
 * call it cut (process-split.md 4).  One for which there is no room would be closed by the kernel,
 * in our time. */
static void take_fds(struct msghdr *msg, struct fdpass_got *got)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n && got->nfds < FDPASS_FDS_MAX; i++)
			memcpy(&got->fds[got->nfds++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
	}
}

int fdpass_receive(int sock, void *packet, size_t size, int flags, struct fdpass_got *got)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDPASS_FDS_MAX * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = packet, .iov_len = size};
	struct msghdr msg = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control)};

	*got = (struct fdpass_got){.nfds = 0};
	do
		got->size = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
	while (got->size < 0 && errno == EINTR);
	if (got->size < 0)
		return -1;
	take_fds(&msg, got);
	got->cut = msg.msg_flags & MSG_TRUNC;
	/* There was room: the process is at its limit of open files. */
	got->lost = msg.msg_flags & MSG_CTRUNC;
	return 0;
}

int fdpass_first(const struct fdpass_got *got)
{
	for (unsigned i = 1; i < got->nfds; i++)
		close(got->fds[i]);
	return got->nfds ? got->fds[0] : -1;
}
