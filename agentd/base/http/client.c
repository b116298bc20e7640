/* client.c - http_get(): write the request, read head and body, call `done`, close.
 *
 * Not on evhttp: its client (2.1.12) closes the fd of the bufferevent it is given and connects
 * again to a host and port, and ours are unix sockets and sockets of other network namespaces.  A
 * one-shot client needs little of HTTP/1.1: a body ends by Content-Length or by the connection's
 * end.  A chunked body is refused.
 */
#include <ctype.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/util.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/loop.h"
#include "common/mem.h"
#include "http.h"

enum { BODY_MAX = 16 * 1024 * 1024, HEAD_MAX = 8 * 1024, TIMEOUT_S = 8, UNTIL_CLOSE = -1 };

struct http_get {
	struct bufferevent *bev;
	struct http_get **slot;
	http_done done;
	http_part part; /* NULL: the whole at once */
	void *ctx;
	int status;        /* 0 until the status line was read */
	size_t head_bytes; /* read so far */
	bool in_body, status_only;
	long body_len; /* or UNTIL_CLOSE */
};

static void finish(struct http_get *g, int status)
{
	struct evbuffer *body = NULL;
	http_done done = g->done;
	void *ctx = g->ctx;

	if (status) {
		struct evbuffer *in = bufferevent_get_input(g->bev);
		body = evbuffer_new();
		evbuffer_remove_buffer(in, body,
		    g->body_len == UNTIL_CLOSE ? evbuffer_get_length(in) : (size_t)g->body_len);
	}
	http_get_cancel(g->slot);
	done(ctx, status, body);
	if (body)
		evbuffer_free(body);
}

static int parse_status(struct http_get *g, const char *line)
{
	const char *p = line + strlen("HTTP/1.x ");

	if (strncmp(line, "HTTP/1.", 7) != 0 || !isdigit((unsigned char)line[7]) || line[8] != ' ')
		return -1;
	for (int i = 0; i < 3; i++) {
		if (!isdigit((unsigned char)p[i]))
			return -1;
		g->status = g->status * 10 + (p[i] - '0');
	}
	return g->status >= 100 && (p[3] == ' ' || p[3] == '\0') ? 0 : -1;
}

static int parse_length(struct http_get *g, const char *text)
{
	char *end;

	if (!isdigit((unsigned char)*text))
		return -1;
	long n = strtol(text, &end, 10);
	end += strspn(end, " \t");
	/* Two lengths that differ: somebody on the way reads another body than we do. */
	if (*end || n > BODY_MAX || (g->body_len != UNTIL_CLOSE && g->body_len != n))
		return -1;
	g->body_len = n;
	return 0;
}

static int parse_header(struct http_get *g, const char *line)
{
	static const char length[] = "Content-Length:";

	if (strncasecmp(line, "Transfer-Encoding:", 18) == 0)
		return g->status_only ? 0 : -1;
	if (strncasecmp(line, length, sizeof(length) - 1) != 0)
		return strchr(line, ':') ? 0 : -1;
	line += sizeof(length) - 1;
	return parse_length(g, line + strspn(line, " \t"));
}

static int end_head(struct http_get *g)
{
	if (g->status < 200) {
		g->status = 0; /* "continue": the real answer follows, within the same limit */
		g->body_len = UNTIL_CLOSE;
		return 0;
	}
	if (g->status == 204 || g->status == 304)
		g->body_len = 0;
	g->in_body = true;
	return 0;
}

/* 0: more bytes are needed, or the body begins.  -1: this is no answer. */
static int read_head(struct http_get *g, struct evbuffer *in)
{
	while (!g->in_body) {
		size_t n;
		auto_free char *line = evbuffer_readln(in, &n, EVBUFFER_EOL_CRLF);
		if (!line)
			return g->head_bytes + evbuffer_get_length(in) > HEAD_MAX ? -1 : 0;
		g->head_bytes += n + 2;
		if (g->head_bytes > HEAD_MAX || strlen(line) != n)
			return -1;
		int rc = !g->status ? parse_status(g, line)
			 : n        ? parse_header(g, line)
				    : end_head(g);
		if (rc < 0)
			return -1;
	}
	return 0;
}

static void on_bytes(struct bufferevent *bev, void *ctx)
{
	struct http_get *g = ctx;
	struct evbuffer *in = bufferevent_get_input(bev);

	if (read_head(g, in) < 0) {
		finish(g, 0);
		return;
	}
	if (!g->in_body)
		return;
	if (g->status_only) {
		evbuffer_drain(in, evbuffer_get_length(in));
		finish(g, g->status);
		return;
	}
	if (g->part && g->status == 200) {
		bufferevent_set_timeouts(bev, NULL, NULL);
		g->part(g->ctx, in);
		return;
	}
	if (g->body_len != UNTIL_CLOSE && evbuffer_get_length(in) >= (size_t)g->body_len)
		finish(g, g->status);
	else if (evbuffer_get_length(in) > BODY_MAX)
		finish(g, 0);
}

/* The peer closed, an error, or no progress for 8 s. */
static void on_end(struct bufferevent *bev, short what, void *ctx)
{
	struct http_get *g = ctx;
	bool complete = (what & BEV_EVENT_EOF) && g->in_body && g->body_len == UNTIL_CLOSE;

	(void)bev;
	finish(g, complete ? g->status : 0);
}

/* A method and target that stay within the request line. */
static bool is_sendable(const char *method, const char *target)
{
	for (const char *p = target; *p; p++)
		if (*p <= ' ' || *p >= 0x7f)
			return false;
	for (const char *p = method; *p; p++)
		if (!isupper((unsigned char)*p))
			return false;
	return *method && *target == '/';
}

void http_get(
    struct loop *l, struct http_get **slot, struct http_ask ask, http_done done, void *ctx)
{
	struct http_get *g = mem_zalloc(sizeof(*g));
	struct timeval timeout = {.tv_sec = TIMEOUT_S};

	evutil_make_socket_nonblocking(ask.fd);
	g->bev = bufferevent_socket_new(loop_base(l), ask.fd, BEV_OPT_CLOSE_ON_FREE);
	g->slot = slot;
	g->done = done;
	g->ctx = ctx;
	g->body_len = UNTIL_CLOSE;
	g->status_only = ask.status_only;
	*slot = g;
	bufferevent_setcb(g->bev, on_bytes, NULL, on_end, g);
	bufferevent_set_timeouts(g->bev, &timeout, &timeout);
	/* More than both limits together is never held. */
	bufferevent_setwatermark(g->bev, EV_READ, 0, HEAD_MAX + BODY_MAX + 1);
	if (!is_sendable(ask.method, ask.target)) {
		bufferevent_trigger_event(g->bev, BEV_EVENT_ERROR, BEV_OPT_DEFER_CALLBACKS);
		return;
	}
	evbuffer_add_printf(bufferevent_get_output(g->bev),
	    "%s %s HTTP/1.1\r\n%sConnection: close\r\n%s\r\n", ask.method, ask.target,
	    ask.headers ? ask.headers : "Host: localhost\r\n",
	    strcmp(ask.method, "GET") == 0 ? "" : "Content-Length: 0\r\n");
	bufferevent_enable(g->bev, EV_READ | EV_WRITE);
}

void http_follow(struct http_get *g, http_part part)
{
	g->part = part;
}

void http_get_cancel(struct http_get **get)
{
	struct http_get *g = take(*get);

	if (!g)
		return;
	bufferevent_free(g->bev);
	free(g);
}
