/* istiod.c - see istiod.h.
 *
 * The root file is told (or it is "SYSTEM") -> same as before? -> connections (pool.c).  A changed
 * root makes new ones for the turns to come.  A root that is missing or broken changes nothing but
 * why_not (istio-agent.md 1.2).
 *
 * A turn is asked for -> it waits at the turnstile until its pod's connection is ready and its
 * place in the queue has come -> granted.  The pool says when a connection became ready.
 */
#include "istiod.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "istiod_internal.h"
#include "pool.h"
#include "turnstile.h"
#include "worker/crypto/roots.h"
#include "worker/crypto/x509.h"
#include "worker/link/link.h"
#include <stddef.h>
#include <stdio.h>
#include <string.h>

LOG_SCOPE("istiod");

#define OF_CSR "stream=\"csr\""
#define OF_STREAM "stream=\"xds\""

struct istiod_turn {
	struct turn turn; /* first: on_granted() gets it back */
	struct istiod *istiod;
	struct istiod_turn **slot;
	struct uuid pod;
	istiod_granted granted;
	void *ctx;
	int64_t since_ms; /* of the loop's uptime */
};

/* --- roots --- */

static void root_failed(struct istiod *i, const struct err *why)
{
	struct err e = *why;

	err_wrap(&e, "root certificate");
	if (!strcmp(e.msg, i->why_not.msg))
		return; /* already logged */
	i->why_not = e;
	if (pool_connectable(i->pool))
		log_warn(i->options.name, "%s; the old one stays in force", e.msg);
	else
		log_error(i->options.name, "%s", e.msg);
}

static void on_root(void *ctx, const struct link_content *c)
{
	struct istiod *i = ctx;
	auto_free char *pem = NULL;
	char note[ROOTS_NOTE_SIZE];
	struct err e;

	if (!c->data)
		return root_failed(i, c->e);
	pem = roots_read(c->data, c->size, note, &e);
	if (!pem)
		return root_failed(i, &e);
	i->why_not = (struct err){0};
	if (*note && strcmp(note, i->roots_note) != 0)
		log_warn(i->options.name, "root certificate: %s", note);
	snprintf(i->roots_note, sizeof(i->roots_note), "%s", note);
	if (i->roots_pem && !strcmp(pem, i->roots_pem))
		return;
	if (i->roots_pem)
		log_info(i->options.name, "root certificate changed: new connections");
	free(i->roots_pem);
	i->roots_pem = take(pem);
	x509_pem_life(i->roots_pem, &i->roots_life);
	pool_connect(i->pool, i->roots_pem);
	istiod_own_roots(i);
}

/* --- turns --- */

static bool on_ready_asked(void *ctx, const struct uuid *pod)
{
	const struct istiod *i = ctx;

	return pool_channel(istiod_own_pool(i, pod), pod) != NULL;
}

static void on_granted(void *ctx, struct turn *turn)
{
	struct istiod *i = ctx;
	struct istiod_turn *t = (struct istiod_turn *)turn;

	*t->slot = NULL;
	metric_observe(i->waits, turn->kind == TURN_CSR ? OF_CSR : OF_STREAM,
	    (double)(loop_uptime_ms(i->loop) - t->since_ms) / 1000);
	t->granted(t->ctx, pool_channel(istiod_own_pool(i, &t->pod), &t->pod));
	free(t);
}

static void on_hasty(void *ctx, const struct uuid *pod)
{
	struct istiod *i = ctx;

	if (istiod_own_pool(i, pod) == i->pool) /* else it harms itself alone */
		pool_quarantine(i->pool, pod, "it keeps opening streams");
}

static void on_pool_changed(void *ctx)
{
	struct istiod *i = ctx;

	turnstile_kick(i->turnstile);
}

static void ask(struct istiod *i, struct istiod_turn **slot, const struct istiod_turn *how,
    const struct uuid *pod, enum turn_kind kind)
{
	struct istiod_turn *t = mem_dup(how, sizeof(*how));

	t->istiod = i;
	t->slot = slot;
	t->pod = *pod;
	t->since_ms = loop_uptime_ms(i->loop);
	*slot = t;
	turnstile_ask(i->turnstile, &t->turn, pod, kind);
}

void istiod_turn(struct istiod *i, struct istiod_turn **slot, const struct uuid *pod,
    istiod_granted granted, void *ctx)
{
	const struct istiod_turn how = {.granted = granted, .ctx = ctx};

	ask(i, slot, &how, pod, TURN_STREAM);
}

void istiod_csr_turn(struct istiod *i, struct istiod_turn **slot, const struct uuid *pod,
    istiod_granted granted, void *ctx)
{
	const struct istiod_turn how = {.granted = granted, .ctx = ctx};

	ask(i, slot, &how, pod, TURN_CSR);
}

void istiod_turn_cancel(struct istiod_turn **turn)
{
	struct istiod_turn *t = take(*turn);

	if (!t)
		return;
	turnstile_leave(t->istiod->turnstile, &t->turn);
	free(t);
}

/* --- life --- */

struct istiod *istiod_new(
    struct loop *l, struct rpc *r, struct link *p, const struct istiod_options *o, unsigned index)
{
	static const struct turnstile_events events = {on_ready_asked, on_granted, on_hasty};
	struct istiod *i = mem_zalloc(sizeof(*i));
	const struct turnstile_options pace = {
	    o->opens_per_second, o->opens_burst, o->pod_opens_per_second, o->pod_opens_burst};

	i->loop = l;
	i->rpc = r;
	i->options = *o;
	snprintf(i->trust_domain, sizeof(i->trust_domain), "%s", o->trust_domain);
	if (o->former_trust_domains && *o->former_trust_domains)
		i->trust_domains = mem_printf("%s,%s", o->trust_domain, o->former_trust_domains);
	i->turnstile = turnstile_new(l, &pace, &events, i);
	i->waits = metric_histogram("agentd_stream_open_seconds",
	    "How long a stream to a control plane waited for its connection and its turn.");
	metric_add(i->waits, OF_CSR, 0);
	metric_add(i->waits, OF_STREAM, 0);
	i->pool = pool_new(l, r, &i->options, on_pool_changed, i);
	if (!strcmp(o->root, "SYSTEM")) {
		pool_connect(i->pool, NULL);
	} else {
		err_set(&i->why_not, ERR_UNAVAILABLE, "root certificate: not read yet");
		i->root = link_follow(p, LINK_FOLLOW_ROOT, NULL, index, on_root, i);
	}
	return i;
}

void istiod_free(struct istiod **istiod)
{
	struct istiod *i = take(*istiod);

	if (!i)
		return;
	link_unfollow(&i->root);
	turnstile_free(&i->turnstile);
	pool_free(&i->pool);
	free(i->roots_pem);
	free(i->trust_domains);
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
	return i->trust_domains ? i->trust_domains : i->trust_domain;
}

void istiod_learn_trust_domain(struct istiod *i, const char *trust_domain)
{
	if (*i->trust_domain)
		return;
	snprintf(i->trust_domain, sizeof(i->trust_domain), "%s", trust_domain);
	log_info(i->options.name, "trust domain: %s", i->trust_domain);
}

/* --- streams --- */

/* Not mem_printf(): vasprintf leaves copies of what it formats in freed memory. */
static char *bearer_of(const char *token)
{
	size_t size = sizeof("Bearer ") + strlen(token);
	char *s = mem_zalloc(size);

	snprintf(s, size, "Bearer %s", token);
	return s;
}

int istiod_open(struct istiod *i, struct rpc_channel *c, struct rpc_stream **slot,
    const struct istiod_stream *s, struct err *e)
{
	char *bearer = s->token ? bearer_of(s->token) : NULL;
	const struct rpc_header headers[] = {
	    /* Also when empty (istio-agent.md 1.2). */
	    {"clusterid", i->options.cluster_id, .secret = false},
	    {"authorization", bearer, .secret = true},
	};
	const struct rpc_call call = {
	    .method = s->method,
	    .headers = headers,
	    .nheaders = bearer ? 2 : 1,
	    .deadline_ms = s->deadline_ms,
	    .wait_for_ready = s->deadline_ms > 0,
	    .in_turn = s->in_turn,
	};
	int failed = rpc_open(c, slot, &call, s->events, s->ctx, e);

	mem_wipe_free(bearer);
	return failed ? err_wrap(e, "%s", i->options.name) : 0;
}

void istiod_lease(struct istiod *i, struct istiod_lease **slot, const struct rpc_channel *c,
    istiod_move move, void *ctx)
{
	pool_lease(istiod_own_pool_with(i, c), slot, c, move, ctx);
}

void istiod_lease_end(struct istiod_lease **l)
{
	pool_lease_end(l);
}

void istiod_blame(struct istiod *i, const struct uuid *pod, const char *why)
{
	if (istiod_own_pool(i, pod) == i->pool)
		pool_blame(i->pool, pod, why);
}

/* --- what is known --- */

const char *istiod_why_not(const struct istiod *i)
{
	const char *shared = pool_why_not(i->pool);

	if (i->why_not.code)
		return i->why_not.msg;
	return *shared ? shared : istiod_own_why_not(i);
}

bool istiod_connected(const struct istiod *i)
{
	return pool_connected(i->pool) || istiod_own_any(i, pool_connected);
}

int64_t istiod_root_expires(const struct istiod *i)
{
	return i->roots_life.first_end;
}

/* A plane that nobody asked yet is not well for that. */
static char *whole_why_not(const struct istiod *i)
{
	const char *why = istiod_why_not(i);

	if (pool_ever_connected(i->pool) || istiod_own_any(i, pool_ever_connected))
		return mem_strdup(why);
	return mem_printf("never connected: %s", *why ? why : "the first attempt is not over");
}

json_t *istiod_dump(const struct istiod *i)
{
	const struct istiod_options *o = &i->options;
	json_t *connections = pool_dump(i->pool), *owned = istiod_own_dump(i);
	auto_free char *why_not = whole_why_not(i);

	json_array_extend(connections, owned);
	json_decref(owned);
	return json_pack("{s:s, s:s, s:s, s:I, s:s, s:s, s:b, s:o, s:i, s:s}", "name", o->name,
	    "address", o->address, "root", o->root, "root_expires",
	    (json_int_t)istiod_root_expires(i), "root_note", i->roots_note, "trust_domain",
	    i->trust_domain, "connected", istiod_connected(i), "connections", connections,
	    "waiting", (int)turnstile_waiting(i->turnstile), "why_not", why_not);
}
