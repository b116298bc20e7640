/* hold.c - see hold.h.
 *
 * Envoy's first request of a type -> how many it has
 * istiod's first response of that type -> removes few: the others are never looked at
 *                                      -> removes many: held, timer
 * the next ones -> no better: held behind it
 *               -> better: istiod has changed its answer, the held ones are dropped.  State of the
 *                  world: this one goes on, it has everything.  Delta: istiod now believes that
 *                  Envoy has none of those, and would not remove the ones that are really gone.  So
 *                  the stream ends, and Envoy tells again what it has.
 * the timer, or too much was held -> all held responses are passed on.
 *
 * A delta request says how many Envoy has.  One of state of the world says only whether there are
 * some: what Envoy got last is how many, if it got it from this process.
 *
 * An istiod that becomes ready step by step removes fewer each time.  After a stream that ended
 * here, a response that does not remove fewer is meant: an istiod that always removes first and
 * adds then gets through the second time.
 */
#include "hold.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "rpc/rpc.h"
#include "said.h"
#include <stdio.h>
#include <string.h>

LOG_SCOPE("xds");

enum { TYPES = 2, HELD_MAX = 1 << 20, MANY = 10 /* one of so many, or more */ };

static const struct kind {
	const char *url, *word;
} kinds[TYPES] = {{TYPE_CLUSTER, "clusters"}, {TYPE_LISTENER, "listeners"}};

struct type {
	struct ads_hold *owner;
	const struct kind *kind;
	unsigned had;   /* of these, when it asked; state of the world: 1 is any number */
	unsigned given; /* state of the world: in what Envoy got last; 0: not known */
	unsigned gone;  /* that the held response removes */
	bool asked, answered;
	unsigned before; /* `gone` of the stream before, which ended here; 0: it did not */
	char why[ERR_MSG_SIZE];
	struct ads_said held;
	struct loop_timer patience;
};

struct ads_hold {
	struct ads_hold_options options;
	struct type types[TYPES];
};

static struct type *find(struct ads_hold *p, const char *url)
{
	for (unsigned i = 0; i < TYPES; i++)
		if (strcmp(p->types[i].kind->url, url) == 0)
			return &p->types[i];
	return NULL;
}

static void drop(struct type *t)
{
	loop_timer_stop(&t->patience);
	ads_said_clear(&t->held);
}

static void pass(struct type *t)
{
	const struct ads_hold_options *o = &t->owner->options;

	for (const struct ads_said_msg *m = t->held.first; m; m = m->next)
		o->pass(o->ctx, m->bytes, m->len);
	t->given = 0;
	drop(t);
}

static void on_patience_over(void *ctx)
{
	struct type *t = ctx;
	const struct ads_hold_options *o = &t->owner->options;

	log_warn_limited(o->log, o->label,
	    "istiod did not send %s again for %u s: Envoy drops them now", t->kind->word,
	    o->hold_s);
	pass(t);
}

/* How many Envoy has, as far as is known. */
static unsigned has(const struct type *t, enum discovery_flavour f)
{
	return f == DISCOVERY_SOTW && t->given ? t->given : t->had;
}

/* How many of them this response removes. */
static unsigned gone(
    const struct type *t, enum discovery_flavour f, const struct discovery_response *r)
{
	const unsigned all = has(t, f);

	if (f == DISCOVERY_SOTW)
		return all > r->resources ? all - r->resources : 0;
	return r->removed < all ? r->removed : all;
}

static bool is_many(const struct type *t, enum discovery_flavour f, unsigned n)
{
	return n > 0 && n >= (has(t, f) + MANY - 1) / MANY;
}

static void hold(struct type *t, enum discovery_flavour f, const struct rpc_msg *m)
{
	const struct ads_hold_options *o = &t->owner->options;
	char many[32] = "all";

	if (t->gone < has(t, f))
		(void)snprintf(many, sizeof(many), "%u of %u", t->gone, has(t, f));
	ads_said_add(&t->held, m);
	loop_timer_in(o->loop, &t->patience, (int64_t)o->hold_s * 1000, on_patience_over, t);
	(void)snprintf(t->why, sizeof(t->why),
	    "istiod's first answer removes %s %s: held back, Envoy keeps them for a while "
	    "(hold_empty_push_s)",
	    many, t->kind->word);
	log_warn_limited(o->log, o->label,
	    "istiod's first answer removes %s %s: istiod may have just started, so Envoy keeps "
	    "them for %u s",
	    many, t->kind->word, o->hold_s);
}

static enum ads_hold_verdict spoken_anew(struct type *t, enum discovery_flavour f)
{
	const struct ads_hold_options *o = &t->owner->options;

	log_warn_limited(o->log, o->label,
	    "istiod sends %s again: Envoy never saw the answer without them", t->kind->word);
	drop(t);
	if (f == DISCOVERY_SOTW)
		return ADS_HOLD_PASS;
	t->before = t->gone;
	return ADS_HOLD_ANEW;
}

static enum ads_hold_verdict another(struct type *t, enum discovery_flavour f,
    const struct discovery_response *r, const struct rpc_msg *m)
{
	if (r->resources > 0 && (f == DISCOVERY_DELTA || !is_many(t, f, gone(t, f, r))))
		return spoken_anew(t, f);
	if (t->held.size + rpc_msg_size(m) > HELD_MAX) {
		pass(t);
		return ADS_HOLD_PASS;
	}
	ads_said_add(&t->held, m);
	return ADS_HOLD_HELD;
}

static enum ads_hold_verdict first(struct type *t, enum discovery_flavour f,
    const struct discovery_response *r, const struct rpc_msg *m)
{
	bool meant;

	t->answered = true;
	t->gone = gone(t, f, r);
	meant = t->before && t->gone >= t->before;
	t->before = 0;
	if (meant || t->had == 0 || !is_many(t, f, t->gone))
		return ADS_HOLD_PASS;
	hold(t, f, m);
	return ADS_HOLD_HELD;
}

void ads_hold_request(struct ads_hold *p, const struct discovery_request *q)
{
	struct type *t = find(p, q->type_url);

	if (!t || t->asked)
		return;
	t->asked = true;
	t->had = q->had;
}

enum ads_hold_verdict ads_hold_response(struct ads_hold *p, enum discovery_flavour f,
    const struct discovery_response *r, const struct rpc_msg *m)
{
	struct type *t = find(p, r->type_url);
	enum ads_hold_verdict v = ADS_HOLD_PASS;

	if (!t || p->options.hold_s == 0)
		return v;
	if (t->held.first)
		v = another(t, f, r, m);
	else if (!t->answered)
		v = first(t, f, r, m);
	if (v == ADS_HOLD_PASS)
		t->given = r->resources;
	return v;
}

void ads_hold_stream_ended(struct ads_hold *p)
{
	for (unsigned i = 0; i < TYPES; i++) {
		drop(&p->types[i]);
		p->types[i].asked = p->types[i].answered = false;
	}
}

size_t ads_hold_size(const struct ads_hold *p)
{
	size_t n = 0;

	for (unsigned i = 0; i < TYPES; i++)
		n += p->types[i].held.size;
	return n;
}

const char *ads_hold_why(const struct ads_hold *p)
{
	for (unsigned i = 0; i < TYPES; i++)
		if (p->types[i].held.first)
			return p->types[i].why;
	return "";
}

struct ads_hold *ads_hold_new(const struct ads_hold_options *o)
{
	struct ads_hold *p = mem_zalloc(sizeof(*p));

	p->options = *o;
	for (unsigned i = 0; i < TYPES; i++) {
		p->types[i].owner = p;
		p->types[i].kind = &kinds[i];
	}
	return p;
}

void ads_hold_free(struct ads_hold **push)
{
	struct ads_hold *p = take(*push);

	if (!p)
		return;
	ads_hold_stream_ended(p);
	free(p);
}
