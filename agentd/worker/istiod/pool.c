/* pool.c
 *
 * pool_connect -> connections, the first is connecting; the others when somebody wants one ->
 * READY. The first one is kept: it connects again a second after it ended, at once if there are
 * leases. READY -> anything else: its generation is over.  A connection that broke ends its streams
 * by itself; one that istiod wants gone (GOAWAY) lets them live for 11 s, so the leases of that
 * generation are moved one by one, as soon as there is a new connection to go to and at the latest
 * when 10 s are over.
 * A connection that was replaced (new root, end of a quarantine) is retired: it gets no new stream,
 * and goes with its last lease.
 *
 * grpc reports the reason only to a call that fails fast.  So the pool sends such a call when a
 * connection keeps failing.  It fails at once; if the server is back after all, it carries nothing
 * (grpc-core.md 4).
 */
#include "pool.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/secret.h"
#include "istiod.h"
#include <stdio.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

LOG_SCOPE("istiod");

enum {
	CONNECTIONS_MAX = 16,
	GRACE_MS = 10 * 1000, /* of 11.0 s (istiod-live.md 3) */
	QUARANTINE_MS = 10 * 60 * 1000,
	QUARANTINES_MAX = 8, /* connections are what istiod has few of */
	BLAMED_MAX = 2,
	PROBE_MS = 5 * 1000,
	KEEP_MS = 1000, /* a server that hangs up at once is not dialled as fast as it does */
};

struct connection {
	struct pool *pool;
	struct rpc_channel *channel;
	struct rpc_stream *probe;
	bool ready, failed, retired, quarantine;
	unsigned generation;
	struct istiod_lease *leases; /* oldest first */
	struct loop_timer move, again;
	int64_t grace_ms;
	struct connection *prev, *next;
};

struct istiod_lease {
	struct connection *connection;
	struct istiod_lease **slot;
	unsigned generation; /* of the connection, when the stream was opened */
	pool_move move;
	void *ctx;
	struct istiod_lease *prev, *next;
};

/* A pod that was blamed; forgotten 10 minutes after the last time. */
struct suspect {
	struct pool *pool;
	struct uuid uid;
	unsigned blamed;
	struct connection *own; /* NULL: not in quarantine */
	struct loop_timer over;
	UT_hash_handle hh;
};

struct pool {
	struct loop *loop;
	struct rpc *rpc;
	const struct istiod_options *options;
	pool_changed changed;
	void *ctx;
	char *roots_pem;
	char *key_pem, *chain_pem;  /* secret, and not; NULL: nothing is shown */
	char owner[UUID_TEXT_SIZE]; /* "": all pods share it */
	bool connectable, ever_connected;
	unsigned shards, quarantines;
	struct connection *all, *shared[CONNECTIONS_MAX];
	struct suspect *suspects;
	char why_not[ERR_MSG_SIZE];
};

/* --- what becomes of a connection --- */

static void connection_free(struct connection *c)
{
	log_bug_if(c->leases);
	loop_timer_stop(&c->move);
	loop_timer_stop(&c->again);
	rpc_close(&c->probe, RPC_CANCELLED, "");
	rpc_channel_free(&c->channel);
	DL_DELETE(c->pool->all, c);
	free(c);
}

static void free_if_unused(struct connection *c)
{
	if (c->retired && !c->leases)
		connection_free(c);
}

static void retire(struct connection *c)
{
	c->retired = true;
	free_if_unused(c);
}

static void lease_free(struct istiod_lease *l)
{
	*l->slot = NULL;
	DL_DELETE(l->connection->leases, l);
	free(l);
}

/* --- moving --- */

static unsigned leases_to_move(const struct connection *c)
{
	const struct istiod_lease *l;
	unsigned n = 0;

	DL_FOREACH (c->leases, l)
		n += l->generation != c->generation;
	return n;
}

static void on_move(void *ctx);

static void move_soon(struct connection *c)
{
	unsigned n = leases_to_move(c);
	int64_t pace_ms = 1000 / c->pool->options->opens_per_second;

	if (!n)
		return;
	if (pace_ms > c->grace_ms / n)
		pace_ms = c->grace_ms > n ? c->grace_ms / n : c->grace_ms > 0;
	loop_timer_in(c->pool->loop, &c->move, pace_ms, on_move, c);
	c->grace_ms -= pace_ms;
}

static void on_move(void *ctx)
{
	struct connection *c = ctx;
	struct istiod_lease *l = c->leases;
	pool_move move;

	if (!leases_to_move(c))
		return;
	/* While there is nothing better the old connection still carries pushes. */
	if (!c->ready && !c->retired && c->grace_ms > 0)
		return move_soon(c);
	move = l->move;
	ctx = l->ctx;
	lease_free(l);
	move_soon(c);
	free_if_unused(c);
	move(ctx);
}

static void generation_over(struct connection *c)
{
	if (!leases_to_move(c))
		c->grace_ms = GRACE_MS;
	c->generation++;
	if (!c->move.armed)
		move_soon(c);
}

/* --- connecting --- */

static void ignore_message(void *ctx, struct rpc_stream *s, struct rpc_msg *m)
{
	(void)ctx, (void)s, (void)m;
}

/* One line when a connection breaks and one when it is back, not one for each attempt. */
static void on_probe_closed(void *ctx, int status, const char *why)
{
	struct connection *c = ctx;
	struct pool *p = c->pool;
	const struct istiod_options *o = p->options;
	struct err e;

	if (status != RPC_UNAVAILABLE || c->ready)
		return;
	err_set(
	    &e, ERR_UNAVAILABLE, "cannot connect to %s as %s: %s", o->address, o->server_name, why);
	memcpy(p->why_not, e.msg, sizeof(p->why_not));
	if (!c->failed)
		log_warn(o->name, "%s", p->why_not);
	c->failed = true;
	p->changed(p->ctx);
}

static void ask_why(struct connection *c)
{
	static const struct rpc_events events = {
	    .message = ignore_message, .closed = on_probe_closed};
	static const struct rpc_call call = {.method = "/agentd/Probe", .deadline_ms = PROBE_MS};
	struct err e;

	if (!c->probe && rpc_open(c->channel, &c->probe, &call, &events, c, &e))
		log_warn(c->pool->options->name, "%s", e.msg);
}

/* Those that it takes the place of: their streams have where to go now. */
static void call_streams(struct connection *c)
{
	struct connection *old;

	if (!*c->pool->owner || c->retired)
		return;
	DL_FOREACH (c->pool->all, old)
		if (old->retired && old->leases)
			generation_over(old);
}

static void on_ready(struct connection *c)
{
	struct pool *p = c->pool;

	call_streams(c);
	c->failed = false;
	p->ever_connected = true;
	p->why_not[0] = '\0';
	log_info(p->options->name, "connected to %s", p->options->address);
}

/* A pod's own pool is asked when that pod wants a stream. */
static bool is_kept(const struct connection *c)
{
	return c == c->pool->shared[0] && !*c->pool->owner;
}

static void on_again(void *ctx)
{
	struct connection *c = ctx;

	if (is_kept(c))
		rpc_channel_connect(c->channel);
}

static void on_channel_changed(void *ctx, enum rpc_channel_state state)
{
	struct connection *c = ctx;
	bool was_ready = c->ready;

	c->ready = state == RPC_READY;
	if (was_ready && !c->ready)
		generation_over(c);
	if (c->retired)
		return;
	if (c->ready) {
		on_ready(c);
	} else if (state == RPC_TRANSIENT_FAILURE) {
		ask_why(c);
	} else if (state == RPC_IDLE && c->leases) {
		log_info(c->pool->options->name, "a connection ends: its streams move to another");
		rpc_channel_connect(c->channel); /* where they will go */
	} else if (state == RPC_IDLE && is_kept(c)) {
		loop_timer_in(c->pool->loop, &c->again, KEEP_MS, on_again, c);
	}
	c->pool->changed(c->pool->ctx);
}

static struct connection *connection_new(struct pool *p, bool quarantine)
{
	struct connection *c = mem_zalloc(sizeof(*c));
	const struct rpc_channel_options o = {
	    .target = p->options->address,
	    .roots_pem = p->roots_pem,
	    .server_name = p->options->server_name,
	    .shard = p->shards++,
	    .owner = *p->owner ? p->owner : NULL,
	    .key_pem = p->key_pem,
	    .chain_pem = p->chain_pem,
	};

	c->pool = p;
	c->quarantine = quarantine;
	c->channel = rpc_channel_new(p->rpc, &o, on_channel_changed, c);
	DL_APPEND(p->all, c);
	return c;
}

static struct suspect *find_suspect(const struct pool *p, const struct uuid *pod)
{
	struct suspect *s;

	HASH_FIND(hh, p->suspects, pod, sizeof(*pod), s);
	return s;
}

static struct connection *connection_of(const struct pool *p, const struct uuid *pod)
{
	const struct suspect *s = find_suspect(p, pod);
	unsigned hash;

	if (s && s->own)
		return s->own;
	HASH_JEN(pod->bytes, sizeof(pod->bytes), hash);
	return p->shared[hash % p->options->connections];
}

static void replace(struct connection **c)
{
	struct connection *old = *c;

	*c = connection_new(old->pool, old->quarantine);
	retire(old);
}

void pool_connect(struct pool *p, const char *roots_pem)
{
	struct suspect *s, *next;

	free(p->roots_pem);
	p->roots_pem = mem_strdup(roots_pem);
	p->why_not[0] = '\0'; /* it was the old roots' */
	for (unsigned i = 0; i < p->options->connections; i++)
		if (p->connectable)
			replace(&p->shared[i]);
		else
			p->shared[i] = connection_new(p, false);
	HASH_ITER (hh, p->suspects, s, next)
		if (s->own)
			replace(&s->own);
	p->connectable = true;
	if (is_kept(p->shared[0]))
		rpc_channel_connect(p->shared[0]->channel);
	p->changed(p->ctx);
}

void pool_own(struct pool *p, const struct uuid *pod)
{
	uuid_format(pod, p->owner);
}

void pool_present(struct pool *p, const char *key_pem, const char *chain_pem)
{
	char *key = secret_dup(key_pem), *chain = mem_strdup(chain_pem);

	secret_free(p->key_pem);
	free(p->chain_pem);
	p->key_pem = key;
	p->chain_pem = chain;
}

void pool_connect_now(struct pool *p)
{
	if (p->connectable && rpc_channel_state(p->shared[0]->channel) == RPC_IDLE)
		rpc_channel_connect(p->shared[0]->channel);
}

bool pool_is_ready(const struct pool *p)
{
	return p->connectable && p->shared[0]->ready;
}

bool pool_fails(const struct pool *p)
{
	return p->connectable && rpc_channel_state(p->shared[0]->channel) == RPC_TRANSIENT_FAILURE;
}

bool pool_has(const struct pool *p, const struct rpc_channel *channel)
{
	const struct connection *c;

	DL_FOREACH (p->all, c)
		if (c->channel == channel)
			return true;
	return false;
}

bool pool_connectable(const struct pool *p)
{
	return p->connectable;
}

bool pool_connected(const struct pool *p)
{
	for (unsigned i = 0; p->connectable && i < p->options->connections; i++)
		if (p->shared[i]->ready)
			return true;
	return false;
}

bool pool_ever_connected(const struct pool *p)
{
	return p->ever_connected;
}

struct rpc_channel *pool_channel(struct pool *p, const struct uuid *pod)
{
	struct connection *c = p->connectable ? connection_of(p, pod) : NULL;

	if (!c)
		return NULL;
	if (c->ready)
		return c->channel;
	if (rpc_channel_state(c->channel) == RPC_IDLE)
		rpc_channel_connect(c->channel);
	return NULL;
}

/* --- leases --- */

void pool_lease(struct pool *p, struct istiod_lease **slot, const struct rpc_channel *channel,
    pool_move move, void *ctx)
{
	struct istiod_lease *l = mem_zalloc(sizeof(*l));
	struct connection *c;

	DL_FOREACH (p->all, c)
		if (c->channel == channel)
			break;
	log_bug_if(!c || *slot);
	*l = (struct istiod_lease){
	    .connection = c, .slot = slot, .generation = c->generation, .move = move, .ctx = ctx};
	DL_APPEND(c->leases, l);
	*slot = l;
}

void pool_lease_end(struct istiod_lease **lease)
{
	struct connection *c;

	if (!*lease)
		return;
	c = (*lease)->connection;
	lease_free(*lease);
	free_if_unused(c);
}

/* --- quarantine --- */

static void on_quarantine_over(void *ctx)
{
	struct suspect *s = ctx;
	struct pool *p = s->pool;

	if (s->own) {
		p->quarantines--;
		retire(s->own);
	}
	HASH_DEL(p->suspects, s);
	free(s);
}

static struct suspect *suspect(struct pool *p, const struct uuid *pod)
{
	struct suspect *s = find_suspect(p, pod);

	if (!s) {
		s = mem_zalloc(sizeof(*s));
		s->pool = p;
		s->uid = *pod;
		HASH_ADD(hh, p->suspects, uid, sizeof(s->uid), s);
	}
	if (!s->own)
		loop_timer_in(p->loop, &s->over, QUARANTINE_MS, on_quarantine_over, s);
	return s;
}

void pool_quarantine(struct pool *p, const struct uuid *pod, const char *why)
{
	char uid[UUID_TEXT_SIZE];
	struct suspect *s = suspect(p, pod);

	if (s->own || !p->connectable || p->quarantines == QUARANTINES_MAX)
		return;
	p->quarantines++;
	s->own = connection_new(p, true);
	uuid_format(pod, uid);
	log_warn(p->options->name, "pod %s: %s: the pod gets its own connection for 10 minutes",
	    uid, why);
}

void pool_blame(struct pool *p, const struct uuid *pod, const char *why)
{
	if (++suspect(p, pod)->blamed >= BLAMED_MAX)
		pool_quarantine(p, pod, why);
}

/* --- life --- */

struct pool *pool_new(
    struct loop *l, struct rpc *r, const struct istiod_options *o, pool_changed changed, void *ctx)
{
	struct pool *p = mem_zalloc(sizeof(*p));

	log_bug_if(o->connections < 1 || o->connections > CONNECTIONS_MAX);
	p->loop = l;
	p->rpc = r;
	p->options = o;
	p->changed = changed;
	p->ctx = ctx;
	return p;
}

void pool_free(struct pool **pool)
{
	struct pool *p = take(*pool);
	struct connection *c, *next;
	struct suspect *s, *next_suspect;

	if (!p)
		return;
	s = p->suspects;
	HASH_CLEAR(hh, p->suspects);
	for (; s; s = next_suspect) {
		next_suspect = s->hh.next;
		loop_timer_stop(&s->over);
		free(s);
	}
	DL_FOREACH_SAFE (p->all, c, next)
		connection_free(c);
	free(p->roots_pem);
	secret_free(p->key_pem);
	free(p->chain_pem);
	free(p);
}

const char *pool_why_not(const struct pool *p)
{
	return p->why_not;
}

json_t *pool_dump(const struct pool *p)
{
	json_t *all = json_array();
	const struct istiod_lease *l;
	const struct connection *c;
	int streams;

	DL_FOREACH (p->all, c) {
		DL_COUNT(c->leases, l, streams);
		json_array_append_new(
		    all, json_pack("{s:s, s:i, s:b}", "state",
			     rpc_channel_state_name(rpc_channel_state(c->channel)), "streams",
			     streams, "quarantine", c->quarantine));
	}
	return all;
}
