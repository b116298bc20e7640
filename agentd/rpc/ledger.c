/* ledger.c - see ledger.h. */
#include "ledger.h"
#include <stddef.h>
#include <utlist.h>

static bool fits(const struct rpc_ledger *l, int64_t size)
{
	int64_t rest = l->bound / 8, most = l->bound - rest;

	return !l->bound || size <= RPC_LEDGER_SMALL ||
	       l->held + (size < most ? size : most) <= l->bound;
}

static void hold(struct rpc_ledger *l, struct rpc_ledger_entry *e)
{
	e->holds = true;
	l->held += e->size;
}

static void stop_waiting(struct rpc_ledger *l, struct rpc_ledger_entry *e)
{
	e->waits = false;
	l->waiting -= e->size;
	l->nwaiting--;
	DL_DELETE(l->first, e);
}

bool rpc_ledger_ask(struct rpc_ledger *l, struct rpc_ledger_entry *e, int64_t size)
{
	if (e->waits || e->holds)
		return e->holds;
	e->size = size;
	/* Nobody overtakes, but for the small. */
	if (fits(l, size) && (!l->first || size <= RPC_LEDGER_SMALL)) {
		hold(l, e);
		return true;
	}
	e->waits = true;
	l->waiting += size;
	l->nwaiting++;
	DL_APPEND(l->first, e);
	return false;
}

void rpc_ledger_leave(struct rpc_ledger *l, struct rpc_ledger_entry *e)
{
	if (e->waits)
		stop_waiting(l, e);
	if (e->holds)
		l->held -= e->size;
	*e = (struct rpc_ledger_entry){.size = 0};
}

void rpc_ledger_charge(struct rpc_ledger *l, int64_t more)
{
	l->held += more;
}

struct rpc_ledger_entry *rpc_ledger_next(struct rpc_ledger *l)
{
	struct rpc_ledger_entry *e = l->first;

	if (!e || !fits(l, e->size))
		return NULL;
	stop_waiting(l, e);
	hold(l, e);
	return e;
}
