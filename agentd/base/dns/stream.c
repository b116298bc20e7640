/* stream.c - readable -> a buffer -> whole messages, one by one; sent -> a buffer -> writable.
 */
#include "stream.h"
#include "base/loop.h"
#include "common/mem.h"
#include <errno.h>
#include <event2/buffer.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <sys/socket.h>

enum {
	LENGTH = 2,
	MESSAGES_PER_TURN = 16, /* then others have theirs */
	READ_SIZE = 16 * 1024,
	WAITING_MAX = LENGTH + 65535,
};

struct dns_stream {
	struct loop *loop;
	int fd;
	const struct dns_stream_events *ev;
	void *ctx;
	struct evbuffer *in, *out;
	struct loop_fd readable, writable;
	struct loop_timer more; /* messages that are here already */
	bool writing, overdue, held;
	bool busy, freed; /* inside an event; by it */
};

static void on_more(void *ctx);
static void on_readable(void *ctx);

/* The next whole message; NULL: there is none. */
static uint8_t *next_message(struct dns_stream *s, size_t *size)
{
	uint8_t head[LENGTH];

	if (evbuffer_copyout(s->in, head, LENGTH) < LENGTH)
		return NULL;
	*size = (size_t)head[0] << 8 | head[1];
	if (evbuffer_get_length(s->in) < LENGTH + *size)
		return NULL;
	uint8_t *data = mem_zalloc(*size + 1);
	evbuffer_drain(s->in, LENGTH);
	evbuffer_remove(s->in, data, *size);
	return data;
}

static void destroy(struct dns_stream *s)
{
	evbuffer_free(s->in);
	evbuffer_free(s->out);
	free(s);
}

/* False: `s` is no more. */
static bool hand_over(struct dns_stream *s)
{
	size_t size;
	uint8_t *data;

	s->busy = true;
	for (int i = 0; !s->freed && !s->held && i < MESSAGES_PER_TURN; i++) {
		if (!(data = next_message(s, &size)))
			break;
		s->ev->message(s->ctx, data, size);
		free(data);
	}
	s->busy = false;
	if (!s->freed)
		return true;
	destroy(s);
	return false;
}

static void on_more(void *ctx)
{
	struct dns_stream *s = ctx;
	size_t left = evbuffer_get_length(s->in);

	if (s->overdue)
		s->ev->closed(s->ctx);
	else if (hand_over(s) && !s->held && evbuffer_get_length(s->in) < left)
		loop_timer_in(s->loop, &s->more, 0, on_more, s);
}

static void on_hold_over(void *ctx)
{
	struct dns_stream *s = ctx;

	s->held = false;
	loop_fd_watch(s->loop, &s->readable, s->fd, LOOP_READ, on_readable, s);
	on_more(s);
}

void dns_stream_hold(struct dns_stream *s, int64_t ms)
{
	s->held = true;
	loop_fd_stop(&s->readable);
	loop_timer_in(s->loop, &s->more, ms, on_hold_over, s);
}

static void on_readable(void *ctx)
{
	struct dns_stream *s = ctx;
	int n;

	if (evbuffer_get_length(s->in) >= WAITING_MAX)
		return; /* on_more() makes room */
	n = evbuffer_read(s->in, s->fd, READ_SIZE);
	if (n > 0) {
		on_more(s);
		return;
	}
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	s->ev->closed(s->ctx);
}

static void stop_writing(struct dns_stream *s)
{
	if (s->writing)
		loop_fd_stop(&s->writable);
	s->writing = false;
}

static void on_writable(void *ctx)
{
	struct dns_stream *s = ctx;

	if (evbuffer_write(s->out, s->fd) < 0 && errno != EAGAIN && errno != EINTR) {
		s->ev->closed(s->ctx);
		return;
	}
	if (evbuffer_get_length(s->out) == 0)
		stop_writing(s);
}

/* A peer that asks and does not read is ended by a turn of the loop (R2). */
void dns_stream_send(struct dns_stream *s, const uint8_t *data, size_t size)
{
	const uint8_t head[LENGTH] = {(uint8_t)(size >> 8), (uint8_t)size};

	if (evbuffer_get_length(s->out) + LENGTH + size > DNS_STREAM_QUEUE_MAX) {
		s->overdue = true;
		loop_timer_in(s->loop, &s->more, 0, on_more, s);
		return;
	}
	evbuffer_add(s->out, head, LENGTH);
	evbuffer_add(s->out, data, size);
	if (!s->writing)
		loop_fd_watch(s->loop, &s->writable, s->fd, LOOP_WRITE, on_writable, s);
	s->writing = true;
}

struct dns_stream *dns_stream_new(
    struct loop *l, int fd, const struct dns_stream_events *ev, void *ctx)
{
	struct dns_stream *s = mem_zalloc(sizeof(*s));
	int on = 1;

	setsockopt(
	    fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)); /* answers do not wait for acks */
	s->loop = l;
	s->fd = fd;
	s->ev = ev;
	s->ctx = ctx;
	s->in = evbuffer_new();
	s->out = evbuffer_new();
	loop_fd_watch(l, &s->readable, fd, LOOP_READ, on_readable, s);
	return s;
}

void dns_stream_free(struct dns_stream **sp)
{
	struct dns_stream *s = take(*sp);

	if (!s)
		return;
	loop_fd_stop(&s->readable);
	stop_writing(s);
	loop_timer_stop(&s->more);
	close(s->fd);
	s->freed = true;
	if (!s->busy)
		destroy(s);
}
