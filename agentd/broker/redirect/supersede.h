/* supersede.h - the programs that a broker with another REDIRECT_LAYOUT left attached.
 *
 * Its maps cannot be read, but its pins have the same names, and its map_pods the same key.  For
 * each pod it stays in force until ours is; then its entry and its links at the pod's cgroup go,
 * and with a pod that is live its sk_lookup.  What was dialled a moment ago is accepted by its
 * sockops, and Envoy asks its getsockopt for the address: these stay for some seconds.  With the
 * last pod go its links above all pods, and the directory.  Until then both run.  A dial in the
 * moment between our entry and the end of its own is theirs: we see one to Envoy itself, and leave
 * the answer to their getsockopt.
 *
 * An Envoy that runs asks us for what was dialled from the first dial on, so its sockets are found
 * before our entry is there (listeners.h).  Where they are is known when it has connected; until
 * then, and for some seconds at most, its pod stays theirs.
 */
#pragma once
#include "pod.h"
#include "table.h"

/* Ours are attached: a layout that has no pods goes. */
void redirect_supersede(const struct redirect *r);
enum { REDIRECT_LAST_ANSWERS_MS = 5000 };
/* Ours is in force for the pod, or is now also live; and again while p->superseded_ms is set. */
void redirect_supersede_pod(const struct redirect *r, struct redirect_pod_state *p);
enum { REDIRECT_SUPERSEDE_WAIT_MS = 10000 };
/* `netns` is not known, so nothing is done yet with this pod, that is theirs and live; the time
 * begins with the first call. */
bool redirect_supersede_waits(
    const struct redirect *r, struct redirect_pod_state *p, const struct redirect_where *at);
/* Nothing of it stays. */
void redirect_supersede_remove(const struct redirect *r, const struct uuid *pod);
/* Calls `each` for every pod that only another layout has. */
void redirect_supersede_pods(
    const struct redirect *r, void (*each)(void *ctx, const struct uuid *pod), void *ctx);
