/* cgroup_await.h - directories that come, go and come back under the same name: pods' cgroups.
 *
 * Each has a few places where it can be, and is in one of them.
 * The parents that exist are watched by one inotify instance for all (a user has 128 by default);
 * the look comes after the watch, so a directory made in between is not missed.  Nothing runs
 * while nothing happens.
 */
#pragma once
#include "broker/base/loop.h"
#include "common/err.h"
#include <sys/types.h>

struct cgroup_await;

/* Embed it zeroed; stays where it is while it is open. */
struct cgroup_awaits {
	struct broker_watch watch;
	int epoll;
	int top; /* the caller's; no path leads out of it */
	struct cgroup_await *list;
};
int cgroup_awaits_open(struct cgroup_awaits *all, int epoll, int top, struct err *e);
void cgroup_awaits_close(struct cgroup_awaits *all); /* not open: nothing */

/* There is a directory, and it is not the previous one: `dir` is the callee's. */
typedef void (*cgroup_await_there)(void *ctx, int dir);

/* Embed it zeroed; stays where it is from _start() to _end(). */
struct cgroup_await {
	struct cgroup_awaits *all;
	char *paths; /* ours: "kubepods.slice/.../pod1", each with its NUL, an empty one at the end
		      */
	cgroup_await_there there;
	void *ctx;
	ino_t ino; /* of the one that was found last */
	struct cgroup_await *prev, *next;
};
/* The directory if it is there now, the caller's.  -1: EINPROGRESS.  `there` runs for each later
 * one.  `paths` as above, the caller's. */
int cgroup_await_start(struct cgroup_await *a, const char *paths, struct err *e);
void cgroup_await_end(struct cgroup_await *a); /* not started: nothing */

/* The directory that is there now, the caller's, or -1; no component is a symbolic link. */
int cgroup_await_open(const struct cgroup_await *a);
