/* csr_pace.c
 *
 * take -> into its line -> (there are turns left) it goes in the next round of the loop.
 * A turn is used -> the refill timer runs until the bucket is full again, and serves the waiting
 * turns.
 */
#include "csr_pace.h"
#include "common/log.h"
#include "common/mem.h"
#include <utlist.h>

LOG_SCOPE("cert");

enum { BURST_SECONDS = 2 };

struct csr_pace {
	struct loop *loop;
	unsigned per_second, left;
	struct csr_pace_turn *lines[2]; /* by `urgent` */
	struct loop_timer soon, refill;
};

struct csr_pace *csr_pace_new(struct loop *l, unsigned per_second)
{
	struct csr_pace *p = mem_zalloc(sizeof(*p));

	p->loop = l;
	p->per_second = per_second;
	p->left = BURST_SECONDS * per_second;
	return p;
}

void csr_pace_free(struct csr_pace **pace)
{
	struct csr_pace *p = take(*pace);

	if (!p)
		return;
	log_bug_if(p->lines[false] || p->lines[true]);
	loop_timer_stop(&p->soon);
	loop_timer_stop(&p->refill);
	free(p);
}

static struct csr_pace_turn *first(const struct csr_pace *p)
{
	return p->lines[true] ? p->lines[true] : p->lines[false];
}

static void on_refill(void *ctx);

static void on_soon(void *ctx)
{
	struct csr_pace *p = ctx;
	struct csr_pace_turn *t;

	while (p->left > 0 && (t = first(p))) {
		p->left--;
		if (!p->refill.armed)
			loop_timer_in(p->loop, &p->refill, 1000 / p->per_second, on_refill, p);
		csr_pace_cancel(t);
		t->go(t->ctx);
	}
}

static void on_refill(void *ctx)
{
	struct csr_pace *p = ctx;

	p->left++;
	if (p->left < BURST_SECONDS * p->per_second)
		loop_timer_in(p->loop, &p->refill, 1000 / p->per_second, on_refill, p);
	on_soon(p);
}

void csr_pace_take(struct csr_pace *p, struct csr_pace_turn *t, bool urgent, loop_cb go, void *ctx)
{
	log_bug_if(t->pace);
	*t = (struct csr_pace_turn){.pace = p, .urgent = urgent, .go = go, .ctx = ctx};
	DL_APPEND(p->lines[urgent], t);
	if (p->left > 0)
		loop_timer_in(p->loop, &p->soon, 0, on_soon, p);
}

void csr_pace_cancel(struct csr_pace_turn *t)
{
	struct csr_pace *p = take(t->pace);

	if (p)
		DL_DELETE(p->lines[t->urgent], t);
}
