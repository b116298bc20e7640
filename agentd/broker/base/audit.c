/* audit.c - a notice: no more are heard, and a timer is set -> due: notices are forgotten
 * first, so that none is lost that comes while we look; what we put back makes us look once more.
 */
#include "audit.h"
#include "common/err.h"
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { SOON_MS = 100, AGAIN_MS = 1000, REGULARLY_MS = 60000 };

static void on_notice(void *ctx, uint32_t events)
{
	struct broker_audit *a = ctx;

	(void)events;
	broker_watch_want(a->epoll, &a->watch, 0);
	broker_timer_set(&a->timer, SOON_MS);
}

static void forget_notices(const struct broker_audit *a)
{
	char drop[4096];

	while (read(a->watch.fd, drop, sizeof(drop)) > 0)
		;
}

static void on_due(void *ctx)
{
	struct broker_audit *a = ctx;
	bool settled;

	forget_notices(a);
	broker_watch_want(a->epoll, &a->watch, EPOLLIN);
	settled = a->due(a->ctx);
	broker_timer_set(&a->timer, settled ? REGULARLY_MS : a->again_ms);
	if (settled)
		a->again_ms = AGAIN_MS;
	else if (a->again_ms < a->again_max_ms)
		a->again_ms *= 2;
}

void broker_audit_soon(struct broker_audit *a)
{
	if (a->watch.ready)
		broker_timer_set(&a->timer, SOON_MS);
}

int broker_audit_open(struct broker_audit *a, struct err *e)
{
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	if (fd < 0)
		return err_sys(e, "inotify");
	a->again_ms = AGAIN_MS;
	a->watch = (struct broker_watch){.fd = fd, .ready = on_notice, .ctx = a};
	if (broker_timer_open(&a->timer, a->epoll, on_due, a)) {
		close(fd);
		a->watch.ready = NULL;
		return err_sys(e, "a timer");
	}
	if (broker_watch_start(a->epoll, &a->watch, EPOLLIN)) {
		err_sys(e, "watch the pins");
		broker_audit_close(a);
		return -1;
	}
	broker_timer_set(&a->timer, SOON_MS);
	return 0;
}

void broker_audit_directory(struct broker_audit *a, const char *path)
{
	const uint32_t all = IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MOVED_FROM | IN_MOVED_TO;

	if (a->watch.ready)
		broker_notices_add(a->watch.fd, path, (a->events ? a->events : all) | IN_ONLYDIR);
}

void broker_audit_own_begins(struct broker_audit *a)
{
	int pending = 0;

	a->quiet = a->watch.ready && !ioctl(a->watch.fd, FIONREAD, &pending) && !pending;
}

void broker_audit_own_ends(struct broker_audit *a)
{
	if (a->quiet)
		forget_notices(a);
	a->quiet = false;
}

void broker_audit_close(struct broker_audit *a)
{
	if (!a->watch.ready)
		return;
	broker_timer_close(&a->timer);
	broker_watch_end(a->epoll, &a->watch);
	close(a->watch.fd);
	a->watch.ready = NULL;
}
