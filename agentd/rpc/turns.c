/* turns.c - what the tap tells of streams that are read in turn, and whose turn it is (intake.c).
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
#include <utlist.h>

LOG_SCOPE("rpc");

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
		rpc_intake_leave(s);
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
	rpc_intake_watch(r);
}
