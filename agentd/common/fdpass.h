/* fdpass.h - one packet, and at most one fd with it; libc only, both processes use it. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Send `size` bytes as one packet, with `fd` unless it is -1 (it stays the caller's).  Never waits:
 * -1 with errno, EAGAIN when the socket is full.  No SIGPIPE. */
int fdpass_send(int sock, const void *packet, size_t size, int fd);

enum { FDPASS_FDS_MAX = 253 }; /* the kernel's own limit: none is dropped behind our back */

struct fdpass_got {
	ssize_t size;  /* 0: the end, or an empty packet */
	unsigned nfds; /* that came, all the caller's */
	int fds[FDPASS_FDS_MAX];
	bool cut;  /* the packet was longer */
	bool lost; /* an fd was sent and none was left for us */
};
/* One packet.  `flags`: MSG_DONTWAIT or 0.  -1 with errno: none came. */
int fdpass_receive(int sock, void *packet, size_t size, int flags, struct fdpass_got *got);
/* The first, or -1; the others are closed, which waits if their maker wants it to. */
int fdpass_first(const struct fdpass_got *got);
