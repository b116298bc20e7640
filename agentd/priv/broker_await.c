/* broker_await.c - see broker_await.h. */
#include "broker_await.h"
#include "../base/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>

int broker_await_open(int top, const char *path)
{
	struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
	    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};

	return (int)syscall(SYS_openat2, top, *path ? path : ".", &how, sizeof(how));
}

/* Inotify takes no descriptor but a path of one. */
static int watch_directory(const struct broker_await *a, int dir)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", dir);
	return inotify_add_watch(a->watch.fd, path,
	    IN_CREATE | IN_MOVED_TO | IN_DELETE_SELF | IN_MOVE_SELF | IN_MASK_ADD);
}

/* From the top down: each parent that exists gets a watch, so one that goes and comes back is seen
 * from above. */
static void watch_parents(const struct broker_await *a)
{
	char part[PATH_MAX];

	for (size_t n = 0;;) {
		snprintf(part, sizeof(part), "%.*s", (int)n, a->path);
		auto_close int dir = broker_await_open(a->top, part);
		if (dir < 0 || watch_directory(a, dir) < 0 || !a->path[n])
			return;
		n += a->path[n] == '/';
		n += strcspn(a->path + n, "/");
		if (!a->path[n])
			return; /* the directory itself */
	}
}

static void look(struct broker_await *a)
{
	watch_parents(a);
	int dir = broker_await_open(a->top, a->path);
	if (dir < 0)
		return;
	broker_await_end(a);
	a->there(a->ctx, dir);
}

static void on_change(void *ctx, uint32_t events)
{
	struct broker_await *a = ctx;
	char buffer[4096] __attribute__((aligned(8)));

	(void)events;
	while (read(a->watch.fd, buffer, sizeof(buffer)) > 0)
		; /* whatever it was, we look ourselves */
	look(a);
}

int broker_await_start(struct broker_await *a, int epoll, struct broker_why *w)
{
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	if (fd < 0)
		return broker_refuse_sys(w, "inotify");
	a->epoll = epoll;
	a->watch = (struct broker_watch){.fd = fd, .ready = on_change, .ctx = a};
	if (broker_watch_start(epoll, &a->watch, EPOLLIN)) {
		a->watch.ready = NULL;
		close(fd);
		return broker_refuse_sys(w, "watch for a cgroup");
	}
	watch_parents(a);
	int dir = broker_await_open(a->top, a->path);
	if (dir < 0)
		return broker_refuse(w, EINPROGRESS, "cgroup %.80s does not exist yet", a->path);
	broker_await_end(a);
	return dir;
}

void broker_await_end(struct broker_await *a)
{
	if (!a->watch.ready)
		return;
	broker_watch_end(a->epoll, &a->watch);
	close(a->watch.fd);
	a->watch.ready = NULL;
}
