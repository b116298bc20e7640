/* place.h - where the programs hang: one cgroup above all pods; and which cgroups can be a pod's.
 */
#pragma once
#include "common/err.h"
#include "ebpf/redirect.h"
#include <stdint.h>

enum { REDIRECT_TREE_DEPTH = 32 };

struct redirect_top {
	char *path;                        /* absolute */
	int fd, level;                     /* how far below the host's root that is */
	uint64_t own[REDIRECT_TREE_DEPTH]; /* cgroups that this process is in */
};

/* `root` is where the host's cgroup v2 is mounted. */
int redirect_place_open(struct redirect_top *t, const char *root, const char *path, struct err *e);
void redirect_place_close(struct redirect_top *t);
/* Further up, to the cgroup with that id; it is not above: nothing. */
int redirect_place_climb(struct redirect_top *t, uint64_t id, struct err *e);
/* A cgroup that was removed and made anew, as a slice is whose last pod went, is another one under
 * that name.  1: it was, and is open now. */
int redirect_place_follow(struct redirect_top *t, struct err *e);

/* Below the cgroup where the programs hang, and near enough to be seen by them; neither agentd's
 * nor above it.  Fills in the ids of the cgroups from this one up, without the top's. */
int redirect_place_check(
    const struct redirect_top *t, int cgroup, uint64_t above[REDIRECT_DEPTH], struct err *e);
