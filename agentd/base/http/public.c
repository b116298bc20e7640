/* public.c - accepted -> bytes until an empty line -> the page -> written -> our end is shut
 * down -> theirs, or the time is over, or too much came: closed.
 *
 * Bytes behind the empty line are read and ignored: closing a socket with unread bytes resets it,
 * and the peer might lose the answer.  A peer that sends without end is reset.
 */
#include "public.h"

#include <errno.h>
#include <event2/buffer.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#include "base/accept.h"
#include "base/loop.h"
#include "common/mem.h"

struct connection {
	struct http_public *server;
	int fd;
	struct loop_fd io;
	struct loop_timer end;
	struct evbuffer *out; /* NULL: still reading */
	struct connection *prev, *next;
	size_t got, behind;
	bool head; /* asked for the head alone */
	char request[PAGE_REQUEST_MAX];
};

struct http_public {
	struct loop *loop;
	struct accept *accept;
	page_make make;
	void *ctx;
	struct connection *connections; /* oldest first */
	unsigned nconnections;
};

static void connection_drop(struct connection *c)
{
	loop_fd_stop(&c->io);
	loop_timer_stop(&c->end);
	if (c->out)
		evbuffer_free(c->out);
	close(c->fd);
	DL_DELETE(c->server->connections, c);
	c->server->nconnections--;
	free(c);
}

static void on_time_over(void *ctx)
{
	connection_drop(ctx);
}

/* ---- the answer ---- */

static void on_closing(void *ctx)
{
	struct connection *c = ctx;
	ssize_t n = recv(c->fd, c->request, sizeof(c->request), 0);

	if (n > 0)
		c->behind += (size_t)n;
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR) || c->behind > PAGE_BEHIND_MAX)
		connection_drop(c);
}

static void on_writable(void *ctx)
{
	struct connection *c = ctx;

	if (evbuffer_write(c->out, c->fd) < 0 && errno != EAGAIN && errno != EINTR)
		return connection_drop(c);
	if (evbuffer_get_length(c->out))
		return;
	shutdown(c->fd, SHUT_WR);
	loop_fd_watch(c->server->loop, &c->io, c->fd, LOOP_READ, on_closing, c);
}

static const char *phrase(int status)
{
	switch (status) {
	case 200:
		return "OK";
	case 400:
		return "Bad Request";
	case 404:
		return "Not Found";
	case 405:
		return "Method Not Allowed";
	case 431:
		return "Request Header Fields Too Large";
	default:
		return "Service Unavailable";
	}
}

/* An error's body is its phrase, if it has no other. */
static void answer(struct connection *c, const struct page *page)
{
	const char *text = phrase(page->status);
	size_t size = page->body ? evbuffer_get_length(page->body) : 0;

	c->out = evbuffer_new();
	evbuffer_add_printf(c->out,
	    "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\nConnection: "
	    "close\r\n%s\r\n",
	    page->status, text, page->type, size ? size : strlen(text) + 1,
	    page->status == 405 ? "Allow: GET, HEAD\r\n" : "");
	if (c->head)
		; /* the length is that of a GET's body */
	else if (size)
		evbuffer_add_buffer(c->out, page->body);
	else
		evbuffer_add_printf(c->out, "%s\n", text);
	loop_fd_watch(c->server->loop, &c->io, c->fd, LOOP_WRITE, on_writable, c);
}

static void refuse(struct connection *c, int status)
{
	answer(c, &(struct page){.status = status, .type = "text/plain"});
}

/* ---- the request ---- */

/* "GET /path?query HTTP/1.x", or HEAD; the rest of the head says nothing that matters here. */
static void serve(struct connection *c, char *line)
{
	struct page page = {.status = 404, .type = "text/plain"};
	char *path = strchr(line, ' '), *version = path ? strchr(path + 1, ' ') : NULL;

	if (!version || strncmp(version + 1, "HTTP/1.", 7) != 0 || strlen(version + 1) != 8)
		return refuse(c, 400);
	*path++ = *version = '\0';
	path[strcspn(path, "?")] = '\0';
	c->head = !strcmp(line, "HEAD");
	if (!c->head && strcmp(line, "GET") != 0)
		return refuse(c, 405);
	page.body = evbuffer_new();
	c->server->make(c->server->ctx, path, &page);
	answer(c, &page);
	evbuffer_free(page.body);
}

static void on_readable(void *ctx)
{
	struct connection *c = ctx;
	const size_t seen = c->got < 3 ? 0 : c->got - 3; /* of the empty line */
	ssize_t n = recv(c->fd, c->request + c->got, sizeof(c->request) - c->got, 0);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		return connection_drop(c);
	c->got += (size_t)n;
	if (!memmem(c->request + seen, c->got - seen, "\r\n\r\n", 4)) {
		if (c->got == sizeof(c->request))
			refuse(c, 431);
		return;
	}
	char *end = memmem(c->request, c->got, "\r\n", 2);
	*end = '\0';
	if (strlen(c->request) != (size_t)(end - c->request))
		return refuse(c, 400); /* a NUL would cut it short */
	serve(c, c->request);
}

static void on_accepted(void *ctx, int fd)
{
	struct http_public *s = ctx;
	struct connection *c = mem_zalloc(sizeof(*c));

	if (s->nconnections == PAGE_CONNECTIONS_MAX)
		connection_drop(s->connections);
	c->server = s;
	c->fd = fd;
	DL_APPEND(s->connections, c);
	s->nconnections++;
	loop_timer_in(s->loop, &c->end, (int64_t)PAGE_SECONDS_MAX * 1000, on_time_over, c);
	loop_fd_watch(s->loop, &c->io, fd, LOOP_READ, on_readable, c);
}

struct http_public *http_public_new(struct loop *l, int listen_fd, page_make make, void *ctx)
{
	struct http_public *s = mem_zalloc(sizeof(*s));

	s->loop = l;
	s->make = make;
	s->ctx = ctx;
	s->accept = accept_new(l, listen_fd, on_accepted, s);
	return s;
}

void http_public_stop_accepting(struct http_public *s)
{
	accept_free(&s->accept);
}

void http_public_free(struct http_public **server)
{
	struct http_public *s = take(*server);
	struct connection *c, *next;

	if (!s)
		return;
	accept_free(&s->accept);
	DL_FOREACH_SAFE (s->connections, c, next)
		connection_drop(c);
	free(s);
}
