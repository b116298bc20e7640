/* redirect_place.h - which cgroups can be a pod's. */
#pragma once
#include "common/err.h"
#include "pod.h"

/* How many levels below the root of cgroup v2 the directory is, and the ids of the cgroups on the
 * way up, its own first; -1: it is not the host's tree, or too deep. */
enum { REDIRECT_TREE_DEPTH = 32 };
int redirect_place_above(int cgroup, uint64_t ids[REDIRECT_TREE_DEPTH]);

/* Below the cgroup where the programs hang, and near enough to be seen by them; neither agentd's
 * nor above it; no other pod's, and none of one holds the other.  Fills in p->above. */
int redirect_place_check(
    const struct redirect *r, struct redirect_pod_state *p, int cgroup, struct err *e);
/* Where this process is: never a pod's. */
void redirect_place_own(struct redirect *r);
