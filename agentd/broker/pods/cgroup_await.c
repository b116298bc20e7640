/* cgroup_await.c - parents are watched -> a notice with the name of something in one of them ->
 * whoever has that name in its path looks: watches what is new, and tells if its directory is.
 */
#include "cgroup_await.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <utlist.h>

static int open_path(int top, const char *path)
{
	struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};

	return (int)syscall(SYS_openat2, top, *path ? path : ".", &how, sizeof(how));
}

static const char *after(const char *path)
{
	return path + strlen(path) + 1;
}

int cgroup_await_open(const struct cgroup_await *a)
{
	int dir = -1;

	for (const char *p = a->paths; p && *p && dir < 0; p = after(p))
		dir = open_path(a->all->top, p);
	return dir;
}

/* Inotify takes no descriptor but a path of one. */
static int watch_directory(const struct cgroup_await *a, int dir)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", dir);
	return broker_notices_add(a->all->watch.fd, path, IN_CREATE | IN_MOVED_TO);
}

/* From the top down: one that goes and comes back is seen from above. */
static void watch_parents(const struct cgroup_await *a, const char *path)
{
	char part[PATH_MAX];

	for (size_t n = 0;;) {
		snprintf(part, sizeof(part), "%.*s", (int)n, path);
		auto_close int dir = open_path(a->all->top, part);
		if (dir < 0 || watch_directory(a, dir) < 0)
			return;
		n += path[n] == '/';
		n += strcspn(path + n, "/");
		if (!path[n])
			return; /* the directory itself */
	}
}

/* -1: there is none, or the one we know. */
static int find_new(struct cgroup_await *a)
{
	struct stat st;

	for (const char *p = a->paths; *p; p = after(p))
		watch_parents(a, p);
	auto_close int dir = cgroup_await_open(a);
	if (dir < 0 || fstat(dir, &st) || st.st_ino == a->ino)
		return -1;
	a->ino = st.st_ino;
	return take_fd(dir);
}

static bool concerns(const struct cgroup_await *a, const char *name)
{
	for (const char *p = a->paths; *p; p = after(p))
		if (strstr(p, name))
			return true;
	return false;
}

/* `name` NULL: nobody knows what changed. */
static void look(struct cgroup_await *a, const char *name)
{
	int dir = name && !concerns(a, name) ? -1 : find_new(a);

	if (dir >= 0)
		a->there(a->ctx, dir);
}

static void look_all(struct cgroup_awaits *all, const char *name)
{
	struct cgroup_await *a, *tmp;

	DL_FOREACH_SAFE (all->list, a, tmp)
		look(a, name);
}

static void on_change(void *ctx, uint32_t events)
{
	struct cgroup_awaits *all = ctx;
	char buffer[4096] __attribute__((aligned(8)));
	const struct inotify_event *ev;
	ssize_t n = read(all->watch.fd, buffer, sizeof(buffer));

	(void)events;
	for (ssize_t at = 0; at < n; at += (ssize_t)(sizeof(*ev) + ev->len)) {
		ev = (const struct inotify_event *)(const void *)(buffer + at);
		if (ev->len || ev->mask & IN_Q_OVERFLOW)
			look_all(all, ev->len ? ev->name : NULL);
	}
}

int cgroup_awaits_open(struct cgroup_awaits *all, int epoll, int top, struct err *e)
{
	auto_close int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	if (fd < 0)
		return err_sys(e, "inotify");
	all->epoll = epoll;
	all->top = top;
	all->watch = (struct broker_watch){.fd = fd, .ctx = all};
	if (broker_watch_start(epoll, &all->watch, EPOLLIN))
		return err_sys(e, "watch for cgroups");
	all->watch.ready = on_change;
	take_fd(fd);
	return 0;
}

void cgroup_awaits_close(struct cgroup_awaits *all)
{
	if (!all->watch.ready)
		return;
	broker_watch_end(all->epoll, &all->watch);
	close(all->watch.fd);
	all->watch.ready = NULL;
}

static char *copy(const char *paths)
{
	const char *end = paths;
	char *out;

	while (*end)
		end = after(end);
	out = mem_zalloc((size_t)(end - paths) + 1);
	memcpy(out, paths, (size_t)(end - paths));
	return out;
}

int cgroup_await_start(struct cgroup_await *a, const char *paths, struct err *e)
{
	DL_APPEND(a->all->list, a);
	a->paths = copy(paths);
	a->ino = 0;
	int dir = find_new(a);
	if (dir < 0)
		return err_set(e, EINPROGRESS, "cgroup %.120s does not exist yet", a->paths);
	return dir;
}

void cgroup_await_end(struct cgroup_await *a)
{
	if (a->prev)
		DL_DELETE(a->all->list, a);
	a->prev = NULL;
	free(take(a->paths));
}
