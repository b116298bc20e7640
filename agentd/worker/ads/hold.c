/* hold.c - see hold.h.
 *
 * Envoy's first request of a type -> how many it has
 * istiod's first response of that type -> leaves some: the others are never looked at
 *                                      -> leaves none: held, timer
 * the next ones -> empty, too: held behind it
 *               -> not empty: istiod has changed its answer, the held ones are dropped.  State of
 *                  the world: this one goes on, it has everything.  Delta: istiod now believes that
 *                  Envoy has none, and would not remove those that are really gone.  So the stream
 *                  ends, and Envoy tells again what it has.
 * the timer, or too much was held -> all held responses are passed on.
 *
 * A delta response that only removes is empty if it removes as many as Envoy has; removing one of
 * many is normal.  This module never ends two streams in a row: an istiod that always removes first
 * and adds then gets through the second time.
 */
#include "hold.h"
#include "common/log.h"
#include "common/mem.h"
#include "said.h"
#include "worker/base/loop.h"
#include "worker/base/rpc/rpc.h"
#include <stdio.h>
#include <string.h>

LOG_SCOPE("xds");

enum { TYPES = 2, HELD_MAX = 1 << 20 };

#define HELD(word)                                                                                 \
	"istiod's first answer removes all " word ": held back, Envoy keeps them for a while "     \
	"(hold_empty_push_s)"
static const struct kind {
	const char *url, *word, *why;
} kinds[TYPES] = {
    {TYPE_CLUSTER, "clusters", HELD("clusters")},
    {TYPE_LISTENER, "listeners", HELD("listeners")},
};

struct type {
	struct ads_hold *owner;
	const struct kind *kind;
	unsigned had; /* of these, as Envoy says; state of the world: 1 is any number */
	bool asked, answered;
	bool anew; /* the stream before ended here */
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
	drop(t);
}

static void on_patience_over(void *ctx)
{
	struct type *t = ctx;
	const struct ads_hold_options *o = &t->owner->options;

	log_warn_limited(o->log, o->label,
	    "istiod sent no %s for %u s after it removed all: Envoy drops them now", t->kind->word,
	    o->hold_s);
	pass(t);
}

static void hold(struct type *t, const struct rpc_msg *m)
{
	const struct ads_hold_options *o = &t->owner->options;

	ads_said_add(&t->held, m);
	loop_timer_in(o->loop, &t->patience, (int64_t)o->hold_s * 1000, on_patience_over, t);
	log_warn_limited(o->log, o->label,
	    "istiod's first answer removes all %s: istiod may have just started, so Envoy keeps "
	    "them for %u s",
	    t->kind->word, o->hold_s);
}

static bool leaves_nothing(
    const struct type *t, enum discovery_flavour f, const struct discovery_response *r)
{
	return r->resources == 0 && (f == DISCOVERY_SOTW || r->removed >= t->had);
}

static enum ads_hold_verdict spoken_anew(struct type *t, enum discovery_flavour f)
{
	const struct ads_hold_options *o = &t->owner->options;

	log_warn_limited(o->log, o->label,
	    "istiod sends %s again: Envoy never saw the empty answer", t->kind->word);
	drop(t);
	if (f == DISCOVERY_SOTW)
		return ADS_HOLD_PASS;
	t->anew = true;
	return ADS_HOLD_ANEW;
}

static enum ads_hold_verdict another(struct type *t, enum discovery_flavour f,
    const struct discovery_response *r, const struct rpc_msg *m)
{
	if (r->resources > 0)
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
	bool trusted = t->anew;

	t->answered = true;
	t->anew = false;
	if (trusted || t->had == 0 || !leaves_nothing(t, f, r))
		return ADS_HOLD_PASS;
	hold(t, m);
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

	if (!t || p->options.hold_s == 0)
		return ADS_HOLD_PASS;
	if (t->held.first)
		return another(t, f, r, m);
	return t->answered ? ADS_HOLD_PASS : first(t, f, r, m);
}

void ads_hold_stream_ended(struct ads_hold *p)
{
	for (unsigned i = 0; i < TYPES; i++) {
		drop(&p->types[i]);
		p->types[i].asked = p->types[i].answered = false;
	}
}

const char *ads_hold_why(const struct ads_hold *p)
{
	for (unsigned i = 0; i < TYPES; i++)
		if (p->types[i].held.first)
			return p->types[i].kind->why;
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
