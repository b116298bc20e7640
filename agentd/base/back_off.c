/* back_off.c - a failure -> a timer, twice as long as the last -> over.  A success forgets them. */
#include "back_off.h"
#include <stdlib.h>

enum { FIRST_MS = 500, MAX_MS = 8 * 1000 };

void back_off_start(struct loop *l, struct back_off *b, loop_cb over, void *ctx)
{
	unsigned ms = FIRST_MS;

	for (unsigned n = 0; n < b->failed && ms < MAX_MS; n++)
		ms *= 2;
	if (ms > MAX_MS)
		ms = MAX_MS;
	ms += arc4random_uniform(ms * 2 / 5 + 1) - ms / 5;
	b->failed++;
	b->until_ms = loop_now_ms(l) + ms;
	loop_timer_in(l, &b->timer, ms, over, ctx);
}

void back_off_stop(struct back_off *b)
{
	loop_timer_stop(&b->timer);
}

bool back_off_waits(const struct back_off *b)
{
	return b->timer.armed;
}

void back_off_succeeded(struct back_off *b)
{
	b->failed = 0;
}
