/* istiod.c
 *
 * The root file is told (or it is "SYSTEM") -> same as before? -> channels.  A changed root makes
 * new channels for the turns to come; the old ones are let go and live as long as their streams do.
 * A root that is missing or broken changes nothing but why_not (istio-agent.md 1.2).
 * A connection fails -> a probe asks grpc why -> why_not and the log say it.
 *
 * A turn waits until its connection stands (what is opened before would wait there even when a new
 * root has made another connection the right one), then is granted: in order, one per round of the
 * loop, so that a caller who fails at once and asks again cannot keep the loop to itself.  Its
 * pod's uid chooses the connection: istiod sends a pod's answers of all its streams over one of
 * them.
 */
#include "istiod.h"
#include "../base/err.h"
#include "../base/log.h"
#include "../base/loop.h"
#include "../base/mem.h"
#include "../priv/priv.h"
#include "x509.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <uthash.h>
#include <utlist.h>

LOG_SCOPE("istiod");

enum { CONNECTIONS_MAX = 16 };

struct connection {
	struct istiod *istiod;
	struct rpc_channel *channel;
	struct rpc_stream *probe; /* asks why it fails */
	char why[ERR_MSG_SIZE]; /* why it fails, for people; "": it does not, or is not known yet */
};

struct istiod_turn {
	struct istiod_turn *prev, *next;
	struct istiod *istiod;
	struct istiod_turn **slot;
	struct uuid pod;
	istiod_granted granted;
	void *ctx;
};

struct istiod {
	struct loop *loop;
	struct rpc *rpc;
	struct istiod_options options;
	struct priv_follow *root;
	char *roots_pem;    /* NULL: the system's, or none yet */
	struct err why_not; /* of the root; code 0: fine */
	struct connection connections[CONNECTIONS_MAX];
	bool connectable; /* there are channels */
	char trust_domain[256];
	struct istiod_turn *turns;
	struct loop_timer grant;
};

static struct connection *connection_of(struct istiod *i, const struct uuid *pod)
{
	unsigned hash;

	HASH_JEN(pod->bytes, sizeof(pod->bytes), hash);
	return &i->connections[hash % i->options.connections];
}

/* The oldest turn whose connection stands. */
static struct istiod_turn *next_turn(struct istiod *i)
{
	struct istiod_turn *t;

	if (!i->connectable)
		return NULL;
	DL_FOREACH (i->turns, t)
		if (rpc_channel_state(connection_of(i, &t->pod)->channel) == RPC_READY)
			return t;
	return NULL;
}

static void schedule(struct istiod *i);

static void on_grant(void *ctx)
{
	struct istiod *i = ctx;
	struct istiod_turn *t = next_turn(i);

	DL_DELETE(i->turns, t);
	*t->slot = NULL;
	schedule(i);
	t->granted(t->ctx, connection_of(i, &t->pod)->channel);
	free(t);
}

static void schedule(struct istiod *i)
{
	if (!next_turn(i))
		loop_timer_stop(&i->grant);
	else if (!i->grant.armed)
		loop_timer_in(i->loop, &i->grant, 0, on_grant, i);
}

/* Connections are made for somebody: one that nobody waits for stays as it is. */
static void connect_for_turns(struct istiod *i)
{
	struct istiod_turn *t;

	if (!i->connectable)
		return;
	DL_FOREACH (i->turns, t) {
		struct rpc_channel *c = connection_of(i, &t->pod)->channel;

		if (rpc_channel_state(c) == RPC_IDLE)
			rpc_channel_connect(c);
	}
}

static void set_why(struct connection *c, const char *why)
{
	const struct istiod_options *o = &c->istiod->options;
	char text[ERR_MSG_SIZE];

	snprintf(
	    text, sizeof(text), "cannot connect to %s as %s: %s", o->address, o->server_name, why);
	if (strcmp(text, c->why) != 0)
		log_warn(o->name, "%s", text);
	memcpy(c->why, text, sizeof(text));
}

static void on_probe_message(void *ctx, struct rpc_stream *s, struct rpc_msg *m)
{
	(void)ctx, (void)s, (void)m;
}

static void on_probe_closed(void *ctx, int status, const char *why)
{
	if (status == RPC_UNAVAILABLE)
		set_why(ctx, why);
}

/* grpc tells that a connection failed, but why only to a call that does not wait for it.  Should
 * the connection stand by then, istiod gets a question without a token that it does not know. */
static void ask_why(struct connection *c)
{
	static const struct rpc_events events = {
	    .message = on_probe_message, .closed = on_probe_closed};
	static const struct rpc_call call = {.method = "/grpc.health.v1.Health/Check"};
	struct err e;

	if (!c->probe && rpc_open(c->channel, &c->probe, &call, &events, c, &e))
		set_why(c, e.msg);
}

static void on_channel_changed(void *ctx, enum rpc_channel_state state)
{
	struct connection *c = ctx;
	const struct istiod_options *o = &c->istiod->options;

	if (state == RPC_TRANSIENT_FAILURE) {
		ask_why(c);
	} else if (state == RPC_READY) {
		log_info(o->name, "connected to %s", o->address);
		rpc_close(&c->probe, RPC_CANCELLED, "");
		c->why[0] = 0;
	}
	connect_for_turns(c->istiod);
	schedule(c->istiod);
}

static void connect_with_roots(struct istiod *i)
{
	for (unsigned n = 0; n < i->options.connections; n++) {
		struct connection *c = &i->connections[n];
		struct rpc_channel_options o = {
		    .target = i->options.address,
		    .roots_pem = i->roots_pem,
		    .server_name = i->options.server_name,
		    .shard = n,
		};

		rpc_close(&c->probe, RPC_CANCELLED, "");
		rpc_channel_free(&c->channel);
		*c = (struct connection){.istiod = i};
		c->channel = rpc_channel_new(i->rpc, &o, on_channel_changed, c);
	}
	i->connectable = true;
	connect_for_turns(i);
	schedule(i);
}

static void root_failed(struct istiod *i, const struct err *why)
{
	struct err e = *why;

	err_wrap(&e, "root certificate");
	if (!strcmp(e.msg, i->why_not.msg))
		return; /* said already */
	i->why_not = e;
	if (i->connectable)
		log_warn(i->options.name, "%s; the old one stays in force", e.msg);
	else
		log_error(i->options.name, "%s", e.msg);
}

static void on_root(void *ctx, const struct priv_content *c)
{
	struct istiod *i = ctx;
	auto_free char *pem = NULL;
	struct err e;

	if (!c->data)
		return root_failed(i, c->e);
	pem = x509_normalise_pem(c->data, c->size, &e);
	if (!pem)
		return root_failed(i, &e);
	i->why_not = (struct err){0};
	if (i->roots_pem && !strcmp(pem, i->roots_pem))
		return;
	if (i->roots_pem)
		log_info(i->options.name, "root certificate changed: new connections");
	free(i->roots_pem);
	i->roots_pem = take(pem);
	connect_with_roots(i);
}

struct istiod *istiod_new(
    struct loop *l, struct rpc *r, struct priv *p, const struct istiod_options *o, unsigned index)
{
	struct istiod *i = mem_zalloc(sizeof(*i));

	assert(o->connections >= 1 && o->connections <= CONNECTIONS_MAX);
	i->loop = l;
	i->rpc = r;
	i->options = *o;
	snprintf(i->trust_domain, sizeof(i->trust_domain), "%s", o->trust_domain);
	if (!strcmp(o->root, "SYSTEM")) {
		connect_with_roots(i);
	} else {
		err_set(&i->why_not, ERR_UNAVAILABLE, "root certificate: not read yet");
		i->root = priv_follow(p, PRIV_FOLLOW_ROOT, NULL, index, on_root, i);
	}
	return i;
}

void istiod_free(struct istiod **istiod)
{
	struct istiod *i = take(*istiod);

	if (!i)
		return;
	assert(!i->turns);
	priv_unfollow(&i->root);
	loop_timer_stop(&i->grant);
	for (unsigned n = 0; n < i->options.connections; n++) {
		rpc_close(&i->connections[n].probe, RPC_CANCELLED, "");
		rpc_channel_free(&i->connections[n].channel);
	}
	free(i->roots_pem);
	free(i);
}

const struct istiod_options *istiod_options(const struct istiod *i)
{
	return &i->options;
}

const char *istiod_trust_domain(const struct istiod *i)
{
	return i->trust_domain;
}

void istiod_learn_trust_domain(struct istiod *i, const char *trust_domain)
{
	if (*i->trust_domain)
		return;
	snprintf(i->trust_domain, sizeof(i->trust_domain), "%s", trust_domain);
	log_info(i->options.name, "trust domain: %s", i->trust_domain);
}

void istiod_turn(struct istiod *i, struct istiod_turn **slot, const struct uuid *pod,
    istiod_granted granted, void *ctx)
{
	struct istiod_turn *t = mem_zalloc(sizeof(*t));

	t->istiod = i;
	t->slot = slot;
	t->pod = *pod;
	t->granted = granted;
	t->ctx = ctx;
	*slot = t;
	DL_APPEND(i->turns, t);
	connect_for_turns(i);
	schedule(i);
}

void istiod_turn_cancel(struct istiod_turn **turn)
{
	struct istiod_turn *t = take(*turn);

	if (!t)
		return;
	DL_DELETE(t->istiod->turns, t);
	schedule(t->istiod);
	free(t);
}

/* Not mem_printf(): vasprintf leaves copies of what it formats in freed memory. */
static char *bearer_of(const char *token)
{
	size_t size = sizeof("Bearer ") + strlen(token);
	char *s = mem_zalloc(size);

	snprintf(s, size, "Bearer %s", token);
	return s;
}

int istiod_open(struct istiod *i, struct rpc_channel *c, struct rpc_stream **slot,
    const char *method, const char *token, unsigned deadline_ms, const struct rpc_events *ev,
    void *ctx, struct err *e)
{
	char *bearer = token ? bearer_of(token) : NULL;
	const struct rpc_header headers[] = {
	    {"clusterid", i->options.cluster_id}, /* also when empty (istio-agent.md 1.2) */
	    {"authorization", bearer},
	};
	const struct rpc_call call = {
	    .method = method,
	    .headers = headers,
	    .nheaders = bearer ? 2 : 1,
	    .deadline_ms = deadline_ms,
	    .wait_for_ready = true,
	};
	int failed = rpc_open(c, slot, &call, ev, ctx, e);

	mem_wipe_free(bearer);
	return failed ? err_wrap(e, "%s", i->options.name) : 0;
}

/* `why` becomes that of the first connection that fails. */
static json_t *dump_connections(const struct istiod *i, const char **why)
{
	json_t *all = json_array();

	for (unsigned n = 0; i->connectable && n < i->options.connections; n++) {
		const struct connection *c = &i->connections[n];
		const char *state = rpc_channel_state_name(rpc_channel_state(c->channel));

		if (!**why)
			*why = c->why;
		json_array_append_new(all, json_pack("{s:s}", "state", state));
	}
	return all;
}

json_t *istiod_dump(const struct istiod *i)
{
	const struct istiod_options *o = &i->options;
	const char *why = i->why_not.msg;
	json_t *connections = dump_connections(i, &why);

	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s}", "name", o->name, "address", o->address,
	    "root", o->root, "trust_domain", i->trust_domain, "connections", connections, "why_not",
	    why);
}
