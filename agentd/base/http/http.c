/* http.c - the server: listener -> evhttp reads a request within the limits -> the handler answers,
 * or defers -> the answer, whole or in parts, or the peer goes first.
 *
 * evhttp parses and writes; here are the limits, the raw path (nothing decoded: security-rules.md
 * 9), the peer, and a listener that pauses instead of spinning when fds run out.
 */
#include "http.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

#include "base/loop.h"
#include "common/log.h"
#include "common/mem.h"

LOG_SCOPE("http");

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

enum {
	BODY_MAX = 64 * 1024,
	HEADERS_MAX = 8 * 1024,
	UNREAD_MAX = 256 * 1024,
	TIMEOUT_S = 10,
	PAUSE_MS = 100
};

struct http_server {
	struct loop *loop;
	struct evhttp *evhttp;
	struct evconnlistener *listener;
	struct loop_timer pause;
	bool failing; /* to accept; already logged */
	http_handler handler;
	void *ctx;
	struct http_later *laters;
	struct http_server *next;
};

struct http_later {
	struct http_server *server;
	struct evhttp_request *ev;
	struct http_later **slot;
	struct event *closed;
	bool begun;
	void (*gone)(void *ctx);
	void *ctx;
	struct http_later *prev, *next;
};

struct http_request {
	struct http_server *server;
	struct evhttp_request *ev;
	char *path;
	struct evkeyvalq query;
	bool parsed, replied;
};

/* An error callback of evconnlistener is told the evhttp, not us: hence this list. */
static struct http_server *servers;

static void on_pause_over(void *ctx)
{
	struct http_server *s = ctx;

	evconnlistener_enable(s->listener);
}

static void on_accept_failed(struct evconnlistener *listener, void *evhttp)
{
	struct http_server *s;

	LL_SEARCH_SCALAR(servers, s, evhttp, (struct evhttp *)evhttp);
	if (!s->failing)
		log_warn(NULL, "accept: %m; trying again every %d ms", PAUSE_MS);
	s->failing = true;
	evconnlistener_disable(listener);
	loop_timer_in(s->loop, &s->pause, PAUSE_MS, on_pause_over, s);
}

static void on_request(struct evhttp_request *ev, void *ctx)
{
	struct http_server *s = ctx;
	const char *uri = evhttp_request_get_uri(ev);
	size_t path_len = strcspn(uri, "?");
	struct http_request r = {.server = s, .ev = ev, .path = mem_dup(uri, path_len + 1)};

	s->failing = false;
	r.path[path_len] = '\0';
	s->handler(s->ctx, &r);
	if (!r.replied)
		http_reply(&r, 500, "text/plain", NULL);
	if (r.parsed)
		evhttp_clear_headers(&r.query);
	free(r.path);
}

static void later_drop(struct http_later *a)
{
	evhttp_connection_set_closecb(evhttp_request_get_connection(a->ev), NULL, NULL);
	event_free(a->closed);
	DL_DELETE(a->server->laters, a);
	*a->slot = NULL;
	free(a);
}

struct http_server *http_server_new(struct loop *l, int listen_fd, http_handler h, void *ctx)
{
	struct http_server *s = mem_zalloc(sizeof(*s));
	int one = 1;

	s->loop = l;
	s->handler = h;
	s->ctx = ctx;
	s->evhttp = evhttp_new(loop_base(l));
	evhttp_set_max_body_size(s->evhttp, BODY_MAX);
	evhttp_set_max_headers_size(s->evhttp, HEADERS_MAX);
	evhttp_set_timeout(s->evhttp, TIMEOUT_S);
	evhttp_set_allowed_methods(
	    s->evhttp, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE);
	evhttp_set_gencb(s->evhttp, on_request, s);

	fcntl(listen_fd, F_SETFL, fcntl(listen_fd, F_GETFL) | O_NONBLOCK);
	/* Accepted sockets inherit it; without it an answer waits for the peer's delayed ACK
	 * (ecosystem.md 0.2).  Unix sockets refuse the option: nothing lost. */
	setsockopt(listen_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	s->listener = evconnlistener_new(
	    loop_base(l), NULL, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, listen_fd);
	evhttp_bind_listener(s->evhttp, s->listener);
	evconnlistener_set_error_cb(s->listener, on_accept_failed);
	LL_PREPEND(servers, s);
	return s;
}

void http_server_free(struct http_server **server)
{
	struct http_server *s = take(*server);
	struct http_later *a, *tmp;

	if (!s)
		return;
	LL_DELETE(servers, s);
	loop_timer_stop(&s->pause);
	DL_FOREACH_SAFE (s->laters, a, tmp)
		later_drop(a);
	evhttp_free(s->evhttp); /* with its listener and connections */
	free(s);
}

/* ---- one request ---- */

const char *http_method(const struct http_request *r)
{
	switch (evhttp_request_get_command(r->ev)) {
	case EVHTTP_REQ_GET:
		return "GET";
	case EVHTTP_REQ_POST:
		return "POST";
	case EVHTTP_REQ_PUT:
		return "PUT";
	default:
		return "DELETE";
	}
}

const char *http_path(const struct http_request *r)
{
	return r->path;
}

const char *http_query(struct http_request *r, const char *key)
{
	const char *query = strchr(evhttp_request_get_uri(r->ev), '?');

	/* A NUL would cut the value short of what was checked elsewhere. */
	if (!query || strstr(query, "%00"))
		return NULL;
	if (!r->parsed && evhttp_parse_query_str(query + 1, &r->query) < 0)
		return NULL;
	r->parsed = true;
	return evhttp_find_header(&r->query, key);
}

static int socket_of(const struct http_request *r)
{
	struct evhttp_connection *c = evhttp_request_get_connection(r->ev);

	return bufferevent_getfd(evhttp_connection_get_bufferevent(c));
}

/* An accepted unix socket shows that of the connecting one (process-split.md 0.5). */
static uint64_t netns_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	return getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) ? 0 : cookie;
}

bool http_peer_is_here(const struct http_request *r)
{
	return netns_cookie(socket_of(r)) ==
	       netns_cookie(evconnlistener_get_fd(r->server->listener));
}

uid_t http_peer_uid(const struct http_request *r)
{
	int fd = socket_of(r);
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t len = sizeof(peer);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
		return (uid_t)-1;
	return peer.uid;
}

void http_reply(struct http_request *r, int status, const char *type, struct evbuffer *body)
{
	evhttp_add_header(evhttp_request_get_output_headers(r->ev), "Content-Type", type);
	evhttp_send_reply(r->ev, status, NULL, body);
	r->replied = true;
}

/* ---- one that is answered later ---- */

static struct evhttp_connection *connection_of(const struct http_later *a)
{
	return evhttp_request_get_connection(a->ev);
}

/* evhttp itself ends the connection: a write failed, or took too long.  It has then let go of the
 * request, which is ours to free. */
static void on_connection_ends(struct evhttp_connection *c, void *ctx)
{
	struct http_later *a = ctx, was = *a;

	(void)c;
	event_free(a->closed);
	DL_DELETE(a->server->laters, a);
	*a->slot = NULL;
	free(a);
	if (!evhttp_request_get_connection(was.ev))
		evhttp_request_free(was.ev);
	was.gone(was.ctx);
}

/* evhttp reads nothing while a request is under way, so we look whether the peer is still there. */
static void on_peer_closed(evutil_socket_t fd, short what, void *ctx)
{
	struct http_later *a = ctx;
	struct evhttp_connection *c = connection_of(a);
	struct http_later was = *a;

	(void)fd;
	(void)what;
	later_drop(a);
	evhttp_connection_free(c);
	was.gone(was.ctx);
}

void http_defer(
    struct http_request *r, struct http_later **slot, void (*gone)(void *ctx), void *ctx)
{
	struct http_later *a = mem_zalloc(sizeof(*a));
	struct evhttp_connection *c = evhttp_request_get_connection(r->ev);

	*a = (struct http_later){
	    .server = r->server, .ev = r->ev, .slot = slot, .gone = gone, .ctx = ctx};
	a->closed = event_new(loop_base(r->server->loop),
	    bufferevent_getfd(evhttp_connection_get_bufferevent(c)), EV_CLOSED, on_peer_closed, a);
	event_add(a->closed, NULL);
	evhttp_connection_set_closecb(c, on_connection_ends, a);
	DL_APPEND(r->server->laters, a);
	*slot = a;
	r->replied = true;
}

void http_later_reply(struct http_later **slot, int status, const char *type, struct evbuffer *body)
{
	struct http_request r = {.ev = (*slot)->ev};

	later_drop(*slot);
	http_reply(&r, status, type, body);
}

void http_later_begin(struct http_later *a, int status, const char *type)
{
	struct bufferevent *bev = evhttp_connection_get_bufferevent(connection_of(a));
	const struct timeval write = {.tv_sec = TIMEOUT_S};

	a->begun = true;
	a->ev->minor = 0; /* HTTP/1.0 has no chunks */
	evhttp_add_header(evhttp_request_get_output_headers(a->ev), "Connection", "close");
	evhttp_add_header(evhttp_request_get_output_headers(a->ev), "Content-Type", type);
	evhttp_send_reply_start(a->ev, status, NULL);
	/* From here on evhttp reads, and throws nothing away.  Silence of the peer is no fault. */
	bufferevent_setwatermark(bev, EV_READ, 0, HEADERS_MAX);
	bufferevent_set_timeouts(bev, NULL, &write);
}

bool http_later_send(struct http_later *a, struct evbuffer *part)
{
	struct bufferevent *bev = evhttp_connection_get_bufferevent(connection_of(a));

	if (evbuffer_get_length(bufferevent_get_output(bev)) > UNREAD_MAX) {
		evbuffer_drain(part, evbuffer_get_length(part));
		return false;
	}
	evhttp_send_reply_chunk(a->ev, part);
	return true;
}

void http_later_end(struct http_later **slot)
{
	struct http_later *a = *slot;

	if (!a)
		return;
	struct evhttp_connection *c = connection_of(a);
	struct evhttp_request *ev = a->ev;
	bool begun = a->begun;
	later_drop(a);
	if (begun)
		evhttp_send_reply_end(ev);
	else
		evhttp_connection_free(c);
}
