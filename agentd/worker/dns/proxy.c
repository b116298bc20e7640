/* proxy.c - a query by UDP or TCP -> is it one too many? -> read -> in the table: an answer;
 * else a question to the resolvers -> their answer, or "server failure" -> back the way it came,
 * from the address that was asked (kernels.md 2).
 *
 * A datagram leaves its socket only when it is answered, passed on or dropped: if the worker dies
 * before that, the broker finds it there and answers its client with a failure.  The next worker
 * does not get it, because it might kill that one as well.
 */
#include "proxy.h"
#include "base/accept.h"
#include "base/dns/datagram.h"
#include "base/dns/stream.h"
#include "base/loop.h"
#include "common/log.h"
#include "common/mem.h"
#include <string.h>
#include <sys/random.h>
#include <utlist.h>

LOG_SCOPE("dns");

enum {
	QUERIES_PER_TURN = 32,
	WINDOW_MS = 100,
	ADDRESSES_PER_QUERY = 32, /* a long answer costs as much as several short ones */
	BYTES_PER_QUERY = 512,    /* and so does a long question */
};

struct connection {
	struct dns_proxy *proxy;
	struct dns_stream *stream;
	unsigned under_way;
	struct loop_timer idle;
	struct connection *prev, *next;
};

/* One that the resolvers were asked. */
struct question {
	struct dns_proxy *proxy;
	struct dns_ask *ask;
	struct connection *connection; /* NULL: by UDP */
	struct dns_way way;
	struct question *prev, *next;
};

struct dns_proxy {
	const struct dns_upstream_options *o;
	const char *label;
	struct dns_table *table;
	struct dns_upstream *upstream; /* NULL: at rest */
	int udp;                       /* -1 */
	struct loop_fd readable;
	struct accept *accept;
	struct connection *connections;
	unsigned nconnections;
	struct question *questions;
	int64_t window_ms; /* when its queries are forgotten */
	unsigned in_window;
	struct loop_timer window;
	struct dns_proxy_counts counts;
};

/* Who asked: one of the two. */
struct client {
	struct connection *connection;
	const struct dns_way *way;
};

static void reply(struct dns_proxy *p, struct client c, const uint8_t *data, size_t size)
{
	if (size == 0)
		return;
	if (c.connection)
		dns_stream_send(c.connection->stream, data, size);
	else
		dns_datagram_send(p->udp, c.way, data, size);
}

static void refuse(
    struct dns_proxy *p, struct client c, const struct dns_query *q, enum dns_code code)
{
	auto_free uint8_t *out = mem_zalloc(q->size + 1);

	reply(p, c, out, dns_refusal_write(out, q->data, q->size, code));
}

/* --- answered here --- */

static void shuffle(struct dns_address *a, size_t n)
{
	uint16_t r[DNS_ADDRESSES_MAX];

	if (getrandom(r, n * sizeof(*r), 0) != (ssize_t)(n * sizeof(*r)))
		return;
	for (size_t i = n; i > 1; i--) {
		size_t j = r[i - 1] % i;
		struct dns_address was = a[i - 1];

		a[i - 1] = a[j];
		a[j] = was;
	}
}

/* False: it is not ours to answer. */
static bool answer(struct dns_proxy *p, struct client c, const struct dns_query *q)
{
	struct dns_address addresses[DNS_ADDRESSES_MAX];
	struct dns_found f;
	struct dns_answer a = {.addresses = addresses};
	size_t size;

	if (!p->table || (q->type != DNS_A && q->type != DNS_AAAA) ||
	    !dns_table_find(p->table, q->name, &f))
		return false;
	a.alias = *f.alias ? f.alias : NULL;
	a.n = q->type == DNS_A ? f.n4 : f.n6;
	if (a.n > DNS_ADDRESSES_MAX)
		a.n = DNS_ADDRESSES_MAX;
	if (a.n)
		memcpy(addresses, q->type == DNS_A ? f.v4 : f.v6, a.n * sizeof(*addresses));
	shuffle(addresses, a.n);
	auto_free uint8_t *wire =
	    dns_answer_write(q, &a, c.connection ? DNS_MESSAGE_MAX : q->udp_size, &size);
	reply(p, c, wire, wire ? size : 0);
	p->counts.local++;
	p->in_window += (unsigned)a.n / ADDRESSES_PER_QUERY;
	return true;
}

/* --- answered by the resolvers --- */

static void close_connection(struct connection *c);
static void on_idle(void *ctx);

static void drop(struct question *q)
{
	DL_DELETE(q->proxy->questions, q);
	dns_ask_cancel(&q->ask);
	free(q);
}

static void on_asked(void *ctx, const uint8_t *data, size_t size)
{
	struct question *q = ctx;
	struct dns_proxy *p = q->proxy;
	const struct client c = {q->connection, &q->way};

	reply(p, c, data, size);
	if (c.connection && --c.connection->under_way == 0)
		loop_timer_in(p->o->loop, &c.connection->idle, DNS_IDLE_MS, on_idle, c.connection);
	drop(q);
}

static void forward(struct dns_proxy *p, struct client c, const struct dns_query *query)
{
	struct question *q = mem_zalloc(sizeof(*q));

	q->proxy = p;
	q->connection = c.connection;
	if (c.way)
		q->way = *c.way;
	if (dns_upstream_ask(p->upstream, &q->ask, query, c.connection != NULL, on_asked, q)) {
		free(q);
		p->counts.dropped++;
		refuse(p, c, query, DNS_SERVFAIL);
		return;
	}
	DL_APPEND(p->questions, q);
	p->counts.forwarded++;
	if (c.connection && c.connection->under_way++ == 0)
		loop_timer_stop(&c.connection->idle);
}

/* --- asked --- */

static void on_datagram(void *ctx);

static bool is_too_much(struct dns_proxy *p)
{
	int64_t now = loop_uptime_ms(p->o->loop);

	if (now >= p->window_ms) {
		p->window_ms = now + WINDOW_MS;
		p->in_window = 0;
	}
	return p->in_window >= DNS_PER_SECOND * WINDOW_MS / 1000;
}

static void on_window(void *ctx)
{
	struct dns_proxy *p = ctx;

	loop_fd_watch(p->o->loop, &p->readable, p->udp, LOOP_READ, on_datagram, p);
}

/* Questions wait in the socket, and so does an app that asks too much. */
static void pause_datagrams(struct dns_proxy *p)
{
	p->counts.delayed++;
	loop_fd_stop(&p->readable);
	loop_timer_in(p->o->loop, &p->window, WINDOW_MS, on_window, p);
}

static void take_query(struct dns_proxy *p, struct client c, const uint8_t *data, size_t size)
{
	struct dns_query q;
	enum dns_code code = dns_query_read(&q, data, size);

	p->counts.requests++;
	p->in_window += 1 + (unsigned)(size / BYTES_PER_QUERY);
	if (code == DNS_NOERROR && !answer(p, c, &q))
		forward(p, c, &q);
	if (code != DNS_NOERROR)
		p->counts.malformed++;
	if (code > DNS_NOERROR)
		refuse(p, c, &q, code);
}

static void on_datagram(void *ctx)
{
	static uint8_t data[DNS_MESSAGE_MAX];
	struct dns_proxy *p = ctx;
	struct dns_way w;
	bool inside;
	ssize_t n;

	for (int i = 0; i < QUERIES_PER_TURN; i++) {
		if (is_too_much(p)) {
			pause_datagrams(p);
			return;
		}
		n = dns_datagram_peek(p->udp, data, sizeof(data), &w, &inside);
		if (n < 0)
			return;
		if (inside)
			take_query(p, (struct client){.way = &w}, data, (size_t)n);
		else
			p->counts.dropped++;
		dns_datagram_remove(p->udp);
	}
}

/* --- connections --- */

static void close_connection(struct connection *c)
{
	struct dns_proxy *p = c->proxy;
	struct question *q, *tmp;

	DL_FOREACH_SAFE (p->questions, q, tmp)
		if (q->connection == c)
			drop(q);
	loop_timer_stop(&c->idle);
	dns_stream_free(&c->stream);
	DL_DELETE(p->connections, c);
	p->nconnections--;
	free(c);
}

static void on_message(void *ctx, uint8_t *data, size_t size)
{
	struct connection *c = ctx;

	if (!c->under_way)
		loop_timer_in(c->proxy->o->loop, &c->idle, DNS_IDLE_MS, on_idle, c);
	if (is_too_much(c->proxy))
		dns_stream_hold(c->stream, WINDOW_MS); /* after this one */
	take_query(c->proxy, (struct client){.connection = c}, data, size);
}

static void on_closed(void *ctx)
{
	close_connection(ctx);
}

static void on_idle(void *ctx)
{
	close_connection(ctx);
}

static void on_accepted(void *ctx, int received)
{
	static const struct dns_stream_events ev = {on_message, on_closed};
	struct dns_proxy *p = ctx;
	auto_close int fd = received;
	struct connection *c;

	if (!dns_is_inside(fd) || p->nconnections == DNS_CONNECTIONS_MAX) {
		p->counts.dropped++;
		return;
	}
	c = mem_zalloc(sizeof(*c));
	c->proxy = p;
	c->stream = dns_stream_new(p->o->loop, take_fd(fd), &ev, c);
	loop_timer_in(p->o->loop, &c->idle, DNS_IDLE_MS, on_idle, c);
	DL_APPEND(p->connections, c);
	p->nconnections++;
}

/* --- life --- */

struct dns_proxy *dns_proxy_new(const struct dns_upstream_options *o, const char *label)
{
	struct dns_proxy *p = mem_zalloc(sizeof(*p));

	p->o = o;
	p->label = label;
	p->udp = -1;
	return p;
}

void dns_proxy_serve(struct dns_proxy *p, int udp, int tcp)
{
	dns_proxy_rest(p);
	p->upstream = dns_upstream_new(p->o);
	p->udp = udp;
	loop_fd_watch(p->o->loop, &p->readable, udp, LOOP_READ, on_datagram, p);
	p->accept = accept_new(p->o->loop, tcp, on_accepted, p);
	log_info(p->label, "agentd answers this pod's DNS queries");
}

struct dns_proxy_counts dns_proxy_counts(const struct dns_proxy *p)
{
	struct dns_proxy_counts all = p->counts;

	if (p->upstream) {
		const struct dns_upstream_counts *u = dns_upstream_counts(p->upstream);
		all.upstream.asked += u->asked;
		all.upstream.failed += u->failed;
		all.upstream.foreign += u->foreign;
		all.upstream.seconds += u->seconds;
	}
	return all;
}

void dns_proxy_rest(struct dns_proxy *p)
{
	struct connection *c, *ctmp;
	struct question *q, *qtmp;

	if (!p->upstream)
		return;
	loop_fd_stop(&p->readable);
	loop_timer_stop(&p->window);
	accept_free(&p->accept);
	DL_FOREACH_SAFE (p->connections, c, ctmp)
		close_connection(c);
	DL_FOREACH_SAFE (p->questions, q, qtmp)
		dns_ask_refuse(q->ask);  /* who asked asks the next worker, at once */
	p->counts = dns_proxy_counts(p); /* those of the resolvers go */
	dns_upstream_free(&p->upstream);
	close(take_fd(p->udp));
}

void dns_proxy_free(struct dns_proxy **pp)
{
	struct dns_proxy *p = take(*pp);

	if (!p)
		return;
	dns_proxy_rest(p);
	dns_table_unref(&p->table);
	free(p);
}

void dns_proxy_set_table(struct dns_proxy *p, struct dns_table *t)
{
	dns_table_unref(&p->table);
	p->table = t;
}

const struct dns_table *dns_proxy_table(const struct dns_proxy *p)
{
	return p->table;
}
