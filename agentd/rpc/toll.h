/* toll.h - what a pod's frames cost, and the bucket that pays (limits.h, share.h).
 *
 * Costs follow from the work of grpc: a stream is 12 KB and a turn of the loop, a field of headers
 * some 250 bytes, content is bounded by windows.  One request pays for two calls,
 * RPC_TOLL_FRAMES that say little, 200 window updates or reads, or a 32nd of the largest message.
 * Monotonic clock; the caller (guard.c) locks.
 */
#pragma once
#include "frames.h"
#include "share.h"
#include <stdbool.h>

enum { RPC_TOLL_FRAMES = 20 };

struct rpc_toll {
	int64_t per_second, burst, left; /* in costs; 0 a second: nothing is asked for */
	int64_t data_bytes;              /* that cost 1 */
	int64_t filled_us, asked;        /* asked: by this read */
	struct share share;
};

/* In requests, at least 50 each; less than 4 MiB of a message count as these. */
void rpc_toll_set(struct rpc_toll *t, int64_t per_second, int64_t burst, size_t message_size);
/* One read begins; its frames; its fields of headers; streams that nobody had heard of, reset. */
void rpc_toll_read(struct rpc_toll *t);
void rpc_toll_frame(struct rpc_toll *t, const struct rpc_frame *f);
void rpc_toll_fields(struct rpc_toll *t, unsigned n);
void rpc_toll_resets(struct rpc_toll *t, unsigned n);
bool rpc_toll_is_paid(const struct rpc_toll *t); /* so far, by the pod's own bucket */
enum rpc_toll_end { RPC_TOLL_PAID, RPC_TOLL_EMPTY, RPC_TOLL_BEYOND_SHARE };
enum rpc_toll_end rpc_toll_end(struct rpc_toll *t); /* of the read */
void rpc_toll_fine(struct rpc_toll *t);             /* a whole burst is owed */
