/* heartbeat.h - does the broker answer?
 *
 * It is asked every 2 s for nothing but an answer.  After 6 s of silence `why_not` says so, and it
 * is logged.  Pods that are served stay served; new ones, and new connections of Envoys, wait.
 * Only whoever runs agentd can help: a broker that waits in the kernel ends by no signal.
 */
#pragma once
#include <stdint.h>

struct heartbeat;
struct link;
struct loop;

struct heartbeat *heartbeat_new(struct loop *l, struct link *p);
void heartbeat_free(struct heartbeat **h);
/* "the broker has not answered for 7 s", valid until the next call; NULL: it answers. */
const char *heartbeat_why_not(struct heartbeat *h);
int64_t heartbeat_silent_s(const struct heartbeat *h); /* 0: it answers */
/* What the broker said is wrong on its side; NULL: nothing. */
const char *heartbeat_problem(const struct heartbeat *h);
/* Lines of the log that the broker had to drop, as of its last answer. */
uint32_t heartbeat_dropped(const struct heartbeat *h);
