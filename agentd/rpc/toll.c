/* toll.c - a read begins -> each frame and field takes its cost from the bucket -> the read ends:
 * was all of it paid for, by the pod's bucket and by its share of the node's?
 */
#include "toll.h"

#include <time.h>

enum {
	REQUEST_COST = 200,
	LEAST = 50, /* requests: what a connection needs to begin */
	READ_COST = 1,
	CALL_COST = 100,
	FRAME_COST = REQUEST_COST / RPC_TOLL_FRAMES,
	RESET_COST = 10 * CALL_COST,
	FIELD_COST = 1,
	HEADER_BYTES = 16, /* that cost 1 */
	SMALL_DATA = 1024,
	MESSAGE_COST = 32 * REQUEST_COST, /* of the largest, below what a share pays at once */
	MESSAGE_LEAST = 4 << 20,
};

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static int64_t at_least(int64_t n, int64_t least)
{
	return n < least ? least : n;
}

void rpc_toll_set(struct rpc_toll *t, int64_t per_second, int64_t burst, size_t message_size)
{
	const int64_t full = at_least(burst, LEAST) * REQUEST_COST;

	*t = (struct rpc_toll){
	    .per_second = per_second ? at_least(per_second, LEAST) * REQUEST_COST : 0,
	    .burst = full,
	    .left = full,
	    .data_bytes = at_least((int64_t)message_size, MESSAGE_LEAST) / MESSAGE_COST,
	    .filled_us = now_us()};
}

static void fill(struct rpc_toll *t)
{
	int64_t now = now_us(), more = (now - t->filled_us) * t->per_second / 1000000;

	if (more == 0)
		return;
	t->left += more;
	t->filled_us = now;
	if (t->left > t->burst)
		t->left = t->burst;
}

static void ask(struct rpc_toll *t, int64_t cost)
{
	t->left -= cost;
	t->asked += cost;
}

void rpc_toll_read(struct rpc_toll *t)
{
	fill(t);
	t->asked = 0;
	ask(t, READ_COST);
}

void rpc_toll_frame(struct rpc_toll *t, const struct rpc_frame *f)
{
	switch (f->type) {
	case RPC_FRAME_DATA:
		return ask(t, f->size < SMALL_DATA ? FRAME_COST : 1 + f->size / t->data_bytes);
	case RPC_FRAME_HEADERS:
	case RPC_FRAME_CONTINUATION:
		return ask(t, CALL_COST + f->size / HEADER_BYTES);
	case RPC_FRAME_WINDOW_UPDATE:
		return ask(t, 1);
	default:
		return ask(t, FRAME_COST + f->size / HEADER_BYTES);
	}
}

void rpc_toll_fields(struct rpc_toll *t, unsigned n)
{
	ask(t, (int64_t)n * FIELD_COST);
}

void rpc_toll_resets(struct rpc_toll *t, unsigned n)
{
	ask(t, (int64_t)n * RESET_COST);
}

bool rpc_toll_is_paid(const struct rpc_toll *t)
{
	return t->left >= 0;
}

enum rpc_toll_end rpc_toll_end(struct rpc_toll *t)
{
	bool own = t->left >= 0;
	bool shared =
	    share_pay(&t->share, t->asked * SHARE_REQUEST / REQUEST_COST, t->filled_us / 1000);

	if (!own)
		t->left = 0;
	if (own && shared)
		return RPC_TOLL_PAID;
	return own ? RPC_TOLL_BEYOND_SHARE : RPC_TOLL_EMPTY;
}

void rpc_toll_fine(struct rpc_toll *t)
{
	t->left = -t->burst;
}
