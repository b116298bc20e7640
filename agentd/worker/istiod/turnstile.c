/* turnstile.c
 *
 * ask -> the pod joins the ring -> grant: the first pod of the ring that is ready and has a token
 * of its own, a token of the bucket -> the pod goes to the end of the ring.  One grant per round of
 * the loop, so that a caller who fails at once and asks again cannot keep the loop to itself.
 *
 * A bucket is a number and a timer that runs only while the number is below the burst.  A token of
 * the common one comes up to a fifth later than the rate says: nodes that lost the same istiod at
 * the same moment drift apart, and the rate is never exceeded.  A pod is forgotten when it has no
 * waiting turn and its bucket is full.
 */
#include "turnstile.h"
#include "base/loop.h"
#include "common/log.h"
#include "common/mem.h"
#include <stdlib.h>
#include <uthash.h>
#include <utlist.h>

LOG_SCOPE("istiod");

/* HASTY: so often told to wait without three quiet seconds between. */
enum { HASTY = 10 };

struct turn_pod {
	struct turnstile *owner;
	struct uuid uid;
	struct turn *turns[TURN_KINDS];
	unsigned tokens, throttled;
	struct loop_timer refill;
	struct turn_pod *prev, *next; /* in the ring, while it has turns */
	UT_hash_handle hh;
};

struct turnstile {
	struct loop *loop;
	struct turnstile_options options;
	struct turnstile_events ev;
	void *ctx;
	struct turn_pod *pods, *ring;
	unsigned tokens;
	struct loop_timer refill, grant;
};

static void on_grant(void *ctx);

void turnstile_kick(struct turnstile *t)
{
	if (!t->ring || !t->tokens)
		loop_timer_stop(&t->grant);
	else if (!t->grant.armed)
		loop_timer_in(t->loop, &t->grant, 0, on_grant, t);
}

/* --- the buckets --- */

static void on_refill(void *ctx)
{
	struct turnstile *t = ctx;
	unsigned ms = 1000 / t->options.per_second;

	t->tokens++;
	if (t->tokens < t->options.burst)
		loop_timer_in(
		    t->loop, &t->refill, ms + arc4random_uniform(ms / 5 + 1), on_refill, t);
	turnstile_kick(t);
}

static void spend(struct turnstile *t)
{
	unsigned ms = 1000 / t->options.per_second;

	t->tokens--;
	if (!t->refill.armed)
		loop_timer_in(
		    t->loop, &t->refill, ms + arc4random_uniform(ms / 5 + 1), on_refill, t);
}

static bool waits(const struct turn_pod *p)
{
	return p->turns[TURN_CSR] || p->turns[TURN_STREAM];
}

static void forget_if_quiet(struct turn_pod *p)
{
	if (waits(p) || p->refill.armed)
		return;
	HASH_DEL(p->owner->pods, p);
	free(p);
}

static void on_pod_refill(void *ctx);

static void refill_pod(struct turn_pod *p)
{
	unsigned ms = 1000 / p->owner->options.pod_per_second;

	loop_timer_in(p->owner->loop, &p->refill, ms, on_pod_refill, p);
}

static void on_pod_refill(void *ctx)
{
	struct turn_pod *p = ctx;
	struct turnstile *t = p->owner;

	p->tokens++;
	if (p->tokens < t->options.pod_burst)
		refill_pod(p);
	else
		p->throttled = 0;
	forget_if_quiet(p);
	turnstile_kick(t);
}

static void pod_spend(struct turn_pod *p)
{
	p->tokens--;
	if (!p->refill.armed)
		refill_pod(p);
}

/* --- the ring --- */

static void take_out(struct turn *turn)
{
	struct turn_pod *p = turn->pod;

	DL_DELETE(p->turns[turn->kind], turn);
	turn->pod = NULL;
	if (!waits(p))
		DL_DELETE(p->owner->ring, p);
}

static struct turn *pick(struct turnstile *t, enum turn_kind kind)
{
	struct turn_pod *p;

	DL_FOREACH (t->ring, p)
		if (p->turns[kind] && p->tokens && t->ev.ready(t->ctx, &p->uid))
			return p->turns[kind];
	return NULL;
}

static void on_grant(void *ctx)
{
	struct turnstile *t = ctx;
	struct turn *turn = pick(t, TURN_CSR);
	struct turn_pod *p;

	if (!turn)
		turn = pick(t, TURN_STREAM);
	if (!turn)
		return; /* a refill or a kick comes */
	p = turn->pod;
	take_out(turn);
	if (waits(p)) {
		DL_DELETE(t->ring, p);
		DL_APPEND(t->ring, p);
	}
	pod_spend(p);
	spend(t);
	turnstile_kick(t);
	t->ev.granted(t->ctx, turn);
}

static struct turn_pod *find_pod(struct turnstile *t, const struct uuid *uid)
{
	struct turn_pod *p;

	HASH_FIND(hh, t->pods, uid, sizeof(*uid), p);
	if (p)
		return p;
	p = mem_zalloc(sizeof(*p));
	p->owner = t;
	p->uid = *uid;
	p->tokens = t->options.pod_burst;
	HASH_ADD(hh, t->pods, uid, sizeof(p->uid), p);
	return p;
}

void turnstile_ask(
    struct turnstile *t, struct turn *turn, const struct uuid *pod, enum turn_kind kind)
{
	struct turn_pod *p = find_pod(t, pod);

	if (!waits(p))
		DL_APPEND(t->ring, p);
	turn->pod = p;
	turn->kind = kind;
	DL_APPEND(p->turns[kind], turn);
	if (!p->tokens && ++p->throttled == HASTY)
		t->ev.hasty(t->ctx, pod);
	turnstile_kick(t);
}

void turnstile_leave(struct turnstile *t, struct turn *turn)
{
	struct turn_pod *p = turn->pod;

	take_out(turn);
	forget_if_quiet(p);
	turnstile_kick(t);
}

unsigned turnstile_waiting(const struct turnstile *t)
{
	const struct turn_pod *p;
	const struct turn *turn;
	unsigned n = 0;

	DL_FOREACH (t->ring, p)
		for (int kind = 0; kind < TURN_KINDS; kind++)
			DL_FOREACH (p->turns[kind], turn)
				n++;
	return n;
}

struct turnstile *turnstile_new(
    struct loop *l, const struct turnstile_options *o, const struct turnstile_events *ev, void *ctx)
{
	struct turnstile *t = mem_zalloc(sizeof(*t));

	t->loop = l;
	t->options = *o;
	t->ev = *ev;
	t->ctx = ctx;
	t->tokens = o->burst;
	return t;
}

void turnstile_free(struct turnstile **turnstile)
{
	struct turnstile *t = take(*turnstile);
	struct turn_pod *p, *next;

	if (!t)
		return;
	log_bug_if(t->ring);
	loop_timer_stop(&t->refill);
	loop_timer_stop(&t->grant);
	p = t->pods;
	HASH_CLEAR(hh, t->pods);
	for (; p; p = next) {
		next = p->hh.next;
		loop_timer_stop(&p->refill);
		free(p);
	}
	free(t);
}
