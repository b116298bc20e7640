/* rpc.c (fake) - see rpc.h here.
 *
 * Whatever the test or the code does to a stream only changes its state and posts one pump on the
 * loop; the pump gives each stream at most one event, in the order a real one would have them, and
 * posts itself again while there is something to tell.
 */
#include "rpc.h"

#include "base/loop.h"
#include "common/err.h"
#include "common/mem.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

enum { SLICES = 4, WHY_SIZE = 201 };

struct rpc_msg {
	struct iovec iov[SLICES];
	size_t len;
	struct rpc_msg *prev, *next;
};

struct rpc_stream {
	struct rpc *rpc;
	struct rpc_server *server;
	struct rpc_channel *channel;
	struct rpc_call call; /* strings and headers are copies */
	struct rpc_events ev;
	void *ctx;
	struct rpc_stream **slot;
	struct rpc_msg *in, *out; /* to the code; from the code */
	size_t queued, kept;
	struct loop_timer deadline;
	bool announced, accepted, armed, paused, stalled, untold_writable;
	bool aborted, peer_half, told_half, peer_ended, at_once, code_half, ended;
	int peer_status, status;
	char peer_why[WHY_SIZE], why[WHY_SIZE];
	struct rpc_stream *prev, *next;
};

struct rpc_channel {
	struct rpc *rpc;
	struct rpc_channel_options options;
	rpc_channel_changed changed;
	void *ctx;
	enum rpc_channel_state state, told;
	bool freed, scripted; /* scripted: the test says what state it has */
	unsigned connects;
	struct rpc_channel *prev, *next;
};

enum { ADOPTED_MAX = 64 };

struct rpc_server {
	struct rpc *rpc;
	rpc_incoming incoming;
	void *ctx;
	unsigned adopted, connections;
	bool closed[ADOPTED_MAX];
	bool freed;
	struct rpc_server *prev, *next;
};

struct rpc {
	bool scripted;
	struct loop *loop;
	struct rpc_stream *streams;
	struct rpc_channel *channels;
	struct rpc_server *servers;
	struct rpc_flow flow;
	bool posted, freed;
	struct rpc *next; /* among `leaving` */
};

/* Freed with a pump still posted: reachable from here, should the loop end before it runs. */
static struct rpc *leaving;

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fake rpc: %s\n", what);
	abort();
}

/* --- events --- */

static void finish(struct rpc_stream *s)
{
	s->ended = true;
	loop_timer_stop(&s->deadline);
	if (s->slot)
		*take(s->slot) = NULL;
}

static bool announce(struct rpc_stream *s)
{
	if (s->announced)
		return false;
	s->announced = true;
	s->server->incoming(s->server->ctx, s, s->call.method);
	if (!s->accepted && !s->ended) {
		s->status = RPC_UNIMPLEMENTED;
		finish(s);
	}
	return true;
}

static bool tell_end(struct rpc_stream *s)
{
	finish(s);
	s->ev.closed(s->ctx, s->peer_status, s->peer_why);
	return true;
}

static bool tell_writable(struct rpc_stream *s)
{
	if (s->stalled || !s->untold_writable)
		return false;
	s->untold_writable = false;
	s->queued = 0;
	if (s->ev.writable)
		s->ev.writable(s->ctx, s);
	return true;
}

static bool tell_message(struct rpc_stream *s)
{
	struct rpc_msg *m = s->in;

	if (!m || !s->armed)
		return false;
	DL_DELETE(s->in, m);
	s->armed = false;
	s->ev.message(s->ctx, s, m);
	s->armed = s->armed || !s->paused;
	fake_rpc_msg_free(&m);
	return true;
}

static bool tell_half_closed(struct rpc_stream *s)
{
	if (!s->server || !s->peer_half || s->told_half || s->in || !s->armed)
		return false;
	s->told_half = true;
	if (s->ev.half_closed)
		s->ev.half_closed(s->ctx, s);
	return true;
}

/* At most one event; false: nothing to tell. */
static bool step(struct rpc_stream *s)
{
	if (s->ended)
		return false;
	if (announce(s))
		return true;
	if (s->peer_ended && s->at_once)
		return tell_end(s);
	if (tell_writable(s) || tell_message(s) || tell_half_closed(s))
		return true;
	return s->peer_ended && !s->in && tell_end(s);
}

static bool step_channel(struct rpc_channel *c)
{
	if (c->freed || c->told == c->state)
		return false;
	c->told = c->state;
	if (c->changed)
		c->changed(c->ctx, c->state);
	return true;
}

static void destroy(struct rpc *r);
static void on_pump(void *ctx);

static void wake(struct rpc *r)
{
	if (r->posted)
		return;
	r->posted = true;
	loop_post(r->loop, on_pump, r);
}

static void on_pump(void *ctx)
{
	struct rpc *r = ctx;
	struct rpc_stream *s;
	struct rpc_channel *c;
	bool again = false;

	r->posted = false;
	/* Objects live as long as the runtime, so a callback may end whatever it likes. */
	DL_FOREACH (r->channels, c)
		again |= !r->freed && step_channel(c);
	DL_FOREACH (r->streams, s)
		again |= !r->freed && step(s);
	if (again && !r->freed)
		wake(r);
	if (r->freed) {
		LL_DELETE(leaving, r);
		destroy(r);
	}
}

/* --- runtime --- */

static struct rpc *last;

struct rpc *rpc_new(struct loop *l)
{
	struct rpc *r = mem_zalloc(sizeof(*r));

	r->loop = l;
	last = r;
	return r;
}

struct rpc *fake_rpc_last(void)
{
	return last;
}

struct rpc_server *fake_rpc_server(const struct rpc *r, unsigned i)
{
	struct rpc_server *s;

	DL_FOREACH (r->servers, s)
		if (i-- == 0)
			return s;
	return NULL;
}

void rpc_free(struct rpc **rp)
{
	struct rpc *r = *rp;
	struct rpc_stream *s;

	*rp = NULL;
	if (!r)
		return;
	r->freed = true;
	DL_FOREACH (r->streams, s)
		if (!s->ended)
			finish(s);
	if (r->posted)
		LL_PREPEND(leaving, r);
	else
		destroy(r);
}

static void free_msgs(struct rpc_msg **list)
{
	struct rpc_msg *m, *next;

	DL_FOREACH_SAFE (*list, m, next) {
		DL_DELETE(*list, m);
		fake_rpc_msg_free(&m);
	}
}

static void free_stream(struct rpc_stream *s)
{
	free_msgs(&s->in);
	free_msgs(&s->out);
	for (size_t i = 0; i < s->call.nheaders; i++) {
		free((char *)s->call.headers[i].key);
		mem_wipe_free((char *)s->call.headers[i].value);
	}
	free((struct rpc_header *)s->call.headers);
	free((char *)s->call.method);
	free(s);
}

static void destroy(struct rpc *r)
{
	struct rpc_stream *s, *s_next;
	struct rpc_channel *c, *c_next;
	struct rpc_server *v, *v_next;

	DL_FOREACH_SAFE (r->streams, s, s_next)
		free_stream(s);
	DL_FOREACH_SAFE (r->channels, c, c_next) {
		free((char *)c->options.target);
		free((char *)c->options.roots_pem);
		free((char *)c->options.server_name);
		free((char *)c->options.owner);
		free((char *)c->options.key_pem);
		free((char *)c->options.chain_pem);
		free(c);
	}
	DL_FOREACH_SAFE (r->servers, v, v_next)
		free(v);
	free(r);
}

/* --- messages --- */

struct rpc_msg *fake_rpc_msg(const void *data, size_t len)
{
	struct rpc_msg *m = mem_zalloc(sizeof(*m));
	const size_t cuts[SLICES + 1] = {0, len / 3, len / 3, len / 2, len};

	m->len = len;
	for (unsigned i = 0; i < SLICES; i++) {
		size_t n = cuts[i + 1] - cuts[i];

		m->iov[i].iov_len = n;
		m->iov[i].iov_base = n ? mem_dup((const char *)data + cuts[i], n) : NULL;
	}
	return m;
}

void fake_rpc_msg_free(struct rpc_msg **m)
{
	if (!*m)
		return;
	for (unsigned i = 0; i < SLICES; i++)
		free((*m)->iov[i].iov_base);
	free(take(*m));
}

const struct iovec *rpc_msg_iov(const struct rpc_msg *m, size_t *n)
{
	*n = SLICES;
	return m->iov;
}

size_t rpc_msg_size(const struct rpc_msg *m)
{
	return m->len;
}

/* --- what the code does --- */

static void usable(const struct rpc_stream *s)
{
	must(!s->ended, "a stream is used after its end");
	must(s->channel || s->accepted, "a stream is used before it was accepted");
}

/* What was sent is kept in one block, so that a test can compare it. */
static void *append_out(struct rpc_stream *s, size_t len)
{
	struct rpc_msg *m = mem_zalloc(sizeof(*m));

	usable(s);
	must(!s->code_half, "a message is sent after rpc_half_close()");
	m->len = m->iov[0].iov_len = len;
	m->iov[0].iov_base = mem_zalloc(len + 1);
	DL_APPEND(s->out, m);
	s->queued += len;
	s->untold_writable = true;
	wake(s->rpc);
	return m->iov[0].iov_base;
}

void rpc_send(struct rpc_stream *s, const void *data, size_t len)
{
	void *to = append_out(s, len);

	if (len)
		memcpy(to, data, len);
}

void rpc_forward(struct rpc_stream *to, const struct rpc_msg *m)
{
	char *at = append_out(to, m->len);

	for (unsigned i = 0; i < SLICES; i++)
		at = mempcpy(at, m->iov[i].iov_len ? m->iov[i].iov_base : "", m->iov[i].iov_len);
}

void rpc_keeps(struct rpc_stream *s, size_t bytes)
{
	usable(s);
	must(s->server, "rpc_keeps() for a stream to istiod");
	s->kept = bytes;
}

size_t fake_rpc_kept(const struct rpc_stream *s)
{
	return s->kept;
}

size_t rpc_queued(const struct rpc_stream *s)
{
	usable(s);
	return s->queued;
}

void rpc_pause(struct rpc_stream *s, bool paused)
{
	usable(s);
	s->paused = paused;
	if (!paused)
		s->armed = true;
	wake(s->rpc);
}

void rpc_half_close(struct rpc_stream *s)
{
	usable(s);
	must(s->channel, "rpc_half_close() on a server's stream");
	s->code_half = true;
}

void rpc_close(struct rpc_stream **slot, int status, const char *why)
{
	struct rpc_stream *s = *slot;

	*slot = NULL;
	if (!s)
		return;
	usable(s);
	s->status = status;
	snprintf(s->why, sizeof(s->why), "%s", why ? why : "");
	s->slot = NULL;
	finish(s);
}

void rpc_abort(struct rpc_stream **slot)
{
	if (*slot)
		(*slot)->aborted = true;
	rpc_close(slot, RPC_CANCELLED, "aborted");
}

/* --- servers --- */

struct rpc_server *rpc_server_new(
    struct rpc *r, const struct rpc_server_options *o, rpc_incoming incoming, void *ctx)
{
	struct rpc_server *s = mem_zalloc(sizeof(*s));

	must(o->max_message > 0 && o->max_streams > 0, "rpc_server_options without limits");
	*s = (struct rpc_server){.rpc = r, .incoming = incoming, .ctx = ctx};
	DL_APPEND(r->servers, s);
	return s;
}

struct rpc_connection rpc_server_adopt(struct rpc_server *s, int connected_fd)
{
	must(!s->freed, "a server is used after its end");
	must(s->adopted < ADOPTED_MAX, "more connections than the fake remembers");
	close(connected_fd);
	return (struct rpc_connection){.fd = (int)s->adopted++, .inode = (ino_t)(uintptr_t)s};
}

bool rpc_connection_is_open(const struct rpc_connection *c)
{
	return c->fd >= 0 && !((struct rpc_server *)(uintptr_t)c->inode)->closed[c->fd];
}

void rpc_connection_cut(const struct rpc_connection *c)
{
	if (rpc_connection_is_open(c))
		((struct rpc_server *)(uintptr_t)c->inode)->closed[c->fd] = true;
}

unsigned rpc_server_connections(struct rpc_server *s)
{
	return s->connections;
}

int64_t rpc_server_bytes(struct rpc_server *s)
{
	(void)s;
	return 0;
}

unsigned rpc_server_streams(const struct rpc_server *server)
{
	const struct rpc_stream *s;
	unsigned n = 0;

	DL_FOREACH (server->rpc->streams, s)
		n += s->server == server && !s->ended;
	return n;
}

/* No frames come by here. */
void rpc_server_cut_all(struct rpc_server *s)
{
	for (unsigned i = 0; i < s->adopted; i++)
		s->closed[i] = true;
}

/* Who would see it is the peer; the code under test does not. */
void rpc_server_hold(struct rpc_server *s, bool held)
{
	(void)held;
	must(!s->freed, "a server is used after its end");
}

void rpc_refuse(struct rpc_stream *s, int status, const char *why)
{
	static const struct rpc_events none = {.message = NULL};
	struct rpc_stream *ours;

	rpc_accept(s, &ours, &none, NULL);
	rpc_close(&ours, status, why);
}

void rpc_refuse_connection(struct rpc_stream *s)
{
	static const struct rpc_events none = {.message = NULL};
	struct rpc_stream *ours;

	rpc_accept(s, &ours, &none, NULL);
	rpc_abort(&ours);
}

void rpc_server_free(struct rpc_server **sp)
{
	struct rpc_server *server = *sp;
	struct rpc_stream *s;

	*sp = NULL;
	if (!server)
		return;
	must(!server->freed, "a server is freed twice");
	server->freed = true;
	DL_FOREACH (server->rpc->streams, s)
		if (s->server == server && !s->ended)
			finish(s);
}

void rpc_accept(
    struct rpc_stream *s, struct rpc_stream **slot, const struct rpc_events *ev, void *ctx)
{
	must(!s->ended && s->server && !s->accepted, "rpc_accept() of a call that is not new");
	s->accepted = s->armed = true;
	s->ev = *ev;
	s->ctx = ctx;
	s->slot = slot;
	*slot = s;
	wake(s->rpc);
}

/* --- channels --- */

struct rpc_channel *rpc_channel_new(
    struct rpc *r, const struct rpc_channel_options *o, rpc_channel_changed changed, void *ctx)
{
	struct rpc_channel *c = mem_zalloc(sizeof(*c));

	*c = (struct rpc_channel){
	    .rpc = r, .options = *o, .changed = changed, .ctx = ctx, .scripted = r->scripted};
	c->options.target = mem_strdup(o->target);
	c->options.roots_pem = mem_strdup(o->roots_pem);
	c->options.server_name = mem_strdup(o->server_name);
	c->options.owner = mem_strdup(o->owner);
	c->options.key_pem = mem_strdup(o->key_pem);
	c->options.chain_pem = mem_strdup(o->chain_pem);
	DL_APPEND(r->channels, c);
	return c;
}

enum rpc_channel_state rpc_channel_state(const struct rpc_channel *c)
{
	must(!c->freed, "a channel is used after its end");
	return c->told;
}

void rpc_channel_connect(struct rpc_channel *c)
{
	must(!c->freed, "a channel is used after its end");
	c->connects++;
	if (!c->scripted)
		c->state = RPC_READY;
	wake(c->rpc);
}

void rpc_channel_free(struct rpc_channel **cp)
{
	struct rpc_channel *c = *cp;

	*cp = NULL;
	if (!c)
		return;
	must(!c->freed, "a channel is freed twice");
	c->freed = true;
}

static bool legal(const struct rpc_header *h)
{
	for (const char *k = h->key; *k; k++)
		if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789-_.", *k))
			return false;
	for (const char *v = h->value; *v; v++)
		if (*v < 0x20 || *v > 0x7e)
			return false;
	return h->key[0] != '\0';
}

static struct rpc_header *copy_headers(const struct rpc_call *call)
{
	struct rpc_header *h = mem_zalloc((call->nheaders + 1) * sizeof(*h));

	for (size_t i = 0; i < call->nheaders; i++) {
		h[i].key = mem_strdup(call->headers[i].key);
		h[i].value = mem_strdup(call->headers[i].value);
	}
	return h;
}

static void on_deadline(void *ctx)
{
	struct rpc_stream *s = ctx;

	s->at_once = true;
	fake_rpc_end(s, RPC_DEADLINE_EXCEEDED, "Deadline Exceeded");
}

static struct rpc_stream *stream_new(struct rpc *r, const char *method)
{
	struct rpc_stream *s = mem_zalloc(sizeof(*s));

	s->rpc = r;
	s->call.method = mem_strdup(method);
	s->status = -1;
	DL_APPEND(r->streams, s);
	return s;
}

int rpc_open(struct rpc_channel *c, struct rpc_stream **slot, const struct rpc_call *call,
    const struct rpc_events *ev, void *ctx, struct err *e)
{
	struct rpc_stream *s;

	must(!c->freed, "rpc_open() on a channel after its end");
	for (size_t i = 0; i < call->nheaders; i++)
		if (!legal(&call->headers[i]))
			return err_set(e, ERR_INVALID, "%s: header %s cannot be sent", call->method,
			    call->headers[i].key);
	s = stream_new(c->rpc, call->method);
	s->call.headers = copy_headers(call);
	s->call.nheaders = call->nheaders;
	s->call.deadline_ms = call->deadline_ms;
	s->call.wait_for_ready = call->wait_for_ready;
	s->call.in_turn = call->in_turn;
	s->channel = c;
	s->announced = s->armed = true;
	s->ev = *ev;
	s->ctx = ctx;
	s->slot = slot;
	*slot = s;
	if (call->deadline_ms)
		loop_timer_in(c->rpc->loop, &s->deadline, call->deadline_ms, on_deadline, s);
	return 0;
}

void rpc_bound(struct rpc *r, int64_t bytes)
{
	r->flow.bound = bytes;
}

struct rpc_flow rpc_flow(const struct rpc *r)
{
	return r->flow;
}

/* --- what the test does and sees --- */

void fake_rpc_crowd(struct rpc_stream *s, int64_t unread_ms)
{
	if (s->slot && s->ev.crowded)
		s->ev.crowded(s->ctx, s, unread_ms);
}

void fake_rpc_flow(struct rpc *r, const struct rpc_flow *f)
{
	r->flow = *f;
}

struct rpc_stream *fake_rpc_call(struct rpc_server *server, const char *method)
{
	struct rpc_stream *s;

	must(!server->freed, "fake_rpc_call() at a freed server");
	s = stream_new(server->rpc, method);
	s->server = server;
	wake(s->rpc);
	return s;
}

bool fake_rpc_accepted(const struct rpc_stream *s)
{
	return s->accepted;
}

unsigned fake_rpc_adopted(const struct rpc_server *s)
{
	return s->adopted;
}

bool fake_rpc_closed(const struct rpc_server *s, unsigned i)
{
	return s->closed[i];
}

void fake_rpc_hang_up(struct rpc_server *s, unsigned i)
{
	s->closed[i] = true;
}

void fake_rpc_connections(struct rpc_server *s, unsigned n)
{
	s->connections = n;
}

unsigned fake_rpc_opened(const struct rpc *r)
{
	const struct rpc_stream *s;
	unsigned n = 0;

	DL_FOREACH (r->streams, s)
		n += s->channel != NULL;
	return n;
}

struct rpc_stream *fake_rpc_stream(const struct rpc *r, unsigned i)
{
	struct rpc_stream *s;

	DL_FOREACH (r->streams, s)
		if (s->channel && i-- == 0)
			return s;
	return NULL;
}

const char *fake_rpc_header(const struct rpc_stream *s, const char *key)
{
	for (size_t i = 0; i < s->call.nheaders; i++)
		if (!strcmp(s->call.headers[i].key, key))
			return s->call.headers[i].value;
	return NULL;
}

const struct rpc_call *fake_rpc_how(const struct rpc_stream *s)
{
	return &s->call;
}

struct rpc_channel *fake_rpc_channel_of(const struct rpc_stream *s)
{
	return s->channel;
}

unsigned fake_rpc_channels(const struct rpc *r)
{
	struct rpc_channel *c;
	int n;

	DL_COUNT(r->channels, c, n);
	return (unsigned)n;
}

struct rpc_channel *fake_rpc_channel(const struct rpc *r, unsigned i)
{
	struct rpc_channel *c;

	DL_FOREACH (r->channels, c)
		if (i-- == 0)
			return c;
	return NULL;
}

const struct rpc_channel_options *fake_rpc_channel_options(const struct rpc_channel *c)
{
	return &c->options;
}

bool fake_rpc_channel_freed(const struct rpc_channel *c)
{
	return c->freed;
}

void fake_rpc_script(struct rpc *r)
{
	r->scripted = true;
}

void fake_rpc_channel_set(struct rpc_channel *c, enum rpc_channel_state s)
{
	c->scripted = true;
	c->state = s;
	wake(c->rpc);
}

unsigned fake_rpc_connects(const struct rpc_channel *c)
{
	return c->connects;
}

void fake_rpc_push(struct rpc_stream *s, const void *data, size_t len)
{
	struct rpc_msg *m = fake_rpc_msg(data, len);

	must(!s->peer_half && !s->peer_ended, "fake_rpc_push() after the peer's end");
	DL_APPEND(s->in, m);
	wake(s->rpc);
}

void fake_rpc_half_close(struct rpc_stream *s)
{
	must(s->server, "fake_rpc_half_close(): only clients half-close");
	s->peer_half = true;
	wake(s->rpc);
}

void fake_rpc_end(struct rpc_stream *s, int status, const char *why)
{
	if (s->peer_ended)
		return;
	s->peer_ended = true;
	s->at_once = s->at_once || s->server;
	s->peer_status = status;
	snprintf(s->peer_why, sizeof(s->peer_why), "%s", why);
	wake(s->rpc);
}

void fake_rpc_stall(struct rpc_stream *s, bool stalled)
{
	s->stalled = stalled;
	wake(s->rpc);
}

void fake_rpc_take(struct rpc_stream *s, size_t bytes)
{
	must(s->stalled && bytes < s->queued, "fake_rpc_take() of all there is");
	s->queued -= bytes;
}

unsigned fake_rpc_sent(const struct rpc_stream *s)
{
	struct rpc_msg *m;
	int n;

	DL_COUNT(s->out, m, n);
	return (unsigned)n;
}

const void *fake_rpc_sent_bytes(const struct rpc_stream *s, unsigned i, size_t *len)
{
	const struct rpc_msg *m;

	DL_FOREACH (s->out, m)
		if (i-- == 0) {
			*len = m->len;
			return m->iov[0].iov_base;
		}
	return NULL;
}

bool fake_rpc_half_closed(const struct rpc_stream *s)
{
	return s->code_half;
}

bool fake_rpc_paused(const struct rpc_stream *s)
{
	return s->paused;
}

bool fake_rpc_ended(const struct rpc_stream *s)
{
	return s->ended;
}

bool fake_rpc_aborted(const struct rpc_stream *s)
{
	return s->aborted;
}

int fake_rpc_status(const struct rpc_stream *s)
{
	return s->status;
}

const char *fake_rpc_why(const struct rpc_stream *s)
{
	return s->why;
}

unsigned fake_rpc_live(const struct rpc *r)
{
	const struct rpc_stream *s;
	unsigned n = 0;

	DL_FOREACH (r->streams, s)
		n += !s->ended;
	return n;
}
