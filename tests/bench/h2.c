/* h2.c - see h2.h.
 *
 * h2_open, h2_send: frames are put into `out`, DATA as far as both windows allow, the rest waits in
 * its stream -> h2_turn: `out` is written, one read, every whole frame is taken: data and ends go
 * to the stream's owner, windows are given back when half of them is used (as Envoy's nghttp2
 * does), a larger window lets waiting DATA go.
 *
 * Header blocks are not decoded: the end of a stream says enough here.
 */
#include "h2.h"
#include "common/mem.h"

#include <event2/buffer.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <uthash.h>

enum { DATA, HEADERS, RST = 3, SETTINGS, PING = 6, GOAWAY, WINDOW_UPDATE };
enum { ACK = 1, END_STREAM = 1, END_HEADERS = 4, INITIAL_WINDOW_SIZE = 4 };
enum {
	HEAD = 9,
	FRAME_MAX = 16384,
	IN_SIZE = 256 * 1024,
	WINDOW = 16 << 20,
	DEFAULT_WINDOW = 65535
};

struct h2_stream {
	struct h2 *h2;
	int id;
	struct h2_events ev;
	void *ctx;
	struct evbuffer *waiting;
	bool last, ended;
	int64_t window; /* the peer's */
	size_t eaten;
	UT_hash_handle hh;
};

struct h2 {
	int fd, next_id;
	SSL *tls;
	struct evbuffer *out;
	struct h2_stream *streams;
	int64_t window, initial_window; /* the peer's */
	size_t eaten, have;
	uint8_t in[IN_SIZE];
};

/* --- the socket --- */

static int connect_unix(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strncpy(a.sun_path, path, sizeof(a.sun_path) - 1);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0)
		return fd;
	close(fd);
	return -1;
}

static int connect_tcp(const char *address)
{
	static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
	auto_free char *host = mem_strdup(address);
	char *port = strrchr(host, ':');
	struct addrinfo *a;
	int fd = -1, on = 1;

	if (!port)
		return -1;
	*port++ = 0;
	if (getaddrinfo(host, port, &hints, &a))
		return -1;
	fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(fd, a->ai_addr, a->ai_addrlen)) {
		close(fd);
		fd = -1;
	} else {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	}
	freeaddrinfo(a);
	return fd;
}

static SSL *start_tls(int fd)
{
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	SSL *tls = SSL_new(context);

	SSL_CTX_free(context);
	SSL_set_alpn_protos(tls, (const uint8_t *)"\2h2", 3);
	SSL_set_fd(tls, fd);
	if (SSL_connect(tls) == 1)
		return tls;
	SSL_free(tls);
	return NULL;
}

static ssize_t get(struct h2 *h, void *to, size_t room)
{
	return h->tls ? SSL_read(h->tls, to, (int)room) : read(h->fd, to, room);
}

static ssize_t put(struct h2 *h, const void *from, size_t len)
{
	return h->tls ? SSL_write(h->tls, from, (int)len) : send(h->fd, from, len, MSG_NOSIGNAL);
}

bool h2_flush(struct h2 *h)
{
	size_t len;

	while ((len = evbuffer_get_length(h->out)) > 0) {
		ssize_t n = put(h, evbuffer_pullup(h->out, -1), len);

		if (n <= 0)
			return false;
		evbuffer_drain(h->out, (size_t)n);
	}
	return true;
}

/* --- frames out --- */

static void put32(uint8_t *to, uint32_t v)
{
	for (int i = 0; i < 4; i++)
		to[i] = (uint8_t)(v >> (24 - 8 * i));
}

static uint32_t get32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_head(struct h2 *h, int type, int flags, int id, size_t len)
{
	uint8_t head[HEAD];

	put32(head, (uint32_t)len << 8);
	head[3] = (uint8_t)type;
	head[4] = (uint8_t)flags;
	put32(head + 5, (uint32_t)id);
	evbuffer_add(h->out, head, HEAD);
}

static void put_window(struct h2 *h, int id, size_t size)
{
	uint8_t bytes[4];

	put32(bytes, (uint32_t)size);
	put_head(h, WINDOW_UPDATE, 0, id, sizeof(bytes));
	evbuffer_add(h->out, bytes, sizeof(bytes));
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void pump(struct h2_stream *s)
{
	struct h2 *h = s->h2;
	int64_t len;

	while ((len = (int64_t)evbuffer_get_length(s->waiting)) > 0 || (s->last && !s->ended)) {
		int64_t n = least(least(len, FRAME_MAX), least(s->window, h->window));

		if (len > 0 && n <= 0)
			return;
		s->ended = s->last && n == len;
		put_head(h, DATA, s->ended ? END_STREAM : 0, s->id, (size_t)n);
		evbuffer_remove_buffer(s->waiting, h->out, (size_t)n);
		s->window -= n;
		h->window -= n;
	}
}

void h2_send(struct h2_stream *s, const void *bytes, size_t len, bool last)
{
	evbuffer_add(s->waiting, bytes, len);
	s->last = last;
	pump(s);
}

/* A header that stays out of the table. */
static void put_header(struct evbuffer *b, const char *name, const char *value)
{
	evbuffer_add_printf(b, "%c%c%s%c%s", 0, (int)strlen(name), name, (int)strlen(value), value);
}

struct h2_stream *h2_open(struct h2 *h, const char *method, const struct h2_events *ev, void *ctx)
{
	struct h2_stream *s = mem_zalloc(sizeof(*s));
	struct evbuffer *block = evbuffer_new();

	*s = (struct h2_stream){.h2 = h, .id = h->next_id, .ev = *ev, .ctx = ctx};
	h->next_id += 2;
	s->waiting = evbuffer_new();
	s->window = h->initial_window;
	HASH_ADD_INT(h->streams, id, s);
	evbuffer_add(block, "\x83\x86", 2); /* POST, http */
	put_header(block, ":path", method);
	put_header(block, ":authority", "envoy");
	put_header(block, "te", "trailers");
	put_header(block, "content-type", "application/grpc");
	put_head(h, HEADERS, END_HEADERS, s->id, evbuffer_get_length(block));
	evbuffer_add_buffer(h->out, block);
	evbuffer_free(block);
	return s;
}

/* --- frames in --- */

static void drop(struct h2_stream *s)
{
	HASH_DEL(s->h2->streams, s);
	evbuffer_free(s->waiting);
	free(s);
}

static void end(struct h2_stream *s)
{
	struct h2_events ev = s->ev;
	void *ctx = s->ctx;

	drop(s);
	ev.closed(ctx);
}

static void eat(struct h2 *h, int id, size_t *eaten, size_t len)
{
	*eaten += len;
	if (*eaten < WINDOW / 2)
		return;
	put_window(h, id, *eaten);
	*eaten = 0;
}

static void pump_all(struct h2 *h)
{
	struct h2_stream *s, *next;

	HASH_ITER (hh, h->streams, s, next)
		pump(s);
}

static void on_settings(struct h2 *h, const uint8_t *p, size_t len)
{
	struct h2_stream *s, *next;

	for (; len >= 6; p += 6, len -= 6) {
		if ((p[0] << 8 | p[1]) != INITIAL_WINDOW_SIZE)
			continue;
		int64_t more = (int64_t)get32(p + 2) - h->initial_window;

		h->initial_window += more;
		HASH_ITER (hh, h->streams, s, next)
			s->window += more;
	}
	put_head(h, SETTINGS, ACK, 0, 0);
	pump_all(h);
}

static void on_data(struct h2 *h, struct h2_stream *s, const uint8_t *p, size_t len)
{
	eat(h, 0, &h->eaten, len);
	if (!s)
		return;
	eat(h, s->id, &s->eaten, len);
	s->ev.data(s->ctx, p, len);
}

static void on_frame(struct h2 *h, const uint8_t *head, const uint8_t *p, size_t len)
{
	int type = head[3], flags = head[4], id = (int)(get32(head + 5) & INT32_MAX);
	struct h2_stream *s;

	HASH_FIND_INT(h->streams, &id, s);
	if (type == DATA)
		on_data(h, s, p, len);
	if (type == SETTINGS && !(flags & ACK))
		on_settings(h, p, len);
	if (type == PING && !(flags & ACK)) {
		put_head(h, PING, ACK, 0, len);
		evbuffer_add(h->out, p, len);
	}
	if (type == WINDOW_UPDATE && len == 4 && (s || !id)) {
		*(s ? &s->window : &h->window) += get32(p);
		pump_all(h);
	}
	if (s && (type == RST || (type <= HEADERS && flags & END_STREAM)))
		end(s);
}

bool h2_turn(struct h2 *h)
{
	if (!h2_flush(h))
		return false;
	ssize_t n = get(h, h->in + h->have, IN_SIZE - h->have);
	size_t at = 0, len;

	if (n <= 0)
		return false;
	h->have += (size_t)n;
	for (; h->have - at >= HEAD; at += HEAD + len) {
		len = get32(h->in + at) >> 8;
		if (len > FRAME_MAX)
			return false;
		if (h->have - at < HEAD + len)
			break;
		on_frame(h, h->in + at, h->in + at + HEAD, len);
	}
	h->have -= at;
	memmove(h->in, h->in + at, h->have);
	return true;
}

/* --- life --- */

static void greet(struct h2 *h)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
	uint8_t setting[6] = {0, INITIAL_WINDOW_SIZE};

	evbuffer_add(h->out, preface, strlen(preface));
	put32(setting + 2, WINDOW);
	put_head(h, SETTINGS, 0, 0, sizeof(setting));
	evbuffer_add(h->out, setting, sizeof(setting));
	put_window(h, 0, WINDOW - DEFAULT_WINDOW);
}

struct h2 *h2_connect(const char *target)
{
	bool tls = !strncmp(target, "tls:", 4);
	int fd = tls ? connect_tcp(target + 4) : connect_unix(target);

	if (fd < 0)
		return NULL;
	struct h2 *h = mem_zalloc(sizeof(*h));

	h->fd = fd;
	h->next_id = 1;
	h->window = h->initial_window = DEFAULT_WINDOW;
	h->out = evbuffer_new();
	greet(h);
	if (tls && !(h->tls = start_tls(fd)))
		h2_free(&h);
	return h;
}

void h2_free(struct h2 **hp)
{
	struct h2 *h = take(*hp);
	struct h2_stream *s, *next;

	if (!h)
		return;
	HASH_ITER (hh, h->streams, s, next)
		drop(s);
	if (h->tls)
		SSL_free(h->tls);
	close(h->fd);
	evbuffer_free(h->out);
	free(h);
}

int h2_fd(const struct h2 *h)
{
	return h->fd;
}
