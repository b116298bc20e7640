/* broker_io.c - what crosses the socketpair. */
#include "broker_io.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FDS_ROOM = 4, COPY_BYTES = 16384 };

static const uint64_t fnv_offset = 0xcbf29ce484222325u, fnv_prime = 0x100000001b3u;

/* Every fd that came is counted, only the first is kept: CMSG_SPACE(1 fd) would have room for two
 * (process-split.md 4, trap). */
static void take_fds(struct msghdr *msg, struct broker_request *req)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < n; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (req->nfds++ == 0)
				req->fd = fd;
			else
				close(fd);
		}
	}
}

/* recv() = 0 is the end of the worker, or an empty packet of it. */
static bool is_hung_up(int sock)
{
	struct pollfd p = {.fd = sock, .events = POLLRDHUP};

	return poll(&p, 1, 0) == 1;
}

enum broker_got broker_io_receive(int sock, struct broker_request *req, struct broker_why *w)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(FDS_ROOM * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = &req->r, .iov_len = sizeof(req->r)};
	struct msghdr msg = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control)};
	ssize_t n;

	req->fd = -1;
	req->nfds = 0;
	do
		n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && (errno == EINTR || errno == ECONNRESET)); /* told once, before the rest */
	if (n < 0)
		return errno == EAGAIN ? BROKER_GOT_NOTHING : BROKER_GOT_EOF;
	take_fds(&msg, req);
	/* Cut short below our room: the process is at its limit of open files. */
	req->lost_fd = (msg.msg_flags & MSG_CTRUNC) && req->nfds < FDS_ROOM;
	if (n == 0 && is_hung_up(sock))
		return BROKER_GOT_EOF;
	if (msg.msg_flags & MSG_TRUNC)
		broker_refuse(w, EPROTO, "a request longer than %zu bytes", sizeof(req->r));
	else if (n != sizeof(req->r))
		broker_refuse(
		    w, EPROTO, "a request of %zd bytes instead of %zu", n, sizeof(req->r));
	else
		return BROKER_GOT_REQUEST;
	if (req->fd >= 0)
		close(req->fd);
	req->fd = -1;
	return BROKER_GOT_GARBAGE;
}

bool broker_io_writable(int sock)
{
	struct pollfd p = {.fd = sock, .events = POLLOUT};

	return poll(&p, 1, 0) == 1 && (p.revents & POLLOUT);
}

static int write_all(int fd, const char *data, size_t size)
{
	while (size) {
		ssize_t n = write(fd, data, size);
		if (n < 0 && errno != EINTR)
			return -1;
		if (n > 0) {
			data += n;
			size -= (size_t)n;
		}
	}
	return 0;
}

int broker_io_copy(int from, int to, size_t max, struct broker_copy *done, struct broker_why *w)
{
	char bytes[COPY_BYTES];
	ssize_t n;
	int rc = 0;

	*done = (struct broker_copy){.digest = fnv_offset};
	while (rc == 0 && (n = pread(from, bytes, sizeof(bytes), (off_t)done->size)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			rc = broker_refuse_sys(w, "cannot be read");
		else if (done->size + (size_t)n > max)
			rc = broker_refuse(w, EFBIG, "is larger than %zu KiB", max / 1024);
		else if (write_all(to, bytes, (size_t)n))
			rc = broker_refuse_sys(w, "cannot be copied");
		for (ssize_t i = 0; rc == 0 && i < n; i++)
			done->digest = (done->digest ^ (uint8_t)bytes[i]) * fnv_prime;
		if (rc == 0)
			done->size += (size_t)n;
	}
	explicit_bzero(bytes, sizeof(bytes)); /* it may have been a token */
	return rc;
}

int broker_io_seal(int memfd, struct broker_why *w)
{
	if (fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return broker_refuse_sys(w, "cannot be sealed");
	return 0;
}
