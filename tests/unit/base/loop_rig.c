/* loop_rig.c - see loop_rig.h. */
#include "loop_rig.h"
#include "base/loop.h"

static void stop(void *ctx)
{
	loop_stop(ctx);
}

void run_ms(struct loop *l, int64_t ms)
{
	struct loop_timer end = {0};

	loop_timer_in(l, &end, ms, stop, l);
	loop_run(l);
	loop_timer_stop(&end);
}
