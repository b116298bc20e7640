/* cgroup.h - was a pod's cgroup empty, since its network namespace was learned?
 *
 * Root may name the cgroup in <manifests>/<uid>/cgroup: one line, a path below the cgroup root;
 * else it is looked for by the pod's uid where the kubelet would make it.  A sandbox that starts
 * again under the same uid (a rebooted node) leaves it empty in between, or makes another one.  A
 * process that only entered another namespace does not.  The kernel gives notice: nothing runs
 * while nothing happens.  It waits 10 ms between two notices, so a shorter emptiness may be missed:
 * the pod is then refused, never the other way round.
 */
#pragma once
#include "broker/base/loop.h"
#include "broker/base/options.h"
#include "common/err.h"
#include "kubepods.h"
#include <limits.h>

/* Never both of the latter: who is seen to have left is not waited for. */
enum pod_cgroup_state {
	POD_CGROUP_UNKNOWN, /* nobody looks, or nobody can */
	POD_CGROUP_WATCHED, /* and not empty since */
	POD_CGROUP_EMPTIED,
};

/* Embed it with `epoll`, `on_emptied` and `ctx`; stays where it is while it is watched. */
struct pod_cgroup {
	int epoll;
	void (*on_emptied)(void *ctx);
	void *ctx;
	struct broker_watch watch; /* of its cgroup.events */
	uint64_t id;               /* of the cgroup that is or was watched: its directory's inode */
	enum pod_cgroup_state state;
};

/* Where cgroup v2 is mounted, --cgroup-root or else as mountinfo says; -1: nowhere. */
int pod_cgroup_root(const struct broker_options *o, char out[PATH_MAX]);

/* The cgroup above all pods whose traffic is redirected, as an absolute path: --redirect-cgroup, or
 * else the root; without manifests, which can name cgroups anywhere, the kubelet's tree.  -1:
 * cgroup v2 is nowhere. */
enum { POD_CGROUP_TOP_SIZE = 2 * PATH_MAX };
int pod_cgroup_top(const struct broker_options *o, char out[POD_CGROUP_TOP_SIZE]);

/* Where the pod's cgroup can be: what root named, or else its places in the kubelet's tree
 * (kubepods.h).  -1 with a code: ENOENT nothing is named, and there is no such tree. */
int pod_cgroup_paths(
    const struct broker_options *o, const char *uid, char out[KUBEPODS_SIZE], struct err *e);

/* The directory of the pod's cgroup.  -1 with a code: ENOENT as above, ENODEV it does not exist,
 * EINVAL the named path is odd. */
int pod_cgroup_open(const struct broker_options *o, const char *uid, struct err *e);

/* The same; one that root named and that is not there is made, as a service manager will do that
 * comes later. */
int pod_cgroup_make(const struct broker_options *o, const char *uid, struct err *e);

/* Does any process run in it, or below?  What cannot be read counts as none. */
bool pod_cgroup_is_populated(int dir);

/* Is it inside of a tree of the kubelet's?  `path` as in /proc/PID/cgroup, or any part of it. */
bool pod_cgroup_is_pods(const char *path);

/* Begins, or begins again: not emptied.  `dir` stays the caller's.  -1: not watched. */
int pod_cgroup_watch(struct pod_cgroup *c, int dir, struct err *e);
/* Goes on with the one that an earlier broker watched; emptied if that is not there any more. */
void pod_cgroup_resume(struct pod_cgroup *c, int dir, uint64_t id);
bool pod_cgroup_emptied(struct pod_cgroup *c); /* since then */
void pod_cgroup_end(struct pod_cgroup *c);
