/* intake.c - streams of channels that are read in turn (rpc_call.in_turn): at most so much of what
 * they bring is on its way to the pods at a time (ledger.h).
 *
 * A read is not asked for: grpc would take all of the next message -> the tap tells that one has
 * begun, and its size (turns.c) -> it fits: it is read; else it waits, within grpc's first window
 * -> something was handed on, or ended -> whose turn it is.  While somebody waits the owners of
 * what is held hear of it, once a second.
 */
#include "arrivals.h"
#include "common/mem.h"
#include "rpc_internal.h"

#include <inttypes.h>
#include <utlist.h>

enum { CROWDED_MS = 1000 };

/* --- while somebody waits --- */

static void on_crowded(void *ctx);

void rpc_intake_watch(struct rpc *r)
{
	if (!r->intake.ledger.nwaiting)
		loop_timer_stop(&r->intake.crowded);
	else if (!r->intake.crowded.armed && !r->ending)
		loop_timer_in(r->loop, &r->intake.crowded, CROWDED_MS, on_crowded, r);
}

static void tell_crowded(struct rpc_stream *s)
{
	if (s->slot && s->is_writing && !s->channel && s->ev.crowded)
		s->ev.crowded(s->ctx, s, loop_now_ms(s->rpc->loop) - s->writing_since_ms);
}

/* Of those that are there now; each may end itself, and nobody else. */
static void on_crowded(void *ctx)
{
	struct rpc *r = ctx;
	struct rpc_stream *s, *next;

	DL_FOREACH_SAFE (r->streams, s, next)
		tell_crowded(s);
	rpc_intake_watch(r);
}

/* --- a stream --- */

static void made_room(struct rpc *r)
{
	if (r->intake.ledger.nwaiting && !r->ending)
		r->wait.due = true;
}

void rpc_intake_charge(struct rpc *r, int64_t more)
{
	rpc_ledger_charge(&r->intake.ledger, more);
	if (more < 0)
		made_room(r);
}

char *rpc_intake_begin(struct rpc_stream *s)
{
	static uint64_t last;

	struct rpc_intake_stream *t = &s->turn;

	t->on = true;
	t->mark = ++last;
	HASH_ADD(hh, s->rpc->intake.streams, mark, sizeof(t->mark), t);
	return mem_printf("%0*" PRIx64, RPC_ARRIVALS_DIGITS, t->mark);
}

bool rpc_intake_may_read(struct rpc_stream *s)
{
	if (s->turn.over)
		return true;
	if (!s->turn.knocks)
		return false;
	if (rpc_ledger_ask(&s->rpc->intake.ledger, &s->turn.entry, s->turn.knocks->size))
		return true;
	rpc_intake_watch(s->rpc);
	return false;
}

void rpc_intake_leave(struct rpc_stream *s)
{
	rpc_ledger_leave(&s->rpc->intake.ledger, &s->turn.entry);
	made_room(s->rpc);
}

void rpc_intake_was_read(struct rpc_stream *s)
{
	struct rpc_knock *k = s->turn.knocks;

	if (!s->turn.on)
		return;
	rpc_intake_leave(s);
	if (!k)
		return;
	LL_DELETE(s->turn.knocks, k);
	free(k);
}

void rpc_intake_end(struct rpc_stream *s)
{
	struct rpc_knock *k, *next;

	if (!s->turn.mark)
		return;
	HASH_DELETE(hh, s->rpc->intake.streams, &s->turn);
	rpc_intake_leave(s);
	LL_FOREACH_SAFE (s->turn.knocks, k, next)
		free(k);
}

/* --- all of them --- */

void rpc_bound(struct rpc *r, int64_t bytes)
{
	r->intake.ledger.bound = bytes;
}

struct rpc_flow rpc_flow(const struct rpc *r)
{
	const struct rpc_ledger *l = &r->intake.ledger;

	return (struct rpc_flow){l->bound, l->held, l->waiting, l->nwaiting, r->intake.unseen};
}
