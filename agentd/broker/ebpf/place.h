/* place.h - where the programs hang: one cgroup above all pods; and which cgroups can be a pod's.
 *
 * The programs ask for a cgroup by its level below the host's root.  In a node that is itself a
 * container that root cannot be seen, and every `..` ends at the mount.  So the level is measured:
 * we dial once, and a program says which cgroups it saw us in, level by level.
 */
#pragma once
#include "common/err.h"
#include "ebpf/redirect.h"
#include <stdint.h>

struct redirect_top {
	char *path; /* absolute */
	int fd;
	int level;                         /* how far below the host's root, measured */
	uint64_t own[REDIRECT_TREE_DEPTH]; /* cgroups that this process is in, the root first */
};

/* -1: close it all the same.  EXDEV: its level cannot be measured, so no program there would find
 * a pod. */
int ebpf_place_open(struct redirect_top *t, const char *path, struct err *e);
void ebpf_place_close(struct redirect_top *t);
/* Climbs to the cgroup with that id; it is not above: nothing. */
int ebpf_place_climb(struct redirect_top *t, uint64_t id, struct err *e);
/* A cgroup that was removed and made again, like a slice whose last pod went, is another one under
 * that name; so is one of another mount.  1: it is another one, and is open now.  EXDEV: at another
 * level. */
int ebpf_place_follow(struct redirect_top *t, struct err *e);

/* How far below the host's root a cgroup of the same tree is; -1: it is none. */
int ebpf_place_level(const struct redirect_top *t, int cgroup);

/* Below the cgroup where the programs hang, and near enough to be seen by them; neither agentd's
 * nor above it.  Fills in the ids of the cgroups from this one up, without the top's. */
int ebpf_place_check(
    const struct redirect_top *t, int cgroup, uint64_t above[REDIRECT_DEPTH], struct err *e);
