/* istiod.c - see istiod.h. */
#include "istiod.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/mem.h"
#include "worker/istiod/own.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

struct istiod_turn {
	struct istiod_turn *prev, *next;
	struct istiod *istiod;
	struct istiod_turn **slot;
	struct uuid pod;
	istiod_granted granted;
	void *ctx;
};

struct istiod_lease {
	struct istiod_lease *prev, *next;
	struct istiod *istiod;
	struct istiod_lease **slot;
	istiod_move move;
	void *ctx;
};

struct istiod {
	struct loop *loop;
	struct istiod_options options;
	struct rpc_channel *channel;
	struct istiod_turn *turns;
	struct loop_timer grant;
	char trust_domain[256];
	char trust_domains[600]; /* "": no former ones */
	const char *refusal, *why_not, *roots;
	struct istiod_own *own;
	unsigned presents;
	char *token;
	struct istiod_lease *leases;
	int opened, blamed;
	bool held;
};

static void schedule(struct istiod *i);

static void on_grant(void *ctx)
{
	struct istiod *i = ctx;
	struct istiod_turn *t = i->turns;

	DL_DELETE(i->turns, t);
	*t->slot = NULL;
	schedule(i);
	t->granted(t->ctx, i->channel);
	free(t);
}

static void schedule(struct istiod *i)
{
	if (i->held || !i->turns)
		loop_timer_stop(&i->grant);
	else if (!i->grant.armed)
		loop_timer_in(i->loop, &i->grant, 0, on_grant, i);
}

struct istiod *istiod_new(
    struct loop *l, struct rpc *r, struct link *p, const struct istiod_options *o, unsigned index)
{
	struct istiod *i = mem_zalloc(sizeof(*i));
	struct rpc_channel_options c = {.target = o->address,
	    .roots_pem = "fake root",
	    .server_name = o->server_name,
	    .shard = index};

	(void)p;
	i->loop = l;
	i->options = *o;
	snprintf(i->trust_domain, sizeof(i->trust_domain), "%s", o->trust_domain);
	if (o->former_trust_domains)
		snprintf(i->trust_domains, sizeof(i->trust_domains), "%s,%s", o->trust_domain,
		    o->former_trust_domains);
	if (r)
		i->channel = rpc_channel_new(r, &c, NULL, NULL);
	return i;
}

void istiod_free(struct istiod **istiod)
{
	struct istiod *i = take(*istiod);

	if (!i)
		return;
	assert(!i->turns && !i->leases);
	if (i->channel)
		rpc_channel_free(&i->channel);
	mem_wipe_free(i->token);
	free(i);
}

const struct istiod_options *istiod_options(const struct istiod *i)
{
	return &i->options;
}

struct loop *istiod_loop(const struct istiod *i)
{
	return i->loop;
}

const char *istiod_trust_domain(const struct istiod *i)
{
	return i->trust_domain;
}

const char *istiod_trust_domains(const struct istiod *i)
{
	return *i->trust_domains ? i->trust_domains : i->trust_domain;
}

void istiod_learn_trust_domain(struct istiod *i, const char *trust_domain)
{
	if (!*i->trust_domain)
		snprintf(i->trust_domain, sizeof(i->trust_domain), "%s", trust_domain);
}

void istiod_turn(struct istiod *i, struct istiod_turn **slot, const struct uuid *pod,
    istiod_granted granted, void *ctx)
{
	struct istiod_turn *t = mem_zalloc(sizeof(*t));

	assert(!*slot);
	t->istiod = i;
	t->slot = slot;
	t->pod = *pod;
	t->granted = granted;
	t->ctx = ctx;
	*slot = t;
	DL_APPEND(i->turns, t);
	schedule(i);
}

void istiod_csr_turn(struct istiod *i, struct istiod_turn **slot, const struct uuid *pod,
    istiod_granted granted, void *ctx)
{
	istiod_turn(i, slot, pod, granted, ctx);
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

static char *bearer_of(const char *token)
{
	char *s = mem_zalloc(strlen(token) + sizeof("Bearer "));

	strcpy(stpcpy(s, "Bearer "), token);
	return s;
}

int istiod_open(struct istiod *i, struct rpc_channel *c, struct rpc_stream **slot,
    const struct istiod_stream *s, struct err *e)
{
	char *bearer = s->token ? bearer_of(s->token) : NULL;
	struct rpc_header headers[] = {
	    {"clusterid", i->options.cluster_id, false}, {"authorization", bearer, true}};
	struct rpc_call call = {.method = s->method,
	    .headers = headers,
	    .nheaders = s->token ? 2 : 1,
	    .deadline_ms = s->deadline_ms,
	    .wait_for_ready = s->deadline_ms > 0,
	    .in_turn = s->in_turn};

	i->opened++;
	mem_wipe_free(i->token);
	i->token = mem_strdup(s->token);
	int failed = i->refusal ? err_set(e, ERR_INVALID, "%s", i->refusal)
				: rpc_open(c, slot, &call, s->events, s->ctx, e);

	mem_wipe_free(bearer);
	return failed;
}

void istiod_lease(struct istiod *i, struct istiod_lease **slot, const struct rpc_channel *c,
    istiod_move move, void *ctx)
{
	struct istiod_lease *l = mem_zalloc(sizeof(*l));

	assert(!*slot && c == i->channel);
	*l = (struct istiod_lease){.istiod = i, .slot = slot, .move = move, .ctx = ctx};
	DL_APPEND(i->leases, l);
	*slot = l;
}

void istiod_lease_end(struct istiod_lease **lease)
{
	struct istiod_lease *l = take(*lease);

	if (!l)
		return;
	DL_DELETE(l->istiod->leases, l);
	free(l);
}

void istiod_blame(struct istiod *i, const struct uuid *pod, const char *why)
{
	(void)pod, (void)why;
	i->blamed++;
}

const char *istiod_why_not(const struct istiod *i)
{
	return i->why_not ? i->why_not : "";
}

json_t *istiod_dump(const struct istiod *i)
{
	return json_pack("{s:s, s:s, s:s, s:[], s:s}", "name", i->options.name, "address",
	    i->options.address, "root", i->options.root, "connections", "why_not", "");
}

void fake_istiod_hold(struct istiod *i, bool held)
{
	i->held = held;
	schedule(i);
}

int fake_istiod_waiting(const struct istiod *i)
{
	const struct istiod_turn *t;
	int n = 0;

	DL_FOREACH (i->turns, t)
		n++;
	return n;
}

const struct uuid *fake_istiod_first_pod(const struct istiod *i)
{
	return i->turns ? &i->turns->pod : NULL;
}

int fake_istiod_opened(const struct istiod *i)
{
	return i->opened;
}

const char *fake_istiod_token(const struct istiod *i)
{
	return i->token;
}

void fake_istiod_refuse(struct istiod *i, const char *why)
{
	i->refusal = why;
}

int fake_istiod_leases(const struct istiod *i)
{
	const struct istiod_lease *l;
	int n;

	DL_COUNT(i->leases, l, n);
	return n;
}

void fake_istiod_move(struct istiod *i)
{
	struct istiod_lease *l = i->leases;
	istiod_move move = l->move;
	void *ctx = l->ctx;

	istiod_lease_end(l->slot);
	move(ctx);
}

/* --- a connection of its own: one at a time --- */

struct istiod_own {
	struct istiod *istiod;
	const struct istiod_own_events *ev;
	void *ctx;
	char *chain;
};

struct istiod_own *istiod_own_new(
    struct istiod *i, const struct uuid *pod, const struct istiod_own_events *ev, void *ctx)
{
	struct istiod_own *o = mem_zalloc(sizeof(*o));

	(void)pod;
	assert(!i->own);
	*o = (struct istiod_own){i, ev, ctx, mem_strdup("")};
	return i->own = o;
}

void istiod_own_free(struct istiod_own **own)
{
	struct istiod_own *o = take(*own);

	if (!o)
		return;
	o->istiod->own = NULL;
	free(o->chain);
	free(o);
}

void istiod_own_present(struct istiod_own *o, const char *key_pem, const char *chain_pem)
{
	assert(!key_pem == !chain_pem);
	free(o->chain);
	o->chain = mem_strdup(chain_pem ? chain_pem : "");
	o->istiod->presents++;
}

bool istiod_own_is_ready(const struct istiod_own *o)
{
	return *o->chain;
}

const char *istiod_roots(const struct istiod *i)
{
	return i->roots;
}

const char *fake_istiod_presented(const struct istiod *i)
{
	return i->own ? i->own->chain : NULL;
}

unsigned fake_istiod_presents(const struct istiod *i)
{
	return i->presents;
}

void fake_istiod_refuse_certificate(struct istiod *i)
{
	i->own->ev->refused(i->own->ctx);
}

void fake_istiod_new_roots(struct istiod *i, const char *pem)
{
	i->roots = pem;
	if (i->own)
		i->own->ev->roots(i->own->ctx);
}

int fake_istiod_blamed(const struct istiod *i)
{
	return i->blamed;
}

void fake_istiod_why_not(struct istiod *i, const char *why)
{
	i->why_not = why;
}
