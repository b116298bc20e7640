/* back_off.h - how long to wait after the n-th failure in a row: 0.5 s, doubling to 8 s, +-20 %.
 *
 * So all is well within 10 s of the last failure.  Its cost is bounded elsewhere: opens at istiod
 * by the turnstile, and by istiod's own limiter, which comes before it looks at a token.
 */
#pragma once
#include "loop.h"

struct back_off { /* embed it zeroed; stop it before its memory goes */
	struct loop_timer timer;
	unsigned failed;
	int64_t until_ms; /* Unix, for agentctl; 0: not waiting */
};

/* One more failure; `over` runs when the time has come. */
void back_off_start(struct loop *l, struct back_off *b, loop_cb over, void *ctx);
/* Do not wait any more; the failures are not forgotten. */
void back_off_stop(struct back_off *b);
bool back_off_waits(const struct back_off *b);
void back_off_succeeded(struct back_off *b);
