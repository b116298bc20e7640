/* heartbeat.h - does the broker turn, and do we?
 *
 * One exchange serves both: the broker pings at least every 5 s, and the answer tells it that our
 * loop turns.  After 8 s without a ping `why_not` says so, and it is logged.  Pods that are
 * served stay served; new ones, and new connections of Envoys, wait.  Only whoever runs agentd can
 * help: a broker that waits in the kernel ends by no signal.  The broker replaces a worker that
 * does not answer.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct heartbeat;
struct link;
struct loop;

struct heartbeat *heartbeat_new(struct loop *l, struct link *p);
void heartbeat_free(struct heartbeat **h);
/* "the broker has not answered for 8 s", valid until the next call; NULL: it answers. */
const char *heartbeat_why_not(struct heartbeat *h);
int64_t heartbeat_silent_s(const struct heartbeat *h); /* 0: it answers */
/* What the broker said is wrong on its side; NULL: nothing. */
const char *heartbeat_problem(const struct heartbeat *h);
/* Lines of the log that the broker had to drop, as of its last ping. */
uint32_t heartbeat_dropped(const struct heartbeat *h);
uint64_t heartbeat_memory(const struct heartbeat *h);   /* the broker's, bytes; 0: not told yet */
unsigned heartbeat_restarts(const struct heartbeat *h); /* workers that it had before this one */
