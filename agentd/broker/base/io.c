/* io.c - the packets that cross the socketpair. */
#include "io.h"
#include "apart.h"
#include "common/err.h"
#include "common/fdpass.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { COPY_BYTES = 16384 };

static const uint64_t fnv_offset = 0xcbf29ce484222325u, fnv_prime = 0x100000001b3u;

/* recv() = 0 is the end of the worker, or an empty packet of it. */
static bool is_hung_up(int sock)
{
	struct pollfd p = {.fd = sock, .events = POLLRDHUP};

	return poll(&p, 1, 0) == 1;
}

/* Only the first may be wanted. */
static void keep_first(struct broker_request *req, const struct fdpass_got *got)
{
	req->fd = got->nfds ? got->fds[0] : -1;
	req->nfds = (int)got->nfds;
	req->lost_fd = got->lost;
	req->hoards = false;
	for (unsigned i = 1; i < got->nfds; i++)
		req->hoards |= !apart_close(got->fds[i]);
}

static void drop_first(struct broker_request *req)
{
	req->hoards |= !apart_close(req->fd);
	req->fd = -1;
}

enum broker_got broker_io_receive(int sock, struct broker_request *req, struct err *e)
{
	struct fdpass_got got;
	int rc;

	do
		rc = fdpass_receive(sock, &req->r, sizeof(req->r), MSG_DONTWAIT, &got);
	while (rc && errno == ECONNRESET); /* told once, before the rest */
	keep_first(req, &got);
	if (rc)
		return errno == EAGAIN ? BROKER_GOT_NOTHING : BROKER_GOT_EOF;
	if (got.size == 0 && is_hung_up(sock)) {
		drop_first(req);
		return BROKER_GOT_EOF;
	}
	if (got.size == sizeof(req->r) && !got.cut)
		return BROKER_GOT_REQUEST;
	if (got.cut)
		err_set(e, EPROTO, "a request longer than %zu bytes", sizeof(req->r));
	else
		err_set(
		    e, EPROTO, "a request of %zd bytes instead of %zu", got.size, sizeof(req->r));
	drop_first(req);
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

int broker_io_copy(int from, int to, size_t max, struct broker_copy *done, struct err *e)
{
	char bytes[COPY_BYTES];
	ssize_t n;
	int rc = 0;

	*done = (struct broker_copy){.digest = fnv_offset};
	while (rc == 0 && (n = pread(from, bytes, sizeof(bytes), (off_t)done->size)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			rc = err_sys(e, "cannot be read");
		else if (done->size + (size_t)n > max)
			rc = err_set(e, EFBIG, "is larger than %zu KiB", max / 1024);
		else if (write_all(to, bytes, (size_t)n))
			rc = err_sys(e, "cannot be copied");
		for (ssize_t i = 0; rc == 0 && i < n; i++)
			done->digest = (done->digest ^ (uint8_t)bytes[i]) * fnv_prime;
		if (rc == 0)
			done->size += (size_t)n;
	}
	explicit_bzero(bytes, sizeof(bytes)); /* it may have been a token */
	return rc;
}

int broker_io_seal(int memfd, struct err *e)
{
	if (fcntl(memfd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		return err_sys(e, "cannot be sealed");
	return 0;
}
