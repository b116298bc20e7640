/* intake.c - streams of channels that are read in turn (rpc_call.in_turn): at most so much of what
 * they bring is on its way to the pods at a time (ledger.h).
 *
 * A read is not asked for: grpc would take all of the next message -> the tap tells that one has
 * begun, and its size -> it fits: it is read; else it waits, within grpc's first window ->
 * something was handed on, or ended -> whose turn it is. While somebody waits the owners of what is
 * held hear of it, once a second.
 *
 * A stream that the tap did not see, whose server answered, is read as any other: then nothing
 * bounds it, and rpc_flow() says so.
 */
#include "common/log.h"
#include "common/mem.h"
#include "rpc_internal.h"
#include "tap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

LOG_SCOPE("rpc");

enum { CROWDED_MS = 1000 };

/* --- while somebody waits --- */

static void on_crowded(void *ctx);

static void watch(struct rpc *r)
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
	watch(r);
}

/* --- a stream --- */

static void made_room(struct rpc *r)
{
	if (r->intake.ledger.nwaiting && !r->ending)
		rpc_wake(r);
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
	watch(s->rpc);
	return false;
}

static void leave(struct rpc_stream *s)
{
	rpc_ledger_leave(&s->rpc->intake.ledger, &s->turn.entry);
	made_room(s->rpc);
}

void rpc_intake_was_read(struct rpc_stream *s)
{
	struct rpc_knock *k = s->turn.knocks;

	if (!s->turn.on)
		return;
	leave(s);
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
	leave(s);
	LL_FOREACH_SAFE (s->turn.knocks, k, next)
		free(k);
}

/* grpc would judge it when it is whole; the words are its own. */
static void refuse(struct rpc_stream *s, uint32_t size)
{
	char why[100];

	snprintf(why, sizeof(why), "Received message larger than max (%" PRIu32 " vs. %d)", size,
	    RPC_RECEIVE_MAX);
	grpc_call_cancel_with_status(s->call, GRPC_STATUS_RESOURCE_EXHAUSTED, why, NULL);
}

static void on_message(struct rpc_stream *s, uint32_t size)
{
	struct rpc_knock *k = mem_zalloc(sizeof(*k));

	k->size = size;
	LL_APPEND(s->turn.knocks, k);
	if (size > RPC_RECEIVE_MAX)
		refuse(s, size);
	else
		rpc_stream_read(s);
}

/* One that waits is not whole: it would not fit into the window.  So there is nothing to wait for.
 */
static void on_end(struct rpc_stream *s)
{
	s->turn.over = true;
	if (s->turn.entry.waits)
		leave(s);
	rpc_stream_read(s);
}

static void on_news(struct rpc *r, const struct rpc_tap_news *n)
{
	struct rpc_intake_stream *t;

	HASH_FIND(hh, r->intake.streams, &n->mark, sizeof(n->mark), t);
	if (!t)
		return;
	struct rpc_stream *s = tag_owner(t, struct rpc_stream, turn);

	t->seen = true;
	if (n->what == RPC_ARRIVAL_MESSAGE)
		on_message(s, n->size);
	else if (n->what == RPC_ARRIVAL_END)
		on_end(s);
}

static void hear(struct rpc *r)
{
	struct rpc_tap_news *n, *next;

	for (n = rpc_tap_take(); n; n = next) {
		next = n->next;
		on_news(r, n);
		free(n);
	}
}

void rpc_intake_answered(struct rpc_stream *s)
{
	if (!s->turn.on || s->turn.seen)
		return;
	hear(s->rpc);
	if (s->turn.seen || !s->slot)
		return;
	if (!s->rpc->intake.unseen++)
		log_error(NULL, "this grpc does not decrypt where agentd looks: nothing bounds "
				"what a push takes");
	s->turn.on = false;
	rpc_stream_read(s);
}

/* --- all of them --- */

void rpc_intake_run(struct rpc *r)
{
	struct rpc_ledger_entry *e;

	hear(r);
	while ((e = rpc_ledger_next(&r->intake.ledger))) {
		struct rpc_stream *s = tag_owner(e, struct rpc_stream, turn.entry);

		rpc_stream_read(s);
		if (!s->is_reading) /* it was paused, or let go of */
			rpc_ledger_leave(&r->intake.ledger, e);
	}
	watch(r);
}

void rpc_bound(struct rpc *r, int64_t bytes)
{
	r->intake.ledger.bound = bytes;
}

struct rpc_flow rpc_flow(const struct rpc *r)
{
	const struct rpc_ledger *l = &r->intake.ledger;

	return (struct rpc_flow){l->bound, l->held, l->waiting, l->nwaiting, r->intake.unseen};
}
