/* burden.c - see burden.h. */
#include "burden.h"

enum { WAIT_MIN_MS = 10 * 1000, WAIT_MAX_MS = 10 * 60 * 1000, FORGET_MS = 60 * 60 * 1000 };

int64_t pod_burden_blame(struct pod_burden *b, int64_t now_ms)
{
	int64_t wait = WAIT_MIN_MS;

	if (b->deaths && now_ms - b->last_ms >= FORGET_MS)
		b->deaths = 0;
	for (unsigned i = 0; i < b->deaths && wait < WAIT_MAX_MS; i++)
		wait *= 2;
	if (wait > WAIT_MAX_MS)
		wait = WAIT_MAX_MS;
	b->deaths++;
	b->last_ms = now_ms;
	b->until_ms = now_ms + wait;
	return wait;
}

uint32_t pod_burden_wait_s(const struct pod_burden *b, int64_t now_ms)
{
	return b->until_ms > now_ms ? (uint32_t)((b->until_ms - now_ms + 999) / 1000) : 0;
}
