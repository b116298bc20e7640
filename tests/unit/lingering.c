/* lingering.c - see lingering.h. */
#include "lingering.h"
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

int lingering_new(int *peer)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	const struct linger hour = {1, 3600};
	socklen_t size = sizeof(at);
	static char bytes[1 << 16];
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(l, (struct sockaddr *)&at, sizeof(at)) | listen(l, 1), 0);
	getsockname(l, (struct sockaddr *)&at, &size);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	*peer = accept4(l, NULL, NULL, SOCK_CLOEXEC);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), 0);
	close(l);
	return fd;
}

ssize_t lingering_send(int sock, int fd)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec iov = {.iov_base = "x", .iov_len = 1};
	struct msghdr msg = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	return sendmsg(sock, &msg, MSG_NOSIGNAL);
}

void lingering_give(int sock, int *peer)
{
	int fd = lingering_new(peer);

	assert_int_equal(lingering_send(sock, fd), 1);
	close(fd);
}
