/* accept.c - readable listener -> one accept4() -> the callback; level-triggered, so the next
 * connection makes the listener readable again and the callback may free us.
 *
 * An accept that fails for want of fds (or on a listener that somebody shut down) would be tried
 * again at once and for ever: the watch is taken off for 100 ms instead.
 */
#include "accept.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "common/log.h"
#include "common/mem.h"
#include "loop.h"

LOG_SCOPE("accept");

enum { PAUSE_MS = 100 };

struct accept {
	struct loop *loop;
	int fd;
	accept_cb accepted;
	void *ctx;
	struct loop_fd readable;
	struct loop_timer pause;
	bool failing; /* already logged */
};

static void on_readable(void *ctx);

static void on_pause_over(void *ctx)
{
	struct accept *a = ctx;

	loop_fd_watch(a->loop, &a->readable, a->fd, LOOP_READ, on_readable, a);
}

/* Nothing to do about it: the connection is gone again, or another process took it.  But a unix
 * listener that was shut down says EAGAIN too, and is readable for ever. */
static bool is_passing(int fd, int error)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	if (error == EAGAIN)
		return poll(&p, 1, 0) == 0;
	return error == EINTR || error == ECONNABORTED || error == EPROTO;
}

void accept_pause(struct accept *a)
{
	loop_fd_stop(&a->readable);
	loop_timer_in(a->loop, &a->pause, PAUSE_MS, on_pause_over, a);
}

static void on_readable(void *ctx)
{
	struct accept *a = ctx;
	int fd = accept4(a->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd >= 0) {
		a->failing = false;
		a->accepted(a->ctx, fd);
		return;
	}
	int error = errno;
	if (is_passing(a->fd, error))
		return;
	if (!a->failing)
		log_warn(NULL, "accept: %s; trying again every %d ms", strerror(error), PAUSE_MS);
	a->failing = true;
	accept_pause(a);
}

struct accept *accept_new(struct loop *l, int listen_fd, accept_cb accepted, void *ctx)
{
	struct accept *a = mem_zalloc(sizeof(*a));

	a->loop = l;
	a->fd = listen_fd;
	a->accepted = accepted;
	a->ctx = ctx;
	/* A connection that is gone again must not leave us blocked in accept4(). */
	fcntl(listen_fd, F_SETFL, fcntl(listen_fd, F_GETFL) | O_NONBLOCK);
	loop_fd_watch(l, &a->readable, listen_fd, LOOP_READ, on_readable, a);
	return a;
}

void accept_free(struct accept **accept)
{
	struct accept *a = take(*accept);

	if (!a)
		return;
	loop_fd_stop(&a->readable);
	loop_timer_stop(&a->pause);
	close(a->fd);
	free(a);
}
