/* broker_dial.h - sockets in a pod's network namespace, to dial from there (security-rules.md 6).
 *
 * The broker does not see them closed, so it counts what it gave: 64 at once, and 50 a second.
 */
#pragma once
#include "priv/broker/pods/broker_netns.h"

enum { BROKER_DIAL_MAX = 64, BROKER_DIAL_PER_SECOND = 50 };

/* Of one pod; embed it zeroed. */
struct broker_dial {
	int64_t full_ms; /* when all of them may be had again; on the monotonic clock */
};
/* Not connected, not blocking, the caller's.  `netns` -1: not known. */
int broker_dial(struct broker_dial *d, const struct broker_netns_home *home, int netns,
    const struct priv_request *r, struct broker_why *w);
