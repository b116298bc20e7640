/* istiod.c
 *
 * The root file is told (or it is "SYSTEM") -> same as before? -> channels.  A changed root makes
 * new channels for the turns to come; the old ones are let go and live as long as their streams do.
 * A root that is missing or broken changes nothing but why_not (istio-agent.md 1.2).
 *
 * A turn waits for the first channels, then is granted: in order, one per round of the loop, so
 * that a caller who fails at once and asks again cannot keep the loop to itself.  Its pod's uid
 * chooses the connection: istiod sends a pod's answers of all its streams over one of them.
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
	bool failed; /* the log knows */
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

static void schedule(struct istiod *i);

static void on_grant(void *ctx)
{
	struct istiod *i = ctx;
	struct istiod_turn *t = i->turns;
	struct rpc_channel *c = connection_of(i, &t->pod)->channel;

	DL_DELETE(i->turns, t);
	*t->slot = NULL;
	schedule(i);
	t->granted(t->ctx, c);
	free(t);
}

static void schedule(struct istiod *i)
{
	if (!i->turns || !i->connectable)
		loop_timer_stop(&i->grant);
	else if (!i->grant.armed)
		loop_timer_in(i->loop, &i->grant, 0, on_grant, i);
}

/* One line when a connection breaks and one when it is back, not one for each attempt. */
static void on_channel_changed(void *ctx, enum rpc_channel_state state)
{
	struct connection *c = ctx;
	const struct istiod_options *o = &c->istiod->options;

	if (state == RPC_TRANSIENT_FAILURE && !c->failed) {
		c->failed = true;
		log_warn(o->name, "cannot connect to %s as %s", o->address, o->server_name);
	} else if (state == RPC_READY) {
		c->failed = false;
		log_info(o->name, "connected to %s", o->address);
	}
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

		rpc_channel_free(&c->channel);
		*c = (struct connection){.istiod = i};
		c->channel = rpc_channel_new(i->rpc, &o, on_channel_changed, c);
	}
	i->connectable = true;
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
	for (unsigned n = 0; n < i->options.connections; n++)
		rpc_channel_free(&i->connections[n].channel);
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

static json_t *dump_connections(const struct istiod *i, bool *failing)
{
	json_t *all = json_array();

	for (unsigned n = 0; i->connectable && n < i->options.connections; n++) {
		enum rpc_channel_state s = rpc_channel_state(i->connections[n].channel);

		*failing |= s == RPC_TRANSIENT_FAILURE;
		json_array_append_new(all, json_pack("{s:s}", "state", rpc_channel_state_name(s)));
	}
	return all;
}

json_t *istiod_dump(const struct istiod *i)
{
	const struct istiod_options *o = &i->options;
	char why_not[ERR_MSG_SIZE];
	bool failing = false;
	json_t *connections = dump_connections(i, &failing);

	snprintf(why_not, sizeof(why_not), "%s", i->why_not.msg);
	if (!*why_not && failing)
		snprintf(why_not, sizeof(why_not), "cannot connect to %s as %s", o->address,
		    o->server_name);
	return json_pack("{s:s, s:s, s:s, s:s, s:o, s:s}", "name", o->name, "address", o->address,
	    "root", o->root, "trust_domain", i->trust_domain, "connections", connections, "why_not",
	    why_not);
}
