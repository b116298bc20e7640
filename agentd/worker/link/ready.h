/* ready.h - what the broker hears of how far this worker is. */
#pragma once

struct link;

/* All pods that the node's sources name were added and are listened for, or refused. */
void link_ready(struct link *p);
/* After that, at each change: how many pods lost what an earlier worker gave them, or may have, and
 * a line for each.  0 is the last word. */
void link_served(struct link *p, unsigned lost, const char *why);
