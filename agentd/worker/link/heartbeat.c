/* heartbeat.c - ask -> tick: answered, ask again; not answered, count -> silent -> the answer.
 *
 * Ticks are counted, and not time alone: if it was us who stood still, there was one tick, and the
 * answer lies in the socket.
 */
#include "heartbeat.h"
#include "common/log.h"
#include "common/mem.h"
#include "link.h"
#include "worker/base/loop.h"
#include <stdio.h>

LOG_SCOPE("link");

enum { TICK_MS = 2000, SILENT_TICKS = 3, WHY_SIZE = 64 };

struct heartbeat {
	struct loop *loop;
	struct link *link;
	struct link_call *call; /* not answered yet */
	struct loop_timer tick;
	int64_t asked_ms;
	unsigned unanswered; /* ticks */
	uint32_t dropped;
	char why_not[WHY_SIZE], problem[LINK_WHY_SIZE];
};

int64_t heartbeat_silent_s(const struct heartbeat *h)
{
	if (h->unanswered < SILENT_TICKS)
		return 0;
	return (loop_uptime_ms(h->loop) - h->asked_ms) / 1000;
}

const char *heartbeat_why_not(struct heartbeat *h)
{
	if (h->unanswered < SILENT_TICKS)
		return NULL;
	snprintf(h->why_not, sizeof(h->why_not), "the broker has not answered for %lld s",
	    (long long)heartbeat_silent_s(h));
	return h->why_not;
}

uint32_t heartbeat_dropped(const struct heartbeat *h)
{
	return h->dropped;
}

const char *heartbeat_problem(const struct heartbeat *h)
{
	return *h->problem ? h->problem : NULL;
}

static void on_alive(void *ctx, uint32_t dropped, const char *problem)
{
	struct heartbeat *h = ctx;

	if (heartbeat_why_not(h))
		log_info(NULL, "the broker answers again, after %lld s",
		    (long long)heartbeat_silent_s(h));
	h->unanswered = 0;
	h->dropped = dropped;
	snprintf(h->problem, sizeof(h->problem), "%s", problem);
}

static void on_tick(void *ctx)
{
	struct heartbeat *h = ctx;

	loop_timer_in(h->loop, &h->tick, TICK_MS, on_tick, h);
	(void)log_unsaid(); /* as the broker does when it is asked */
	if (!h->call) {
		h->asked_ms = loop_uptime_ms(h->loop);
		link_beat(h->link, &h->call, on_alive, h);
	} else if (++h->unanswered == SILENT_TICKS) {
		log_error(NULL,
		    "%s: no pod can come or go, and Envoys that connect wait; what it waits for "
		    "is in /proc/<pid of agentd>/stack",
		    heartbeat_why_not(h));
	}
}

struct heartbeat *heartbeat_new(struct loop *l, struct link *p)
{
	struct heartbeat *h = mem_zalloc(sizeof(*h));

	h->loop = l;
	h->link = p;
	on_tick(h);
	return h;
}

void heartbeat_free(struct heartbeat **hp)
{
	struct heartbeat *h = take(*hp);

	if (!h)
		return;
	loop_timer_stop(&h->tick);
	link_call_cancel(&h->call);
	free(h);
}
