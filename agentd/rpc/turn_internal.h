/* turn_internal.h - what intake.c keeps of streams that are read in turn (channel.h).
 */
#pragma once
#include "base/loop.h"
#include "ledger.h"
#include <uthash.h>

enum { RPC_RECEIVE_MAX = 64 << 20 }; /* of a message to a channel */

struct rpc_knock { /* a message that has begun to come */
	uint32_t size;
	struct rpc_knock *next;
};

struct rpc_intake_stream {        /* embed it zeroed */
	bool on;                  /* it is read in turn */
	bool seen, over;          /* by the tap */
	uint64_t mark;            /* 0: none */
	struct rpc_knock *knocks; /* oldest first */
	struct rpc_ledger_entry entry;
	UT_hash_handle hh;
};

struct rpc_intake { /* of the runtime; embed it zeroed */
	struct rpc_ledger ledger;
	struct rpc_intake_stream *streams; /* by mark */
	struct loop_timer crowded;
	unsigned unseen; /* streams in turn that the tap did not see */
};
