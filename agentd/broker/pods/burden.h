/* burden.h - what a pod's connections hold of the worker's memory, and what follows from it.
 *
 * The worker says what it holds.  A worker that is killed, as for want of memory, has a successor,
 * and whoever held most comes to it last: its connections wait in the backlog, 10 s, twice as long
 * each time, 10 minutes at most.  An hour without such a death is a new beginning.
 */
#pragma once
#include <stdint.h>

enum { BURDEN_LEAST_KIB = 1024 }; /* less kills nobody */

struct pod_burden {
	uint32_t held_kib; /* as the worker that runs said last */
	unsigned deaths;   /* of workers, in a row */
	int64_t last_ms, until_ms;
};

/* Its worker was killed while it held that.  How long it waits, ms. */
int64_t pod_burden_blame(struct pod_burden *b, int64_t now_ms);
uint32_t pod_burden_wait_s(const struct pod_burden *b, int64_t now_ms); /* 0: it need not */
