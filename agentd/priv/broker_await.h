/* broker_await.h - until a directory exists.
 *
 * The deepest of its parents that exists is watched (inotify); the look comes after the watch, so a
 * directory made in between is not missed.  Nothing runs while nothing happens.
 */
#pragma once
#include "broker_log.h"
#include "broker_loop.h"
#include <limits.h>

typedef void (*broker_await_there)(void *ctx, int dir);

/* Embed it zeroed; stays where it is while it waits. */
struct broker_await {
	struct broker_watch watch;
	int epoll;
	int top;             /* the caller's; `path` is below it and never leads out of it */
	char path[PATH_MAX]; /* "kubepods.slice/.../pod1" */
	broker_await_there there;
	void *ctx;
};
/* The directory if it is there now, the caller's.  -1: EINPROGRESS, and `there` runs once, later,
 * with a descriptor that is its own; or another reason. */
int broker_await_start(struct broker_await *a, int epoll, struct broker_why *w);
void broker_await_end(struct broker_await *a); /* not waiting: nothing */

/* The directory, or -1 with errno; no component is a symbolic link. */
int broker_await_open(int top, const char *path);
