/* connections.c - opened -> the handshake starts, so the peer is known -> done -> bytes come -> the
 * answer -> it is written -> freed.
 *
 * OpenSSL tells of the handshake (info callback) and of the end (ex data), libevent of bytes that
 * come and go (evbuffer callbacks).  A step that takes too long is ended as evhttp itself ends one:
 * by the event of a timeout.
 */
#include "connections.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <uthash.h>
#include <utlist.h>

#include "base/metrics.h"
#include "common/mem.h"

const struct connections_limits connections_usual = {
    .connections = 1000,
    .bytes = 32 << 20,
    .handshake_ms = 10000,
    .request_ms = 10000,
    .answer_ms = 10000,
    .idle_ms = 180000,
};

enum step { HANDSHAKE, IDLE, REQUEST, ANSWER, ENDING };

/* All connections of an address; it is there as long as one of them is.  Unspecified: of those that
 * have not begun their handshake. */
struct peer {
	struct in6_addr address;
	unsigned n, there; /* without those that are ending, and with them */
	size_t bytes;
	UT_hash_handle hh;
};

struct connection {
	struct connections *all; /* NULL: forgotten */
	struct bufferevent *bev;
	enum step step;
	struct loop_timer end;
	size_t in, out; /* bytes of the request, and of the answer that are not written */
	struct peer *peer;
	struct connection *prev, *next;
};

struct connections {
	struct loop *loop;
	struct connections_limits limits;
	struct connection *list; /* the one that was busy last is last */
	struct peer *peers;
	unsigned n;     /* but those that are ending */
	unsigned there; /* with them */
	size_t bytes;
	loop_cb done;
	void *ctx;
	struct loop_timer none_left;
	struct metric *open, *ended;
	loop_cb distrusted; /* NULL: nobody wants to know */
	void *distrusted_ctx;
};

static int own_index = -1; /* of SSL's ex data */

/* --- who holds what --- */

static void hold(struct connection *c, size_t in, size_t out)
{
	size_t more = in + out - c->in - c->out; /* modulo 2^n where it is less */

	c->in = in;
	c->out = out;
	c->peer->bytes += more;
	c->all->bytes += more;
}

static void leave_peer(struct connections *all, struct peer *p)
{
	if (--p->there)
		return;
	HASH_DEL(all->peers, p); /* NOLINT(clang-analyzer-core.NullDereference): p is in it */
	free(p);
}

static void join_peer(struct connection *c, const struct in6_addr *address)
{
	struct peer *p;

	HASH_FIND(hh, c->all->peers, address, sizeof(*address), p);
	if (!p) {
		p = mem_zalloc(sizeof(*p));
		p->address = *address;
		HASH_ADD(hh, c->all->peers, address, sizeof(p->address), p);
	}
	p->there++;
	p->n++;
	c->peer = p;
}

/* --- the end of one --- */

static void let_go(struct connection *c)
{
	struct connections *all = c->all;

	hold(c, 0, 0);
	if (c->step != ENDING) {
		all->n--;
		c->peer->n--;
	}
	c->step = ENDING;
	loop_timer_stop(&c->end);
	metric_set(all->open, "", all->n);
}

/* libevent frees a bufferevent one turn after evhttp gave it up, and frees it once more if an event
 * is triggered in between.  Its callbacks are gone then. */
static bool is_given_up(struct bufferevent *bev)
{
	bufferevent_event_cb on_event = NULL;

	bufferevent_getcb(bev, NULL, NULL, &on_event, NULL);
	return !on_event;
}

static void end(struct connection *c, const char *why)
{
	char labels[64];

	let_go(c);
	if (is_given_up(c->bev))
		return;
	metric_add(c->all->ended, metric_labels(labels, sizeof(labels), "reason", why, NULL), 1);
	bufferevent_trigger_event(
	    c->bev, BEV_EVENT_READING | BEV_EVENT_TIMEOUT, BEV_TRIG_DEFER_CALLBACKS);
}

static void on_none_left(void *ctx)
{
	struct connections *all = ctx;

	all->done(all->ctx);
}

static void look_for_the_last(struct connections *all)
{
	if (all->done && !all->there)
		loop_timer_in(all->loop, &all->none_left, 0, on_none_left, all);
}

/* OpenSSL frees the SSL: nothing of the connection is left. */
static void on_freed(void *parent, void *ptr, CRYPTO_EX_DATA *ad, int idx, long argl, void *ctx)
{
	struct connection *c = ptr;

	(void)parent;
	(void)ad;
	(void)idx;
	(void)argl;
	(void)ctx;
	if (!c)
		return;
	if (c->all) {
		let_go(c);
		leave_peer(c->all, c->peer);
		DL_DELETE(c->all->list, c);
		c->all->there--;
		look_for_the_last(c->all);
	}
	free(c);
}

/* --- its steps --- */

static void on_time_over(void *ctx)
{
	static const char *const reasons[] = {
	    [HANDSHAKE] = "slow_handshake", [REQUEST] = "slow_request", [ANSWER] = "slow_reader"};
	struct connection *c = ctx;

	end(c, reasons[c->step]);
}

static void enter(struct connection *c, enum step step, int64_t ms)
{
	c->step = step;
	loop_timer_stop(&c->end);
	if (ms)
		loop_timer_in(c->all->loop, &c->end, ms, on_time_over, c);
	DL_DELETE(c->all->list, c);
	DL_APPEND(c->all->list, c);
}

/* evhttp's own timeout ends it when nothing comes. */
static void enter_idle(struct connection *c)
{
	if (c->all->done)
		end(c, "stop");
	else if (c->in)
		enter(c, REQUEST, c->all->limits.request_ms);
	else
		enter(c, IDLE, 0);
}

/* Of the peer that has the most: one that has not said anything yet, else the one that has been
 * quiet for the longest time. */
static struct connection *one_too_many(const struct connections *all)
{
	struct connection *c = NULL, *found = NULL;
	struct peer *p = NULL, *next = NULL, *most = NULL;

	HASH_ITER (hh, all->peers, p, next)
		if (!most || p->n > most->n)
			most = p;
	DL_FOREACH (all->list, c) {
		if (c->step == ENDING || c->peer != most)
			continue;
		if (!found || (c->step == HANDSHAKE && found->step != HANDSHAKE) ||
		    (c->step == IDLE && found->step > IDLE))
			found = c;
	}
	return found;
}

/* A whole request is worth more than a part of one: there is only the answer to wait for. */
static bool is_dearer(const struct connection *a, const struct connection *b)
{
	if ((a->step == ANSWER) != (b->step == ANSWER))
		return a->step == ANSWER;
	return a->in + a->out <= b->in + b->out;
}

/* Of the peer that holds the most. */
static void shed_bytes(const struct connections *all)
{
	struct connection *c = NULL, *victim = NULL;
	struct peer *p = NULL, *next = NULL, *most = NULL;

	HASH_ITER (hh, all->peers, p, next)
		if (!most || p->bytes > most->bytes)
			most = p;
	DL_FOREACH (all->list, c)
		if (most && c->peer == most && c->in + c->out && (!victim || is_dearer(victim, c)))
			victim = c;
	if (victim)
		end(victim, "bytes");
}

static void on_input(struct evbuffer *in, const struct evbuffer_cb_info *info, void *ctx)
{
	struct connection *c = ctx;

	(void)in;
	if (!c->all || !info->n_added || c->step == ENDING)
		return;
	hold(c, c->in + info->n_added, c->out);
	if (c->step == HANDSHAKE || c->step == IDLE)
		enter(c, REQUEST, c->all->limits.request_ms);
	if (c->all->bytes > c->all->limits.bytes)
		shed_bytes(c->all);
}

struct in6_addr connections_peer(struct bufferevent *bev)
{
	const struct connection *c = SSL_get_ex_data(bufferevent_openssl_get_ssl(bev), own_index);

	return c->peer->address;
}

void connections_answer(struct connections *all, struct bufferevent *bev)
{
	struct connection *c = SSL_get_ex_data(bufferevent_openssl_get_ssl(bev), own_index);
	size_t next = evbuffer_get_length(bufferevent_get_input(bev));

	if (c->step == ENDING)
		return;
	hold(c, next, c->out); /* of a request that came behind it */
	enter(c, ANSWER, all->limits.answer_ms);
}

static void on_output(struct evbuffer *out, const struct evbuffer_cb_info *info, void *ctx)
{
	struct connection *c = ctx;

	if (!c->all || c->step == ENDING)
		return;
	hold(c, c->in, evbuffer_get_length(out));
	if (c->step == ANSWER && info->n_deleted && !c->out)
		enter_idle(c);
	else if (info->n_added && c->all->bytes > c->all->limits.bytes)
		shed_bytes(c->all);
}

/* --- its beginning --- */

static void learn_peer(struct connection *c)
{
	struct sockaddr_in6 a = {0};
	struct in6_addr address = {.s6_addr = {[10] = 0xff, [11] = 0xff}};
	socklen_t len = sizeof(a);
	size_t in = c->in, out = c->out;
	struct peer *before = c->peer;

	if (getpeername(bufferevent_getfd(c->bev), (struct sockaddr *)&a, &len))
		return;
	if (a.sin6_family == AF_INET6)
		address = a.sin6_addr;
	else
		memcpy(&address.s6_addr[12], &((struct sockaddr_in *)(void *)&a)->sin_addr, 4);
	hold(c, 0, 0);
	before->n--;
	join_peer(c, &address);
	leave_peer(c->all, before);
	hold(c, in, out);
}

static bool is_distrust(int alert)
{
	return alert == SSL_AD_UNKNOWN_CA || alert == SSL_AD_BAD_CERTIFICATE;
}

static void on_tls(const SSL *ssl, int where, int ret)
{
	struct connection *c = SSL_get_ex_data(ssl, own_index);

	if (!c || !c->all || c->step != HANDSHAKE)
		return;
	if (where == SSL_CB_READ_ALERT && is_distrust(ret & 0xff) && c->all->distrusted)
		c->all->distrusted(c->all->distrusted_ctx);
	if (where & SSL_CB_HANDSHAKE_START)
		learn_peer(c);
	else if (where & SSL_CB_HANDSHAKE_DONE)
		enter_idle(c);
}

struct bufferevent *connections_open(struct connections *all, SSL_CTX *tls)
{
	struct connection *c = mem_zalloc(sizeof(*c)), *victim;
	SSL *ssl = SSL_new(tls);

	if (!ssl || !SSL_set_ex_data(ssl, own_index, c))
		abort(); /* memory */
	if (all->n >= all->limits.connections && (victim = one_too_many(all)))
		end(victim, "connections");
	*c = (struct connection){.all = all, .step = HANDSHAKE};
	join_peer(c, &in6addr_any);
	SSL_set_info_callback(ssl, on_tls);
	c->bev = bufferevent_openssl_socket_new(
	    loop_base(all->loop), -1, ssl, BUFFEREVENT_SSL_ACCEPTING, BEV_OPT_CLOSE_ON_FREE);
	if (!c->bev)
		abort();
	bufferevent_openssl_set_allow_dirty_shutdown(c->bev, 1);
	evbuffer_add_cb(bufferevent_get_input(c->bev), on_input, c);
	evbuffer_add_cb(bufferevent_get_output(c->bev), on_output, c);
	DL_APPEND(all->list, c);
	all->n++;
	all->there++;
	enter(c, HANDSHAKE, all->limits.handshake_ms);
	metric_set(all->open, "", all->n);
	return c->bev;
}

/* --- all of them --- */

struct connections *connections_new(struct loop *l, const struct connections_limits *limits)
{
	static const char *const reasons[] = {
	    "slow_handshake", "slow_request", "slow_reader", "connections", "bytes", "stop"};
	struct connections *all = mem_zalloc(sizeof(*all));
	char labels[64];

	if (own_index < 0)
		own_index = SSL_get_ex_new_index(0, NULL, NULL, NULL, on_freed);
	all->loop = l;
	all->limits = *limits;
	all->open =
	    metric_gauge("agentd_injector_connections", "Connections of API servers and others");
	all->ended = metric_counter("agentd_injector_connections_ended_total",
	    "Connections that the injector ended itself");
	for (unsigned i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
		metric_add(all->ended,
		    metric_labels(labels, sizeof(labels), "reason", reasons[i], NULL), 0);
	metric_set(all->open, "", 0);
	return all;
}

void connections_free(struct connections **connections)
{
	struct connections *all = take(*connections);
	struct connection *c = NULL, *next = NULL;

	if (!all)
		return;
	DL_FOREACH_SAFE (all->list, c, next) {
		loop_timer_stop(&c->end);
		leave_peer(all, c->peer);
		c->all = NULL;
	}
	loop_timer_stop(&all->none_left);
	free(all);
}

void connections_on_distrust(struct connections *all, loop_cb told, void *ctx)
{
	all->distrusted = told;
	all->distrusted_ctx = ctx;
}

void connections_end(struct connections *all, loop_cb done, void *ctx)
{
	struct connection *c = NULL, *next;

	all->done = done;
	all->ctx = ctx;
	DL_FOREACH_SAFE (all->list, c, next)
		if (c->step == IDLE || c->step == HANDSHAKE)
			end(c, "stop");
	look_for_the_last(all);
}
