/* heartbeat.c - a ping -> the silence begins anew, and it is answered -> no ping for 8 s: a last
 * look -> silent -> the next ping.
 *
 * The last look is for a worker that stood still itself: then the pings lie in the socket, and are
 * read first.
 */
#include "heartbeat.h"
#include "base/loop.h"
#include "common/log.h"
#include "common/mem.h"
#include "link.h"
#include <stdio.h>

LOG_SCOPE("link");

enum { SILENT_MS = 8000, LOOK_MS = 500, WHY_SIZE = 64 };

struct heartbeat {
	struct loop *loop;
	struct link *link;
	struct loop_timer silence;
	int64_t heard_ms;
	bool silent; /* the broker */
	uint32_t dropped, kib;
	unsigned restarts;
	char why_not[WHY_SIZE], problem[LINK_WHY_SIZE];
};

int64_t heartbeat_silent_s(const struct heartbeat *h)
{
	return h->silent ? (loop_uptime_ms(h->loop) - h->heard_ms) / 1000 : 0;
}

const char *heartbeat_why_not(struct heartbeat *h)
{
	if (!h->silent)
		return NULL;
	snprintf(h->why_not, sizeof(h->why_not), "the broker has not answered for %lld s",
	    (long long)heartbeat_silent_s(h));
	return h->why_not;
}

uint32_t heartbeat_dropped(const struct heartbeat *h)
{
	return h->dropped;
}

uint64_t heartbeat_memory(const struct heartbeat *h)
{
	return (uint64_t)h->kib * 1024;
}

unsigned heartbeat_restarts(const struct heartbeat *h)
{
	return h->restarts;
}

const char *heartbeat_problem(const struct heartbeat *h)
{
	return *h->problem ? h->problem : NULL;
}

static void on_silent(void *ctx)
{
	struct heartbeat *h = ctx;

	h->silent = true;
	log_error(NULL,
	    "%s: no pod can come or go, and Envoys that connect wait; /proc/<pid of agentd>/stack "
	    "shows what it waits for",
	    heartbeat_why_not(h));
}

static void on_silence(void *ctx)
{
	struct heartbeat *h = ctx;

	loop_timer_in(h->loop, &h->silence, LOOK_MS, on_silent, h);
}

static void on_ping(void *ctx, const struct link_packet *ping)
{
	struct heartbeat *h = ctx;

	if (h->silent)
		log_info(NULL, "the broker answers again, after %lld s",
		    (long long)heartbeat_silent_s(h));
	h->silent = false;
	h->heard_ms = loop_uptime_ms(h->loop);
	h->dropped = ping->state;
	h->kib = ping->id;
	h->restarts = ping->kind;
	snprintf(h->problem, sizeof(h->problem), "%s", ping->why);
	loop_timer_in(h->loop, &h->silence, SILENT_MS, on_silence, h);
	(void)log_unsaid(); /* as the broker does when it pings */
	link_pong(h->link, ping->arg);
}

struct heartbeat *heartbeat_new(struct loop *l, struct link *p)
{
	struct heartbeat *h = mem_zalloc(sizeof(*h));

	h->loop = l;
	h->link = p;
	h->heard_ms = loop_uptime_ms(l);
	loop_timer_in(l, &h->silence, SILENT_MS, on_silence, h);
	link_on_ping(p, on_ping, h);
	return h;
}

void heartbeat_free(struct heartbeat **hp)
{
	struct heartbeat *h = take(*hp);

	if (!h)
		return;
	link_on_ping(h->link, NULL, NULL);
	loop_timer_stop(&h->silence);
	free(h);
}
