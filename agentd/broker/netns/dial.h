/* dial.h - sockets in a pod's network namespace, to dial from there (security-rules.md 6).
 *
 * The broker does not see them closed, so it counts the sockets it gave: 64 at once, and 50 a
 * second.
 */
#pragma once
#include "border/protocol.h"
#include "common/err.h"
#include "netns.h"

enum { NETNS_DIAL_MAX = 64, NETNS_DIAL_PER_SECOND = 50 };

/* Of one pod; embed it zeroed. */
struct netns_dial {
	int64_t full_ms; /* when all of them may be had again; on the monotonic clock */
};
/* Not blocking, the caller's.  Not connected, on a port that cannot be changed; or, of
 * LINK_DIAL_LOOPBACK, on its way to the pod's own loopback: a port from 1024 on, but Envoy's admin
 * (15000).  `netns` -1: not known. */
int netns_dial(struct netns_dial *d, const struct netns_home *home, int netns,
    const struct link_request *r, struct err *e);
