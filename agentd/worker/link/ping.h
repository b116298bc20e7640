/* ping.h - the broker's loop turns, and it asks whether ours does (heartbeat.h). */
#pragma once
#include <stdint.h>

struct link;

struct link_ping {
	uint32_t number;
	uint32_t dropped;    /* lines that the broker could not log so far */
	const char *problem; /* what is wrong on its side, or ""; valid during the callback */
};
typedef void (*link_pinged)(void *ctx, const struct link_ping *g);
/* There is one watcher; NULL: none, and each ping is answered as it comes. */
void link_on_ping(struct link *p, link_pinged pinged, void *ctx);
void link_pong(struct link *p, uint32_t number);
