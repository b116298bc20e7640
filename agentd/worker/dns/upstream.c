/* upstream.c - asked -> a lane to the first server, or one that is being made -> sent under a
 * random id -> an answer: id, question and socket fit -> done.  An error, "server failure" or a
 * second of silence: the next server.  By TCP each question has a connection of its own.
 *
 * In parallel: asked by UDP -> one question of each server, with a parent that asks nobody -> the
 * first answer that is none of "server failure", or the last one, is the parent's.
 *
 * A lane is a socket connected to one server.  It is used for a number of questions, then another
 * one, with another port, takes its place.
 */
#include "upstream.h"
#include "base/dns/stream.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>
#include <utlist.h>

LOG_SCOPE("dns");

enum {
	PORT = 53,
	LANES = 4,            /* to each server */
	LANE_QUESTIONS = 500, /* then its port has been seen often enough */
	ANSWERS_PER_TURN = 32,
	SILENCE_MS = 1000,
};

struct lane {
	struct dns_upstream *up;
	unsigned server; /* index */
	struct link_call *opening;
	int fd; /* -1: none */
	unsigned questions;
	struct loop_fd readable;
};

struct dns_ask {
	struct dns_upstream *up;
	struct dns_ask **slot;
	struct dns_query query; /* its data is ours */
	uint8_t *data;
	uint16_t client_id, id;
	bool tcp;
	uint8_t order[DNS_SERVERS_MAX];
	unsigned servers;       /* how many of these there are */
	unsigned tries;         /* that were asked */
	struct dns_ask *parent; /* of several at once; NULL: it stands alone */
	unsigned children;      /* that are still asked */
	struct lane *lane;      /* the last one asked; it may not be open yet */
	struct link_call *dialling;
	struct dns_stream *stream;
	struct loop_timer silence;
	int64_t since_ms;
	dns_asked done;
	void *ctx;
	struct dns_ask *prev, *next;
};

struct dns_upstream {
	struct dns_upstream_options o;
	struct dns_server servers[DNS_SERVERS_MAX];
	struct lane lanes[DNS_SERVERS_MAX][LANES];
	struct dns_ask *asks;
	unsigned nasks, ntcp;
	struct dns_upstream_counts counts;
};

static void ask_next(struct dns_ask *a);
static void on_silence(void *ctx);

static uint16_t random_number(void)
{
	uint16_t n;

	while (getrandom(&n, sizeof(n), 0) != sizeof(n))
		;
	return n;
}

static int dial(const struct dns_server *s, int fd)
{
	struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(PORT)};
	struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(PORT)};

	memcpy(&v4.sin_addr, s->address.bytes, sizeof(v4.sin_addr));
	memcpy(&v6.sin6_addr, s->address.bytes, sizeof(v6.sin6_addr));
	if (s->family == AF_INET)
		return connect(fd, (struct sockaddr *)&v4, sizeof(v4));
	return connect(fd, (struct sockaddr *)&v6, sizeof(v6));
}

/* --- the end of a question --- */

static void release(struct dns_ask *a)
{
	if (a->slot)
		*a->slot = NULL;
	link_call_cancel(&a->dialling);
	dns_stream_free(&a->stream);
	loop_timer_stop(&a->silence);
	DL_DELETE(a->up->asks, a);
	a->up->nasks--;
	a->up->ntcp -= a->tcp;
	free(a->data);
	free(a);
}

/* With its children. */
static void drop(struct dns_ask *parent)
{
	struct dns_ask *a, *tmp;

	DL_FOREACH_SAFE (parent->children ? parent->up->asks : NULL, a, tmp)
		if (a->parent == parent)
			release(a);
	release(parent);
}

static void finish(struct dns_ask *a, uint8_t *data, size_t size)
{
	dns_asked done = a->done;
	void *ctx = a->ctx;

	dns_set_id(data, a->client_id);
	if (!a->tcp && size > a->query.udp_size)
		size = dns_cut(&a->query, data);
	drop(a);
	done(ctx, data, size);
}

/* A child has no answer of its own; its parent has the first good one, or the last. */
static void settle(struct dns_ask *a, uint8_t *data, size_t size)
{
	struct dns_ask *parent = a->parent;

	if (!parent) {
		finish(a, data, size);
		return;
	}
	release(a);
	if (--parent->children == 0 || !dns_is_failure(data, size))
		finish(parent, data, size);
}

static void give_up(struct dns_ask *a)
{
	auto_free uint8_t *data = mem_zalloc(a->query.size);
	size_t size = dns_refusal_write(data, a->data, a->query.size, DNS_SERVFAIL);

	if (!a->parent || a->parent->children == 1)
		a->up->counts.failed++;
	settle(a, data, size);
}

/* What it failed with is better than nothing, when there is nobody else. */
static void take_answer(struct dns_ask *a, uint8_t *data, size_t size)
{
	struct dns_upstream *u = a->up;

	if (dns_is_failure(data, size) && a->tries < a->servers) {
		ask_next(a);
		return;
	}
	if (!a->parent || a->parent->children == 1 || !dns_is_failure(data, size))
		u->counts.seconds += (double)(loop_uptime_ms(u->o.loop) - a->since_ms) / 1000;
	settle(a, data, size);
}

/* --- lanes --- */

static void close_lane(struct lane *l)
{
	if (l->fd < 0)
		return;
	loop_fd_stop(&l->readable);
	close(take_fd(l->fd));
	l->questions = 0;
}

/* No answer is lost if none can come. */
static void retire(struct lane *l)
{
	const struct dns_ask *a;

	if (l->questions < LANE_QUESTIONS)
		return;
	DL_FOREACH (l->up->asks, a)
		if (a->lane == l)
			return;
	close_lane(l);
}

static struct dns_ask *find(const struct lane *l, uint16_t id)
{
	struct dns_ask *a;

	DL_FOREACH (l->up->asks, a)
		if (a->lane == l && a->id == id)
			return a;
	return NULL;
}

/* The server cannot be reached: its waiting questions go to the next one. */
static void on_lane_error(struct lane *l)
{
	struct dns_ask *a, *tmp;

	close_lane(l);
	DL_FOREACH_SAFE (l->up->asks, a, tmp)
		if (a->lane == l) {
			a->lane = NULL;
			loop_timer_in(l->up->o.loop, &a->silence, 0, on_silence, a);
		}
}

static void on_lane_readable(void *ctx)
{
	static uint8_t data[DNS_MESSAGE_MAX];
	struct lane *l = ctx;

	for (int i = 0; i < ANSWERS_PER_TURN && l->fd >= 0; i++) {
		ssize_t n = recv(l->fd, data, sizeof(data), MSG_DONTWAIT);

		if (n < 0 && errno != EAGAIN && errno != EINTR)
			on_lane_error(l);
		if (n < 0)
			break;
		struct dns_ask *a = n >= DNS_HEADER_SIZE ? find(l, dns_id(data)) : NULL;
		if (a && dns_is_answer_to(&a->query, data, (size_t)n))
			take_answer(a, data, (size_t)n);
		else
			l->up->counts.foreign++;
	}
	retire(l);
}

static void send_by(struct lane *l, struct dns_ask *a)
{
	do
		a->id = random_number();
	while (find(l, a->id));
	a->lane = l;
	l->questions++;
	dns_set_id(a->data, a->id);
	if (send(l->fd, a->data, a->query.size, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
	    errno != EAGAIN) {
		a->lane = NULL;
		loop_timer_in(l->up->o.loop, &a->silence, 0, on_silence, a);
	}
}

static void on_lane(void *ctx, const struct err *e, int received)
{
	struct lane *l = ctx;
	auto_close int fd = received;
	struct dns_ask *a, *tmp;

	if (e || dial(&l->up->servers[l->server], fd)) {
		log_debug(NULL, "cannot reach a resolver: %s", e ? e->msg : strerror(errno));
		on_lane_error(l);
		return;
	}
	l->fd = take_fd(fd);
	loop_fd_watch(l->up->o.loop, &l->readable, l->fd, LOOP_READ, on_lane_readable, l);
	DL_FOREACH_SAFE (l->up->asks, a, tmp)
		if (a->lane == l) {
			a->lane = NULL;
			send_by(l, a);
		}
}

/* One whose port has been seen often enough gets no more questions, so that it can end. */
static struct lane *choose_lane(struct dns_upstream *u, unsigned server)
{
	unsigned first = random_number() % LANES;
	struct lane *l;

	for (unsigned i = 0; i < LANES; i++) {
		l = &u->lanes[server][(first + i) % LANES];
		retire(l);
		if (l->questions < LANE_QUESTIONS)
			return l;
	}
	return &u->lanes[server][first];
}

static void use_lane(struct lane *l, struct dns_ask *a)
{
	struct dns_upstream *u = l->up;

	if (l->fd >= 0) {
		send_by(l, a);
		return;
	}
	a->lane = l;
	if (!l->opening)
		link_dial(u->o.link, &l->opening, u->o.pod,
		    (struct link_socket){
			.kind = LINK_DIAL_UDP, .family = u->servers[l->server].family},
		    on_lane, l);
}

/* --- by TCP --- */

static void on_stream_message(void *ctx, uint8_t *data, size_t size)
{
	struct dns_ask *a = ctx;

	if (size >= DNS_HEADER_SIZE && dns_id(data) == a->id &&
	    dns_is_answer_to(&a->query, data, size))
		take_answer(a, data, size);
	else
		a->up->counts.foreign++;
}

static void on_stream_closed(void *ctx)
{
	ask_next(ctx);
}

static void on_stream_socket(void *ctx, const struct err *e, int received)
{
	static const struct dns_stream_events ev = {on_stream_message, on_stream_closed};
	struct dns_ask *a = ctx;
	auto_close int fd = received;

	if (e || (dial(&a->up->servers[a->order[a->tries - 1]], fd) && errno != EINPROGRESS)) {
		ask_next(a);
		return;
	}
	a->stream = dns_stream_new(a->up->o.loop, take_fd(fd), &ev, a);
	dns_stream_send(a->stream, a->data, a->query.size);
}

static void use_stream(struct dns_ask *a, unsigned server)
{
	const struct dns_upstream_options *o = &a->up->o;

	a->id = random_number();
	dns_set_id(a->data, a->id);
	link_dial(o->link, &a->dialling, o->pod,
	    (struct link_socket){.kind = LINK_DIAL_TCP, .family = a->up->servers[server].family},
	    on_stream_socket, a);
}

/* --- a question --- */

static void on_silence(void *ctx)
{
	ask_next(ctx);
}

/* The last server has all the time that is left. */
static int64_t patience_ms(const struct dns_ask *a)
{
	int64_t left = a->since_ms + a->up->o.timeout_ms - loop_uptime_ms(a->up->o.loop);

	if (a->tries < a->servers && left > SILENCE_MS)
		return SILENCE_MS;
	return left > 0 ? left : 0;
}

static void ask_next(struct dns_ask *a)
{
	struct dns_upstream *u = a->up;

	link_call_cancel(&a->dialling);
	dns_stream_free(&a->stream);
	a->lane = NULL;
	if (a->tries == a->servers || loop_uptime_ms(u->o.loop) - a->since_ms >= u->o.timeout_ms) {
		give_up(a);
		return;
	}
	unsigned server = a->order[a->tries++];
	loop_timer_in(u->o.loop, &a->silence, patience_ms(a), on_silence, a);
	if (a->tcp)
		use_stream(a, server);
	else
		use_lane(choose_lane(u, server), a);
}

static void shuffle(struct dns_ask *a)
{
	a->servers = a->up->o.nservers;
	for (unsigned i = 0; i < a->up->o.nservers; i++) {
		unsigned j = random_number() % (i + 1);

		a->order[i] = a->order[j];
		a->order[j] = (uint8_t)i;
	}
}

static struct dns_ask *new_ask(struct dns_upstream *u, const struct dns_query *q, bool tcp)
{
	struct dns_ask *a = mem_zalloc(sizeof(*a));

	a->up = u;
	a->query = *q;
	a->query.data = a->data = mem_dup(q->data, q->size);
	a->client_id = dns_id(a->data);
	a->tcp = tcp;
	a->since_ms = loop_uptime_ms(u->o.loop);
	DL_APPEND(u->asks, a);
	u->nasks++;
	u->ntcp += tcp;
	return a;
}

static void ask_all(struct dns_ask *parent)
{
	struct dns_upstream *u = parent->up;

	parent->children = u->o.nservers;
	for (unsigned i = 0; i < u->o.nservers; i++) {
		struct dns_ask *a = new_ask(u, &parent->query, false);

		a->parent = parent;
		a->order[0] = (uint8_t)i;
		a->servers = 1;
		ask_next(a);
	}
}

int dns_upstream_ask(struct dns_upstream *u, struct dns_ask **slot, const struct dns_query *q,
    bool tcp, dns_asked done, void *ctx)
{
	bool all = u->o.parallel && !tcp && u->o.nservers > 1;
	struct dns_ask *a;

	if (u->nasks + (all ? u->o.nservers : 0) >= DNS_ASKS_MAX ||
	    (tcp && u->ntcp == DNS_TCP_ASKS_MAX))
		return -1;
	a = new_ask(u, q, tcp);
	a->slot = slot;
	a->done = done;
	a->ctx = ctx;
	u->counts.asked++;
	*slot = a;
	if (all) { /* nobody is called back before a turn of the loop */
		ask_all(a);
	} else {
		shuffle(a);
		ask_next(a);
	}
	return 0;
}

void dns_ask_refuse(struct dns_ask *a)
{
	give_up(a);
}

void dns_ask_cancel(struct dns_ask **a)
{
	if (*a)
		drop(*a);
}

/* --- life --- */

struct dns_upstream *dns_upstream_new(const struct dns_upstream_options *o)
{
	struct dns_upstream *u = mem_zalloc(sizeof(*u));

	u->o = *o;
	if (u->o.nservers > DNS_SERVERS_MAX)
		u->o.nservers = DNS_SERVERS_MAX;
	memcpy(u->servers, o->servers, u->o.nservers * sizeof(*u->servers));
	for (unsigned i = 0; i < DNS_SERVERS_MAX; i++)
		for (unsigned j = 0; j < LANES; j++)
			u->lanes[i][j] = (struct lane){.up = u, .server = i, .fd = -1};
	return u;
}

void dns_upstream_free(struct dns_upstream **up)
{
	struct dns_upstream *u = take(*up);
	struct dns_ask *a, *tmp;

	if (!u)
		return;
	DL_FOREACH_SAFE (u->asks, a, tmp)
		release(a);
	for (unsigned i = 0; i < DNS_SERVERS_MAX; i++)
		for (unsigned j = 0; j < LANES; j++) {
			link_call_cancel(&u->lanes[i][j].opening);
			close_lane(&u->lanes[i][j]);
		}
	free(u);
}

const struct dns_upstream_counts *dns_upstream_counts(const struct dns_upstream *u)
{
	return &u->counts;
}
