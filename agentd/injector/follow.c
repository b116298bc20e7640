/* follow.c - an event of any kind -> 100 ms later `changed`, which reads what it needs.
 *
 * What the events say is not looked at: a reader compares contents anyway, and an overflow of the
 * queue is an event, too.  A directory that is removed cannot be followed any more, and that is
 * said.
 */
#include "follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"

LOG_SCOPE("files");

enum { BURST_MS = 100, EVENTS = 16 * 1024 };

struct follow {
	struct loop *loop;
	int fd;
	struct loop_fd readable;
	struct loop_timer burst;
	loop_cb changed;
	void *ctx;
};

static void on_burst_over(void *ctx)
{
	struct follow *f = ctx;

	f->changed(f->ctx);
}

static void on_events(void *ctx)
{
	struct follow *f = ctx;
	char events[EVENTS] __attribute__((aligned(8)));
	ssize_t n = read(f->fd, events, sizeof(events));
	const struct inotify_event *event;

	for (ssize_t at = 0; at < n; at += (ssize_t)(sizeof(*event) + event->len)) {
		event = (const struct inotify_event *)(const void *)(events + at);
		if (event->mask & IN_IGNORED)
			log_error(NULL, "a directory of the configuration was removed: "
					"agentd-injector sees no more changes: restart it");
	}
	if (n > 0 && !f->burst.armed)
		loop_timer_in(f->loop, &f->burst, BURST_MS, on_burst_over, f);
}

struct follow *follow_new(struct loop *l, loop_cb changed, void *ctx, struct err *e)
{
	struct follow *f;
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	if (fd < 0) {
		err_sys(e, "inotify");
		return NULL;
	}
	f = mem_zalloc(sizeof(*f));
	*f = (struct follow){.loop = l, .fd = fd, .changed = changed, .ctx = ctx};
	loop_fd_watch(l, &f->readable, fd, LOOP_READ, on_events, f);
	return f;
}

int follow_add(struct follow *f, const char *path, struct err *e)
{
	const char *slash = strrchr(path, '/');
	auto_free char *directory =
	    slash ? mem_dup(path, (size_t)(slash - path) + 2) : mem_strdup(".");

	if (slash)
		directory[slash == path ? 1 : slash - path] = '\0';
	if (inotify_add_watch(f->fd, directory,
		IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR) <
	    0)
		return err_sys(e, "%s", directory);
	return 0;
}

void follow_free(struct follow **follow)
{
	struct follow *f = take(*follow);

	if (!f)
		return;
	loop_fd_stop(&f->readable);
	loop_timer_stop(&f->burst);
	close(f->fd);
	free(f);
}

/* --- reading --- */

static int read_all(int fd, char *out, size_t size, size_t *len)
{
	ssize_t n = 1;

	for (*len = 0; *len < size && n > 0; *len += (size_t)n)
		if ((n = read(fd, out + *len, size - *len)) < 0)
			return -1;
	return 0;
}

char *follow_read(const char *path, size_t *len, struct err *e)
{
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	auto_free char *text = NULL;
	struct stat st;

	if (fd < 0 || fstat(fd, &st)) {
		err_sys(e, "%s", path);
		return NULL;
	}
	if (!S_ISREG(st.st_mode) || st.st_size > FOLLOW_FILE_MAX) {
		err_set(e, ERR_INVALID, "%s: must be a file of %d MiB at most", path,
		    FOLLOW_FILE_MAX >> 20);
		return NULL;
	}
	text = mem_zalloc((size_t)st.st_size + 1);
	if (read_all(fd, text, (size_t)st.st_size, len)) {
		err_sys(e, "%s", path);
		return NULL;
	}
	return take(text);
}
