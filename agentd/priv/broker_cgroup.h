/* broker_cgroup.h - was a pod's cgroup empty, since its network namespace was learned?
 *
 * Root may name the cgroup in <manifests>/<uid>/cgroup: one line, a path below the cgroup root.  A
 * sandbox that starts anew under the same uid (a rebooted node) leaves it empty in between, or
 * makes another one; somebody who only came into another namespace does not.  Told by the kernel
 * when it happens: nothing runs while nothing happens.  Empty for less than the kernel's own 10 ms
 * between two such notices may be missed: the pod is then refused, never the other way round.
 */
#pragma once
#include "broker_loop.h"
#include "broker_options.h"
#include <limits.h>

/* Embed it zeroed; stays where it is while `watched`. */
struct broker_cgroup {
	struct broker_watch watch; /* of its cgroup.events */
	int epoll;
	bool watched;
	bool emptied;
};

/* Where cgroup v2 is mounted, --cgroup-root or else as mountinfo says; -1: nowhere. */
int broker_cgroup_root(const struct broker_options *o, char out[PATH_MAX]);

/* The pod's cgroup as root named it: a path below the cgroup root.  -1: ENOENT when none is named.
 */
int broker_cgroup_name(
    const struct broker_options *o, const char *uid, char out[PATH_MAX], struct broker_why *w);

/* Begins, or begins anew: not emptied.  -1: not watched, ENOENT when no cgroup is named. */
int broker_cgroup_watch(struct broker_cgroup *c, int epoll, const struct broker_options *o,
    const char *uid, struct broker_why *w);
bool broker_cgroup_emptied(struct broker_cgroup *c); /* since then */
void broker_cgroup_end(struct broker_cgroup *c);
