/* share.h - what all pods may ask for together (decisions.md 11).
 *
 * A pod's own limits bound that pod alone: fifty pods that keep to theirs would take the whole
 * worker.  So a request is paid for by the pod's share, whatever the others take.  What a pod asks
 * for beyond it is paid for by one bucket of the node.  Any thread.
 *
 * Costs are thousandths of a request (limits.h), times milliseconds of the monotonic clock.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

/* An Envoy that begins asks for about 30, one that runs for less than one a second. */
enum { SHARE_REQUEST = 1000, SHARE_PER_SECOND = 10, SHARE_BURST = 40 };

struct share { /* embed it zeroed: it is full; its owner locks it */
	int64_t left, filled_ms;
	bool begun;
};

/* The node's bucket, full; 0: no bound, the default. */
void share_set(int64_t requests_per_second);
/* False: neither has enough.  What was left of the share is gone. */
bool share_pay(struct share *s, int64_t cost, int64_t now_ms);
