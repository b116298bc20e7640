/* ledger.h - how much may be on its way from control planes to the pods' Envoys at a time.
 *
 * Counted are messages that come, each with its whole size from when it may come on, and bytes that
 * wait for a pod to read.  Up to `bound` bytes: a message that does not fit waits, first come,
 * first served, and each stream waits with one.  One larger than 7/8 of the bound comes when no
 * more than 1/8 is held.  Small ones do not wait, since most of them is here already.  Pure.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* The first bytes of a message that come unasked: grpc's first window of a stream. */
enum { RPC_LEDGER_SMALL = 65535 };

struct rpc_ledger_entry { /* embed it zeroed; the ledger's own */
	int64_t size;
	bool waits, holds;
	struct rpc_ledger_entry *prev, *next;
};

struct rpc_ledger {      /* embed it zeroed */
	int64_t bound;   /* 0: none */
	int64_t held;    /* bytes */
	int64_t waiting; /* bytes of messages that may not come yet */
	unsigned nwaiting;
	struct rpc_ledger_entry *first;
};

/* True: it may come, and holds `size` from now on.  False: it waits for rpc_ledger_next(). */
bool rpc_ledger_ask(struct rpc_ledger *l, struct rpc_ledger_entry *e, int64_t size);
/* It holds nothing any more, and does not wait. */
void rpc_ledger_leave(struct rpc_ledger *l, struct rpc_ledger_entry *e);
void rpc_ledger_charge(struct rpc_ledger *l, int64_t more); /* waits for a pod; negative: less */
/* Whose turn it is: it holds from now on.  NULL: nobody waits, or there is no room. */
struct rpc_ledger_entry *rpc_ledger_next(struct rpc_ledger *l);
