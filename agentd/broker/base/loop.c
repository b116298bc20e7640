/* loop.c - one event for each wait, so that no handler can meet a watch that another one
 * has just freed.  epoll hands ready fds out in turn, so nobody starves. */
#include "loop.h"
#include "common/log.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/timerfd.h>
#include <unistd.h>

LOG_SCOPE("broker");

int broker_loop_new(void)
{
	return epoll_create1(EPOLL_CLOEXEC);
}

int broker_watch_start(int epoll, struct broker_watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	return epoll_ctl(epoll, EPOLL_CTL_ADD, w->fd, &ev);
}

void broker_watch_want(int epoll, struct broker_watch *w, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.ptr = w};

	if (epoll_ctl(epoll, EPOLL_CTL_MOD, w->fd, &ev))
		abort(); /* it was added, so only a bug gets here */
}

void broker_watch_end(int epoll, struct broker_watch *w)
{
	epoll_ctl(epoll, EPOLL_CTL_DEL, w->fd, NULL);
}

int broker_notices_add(int inotify, const char *path, uint32_t events)
{
	static bool said;
	int wd = inotify_add_watch(inotify, path, events);

	if (wd < 0 && errno == ENOSPC && !said) {
		said = true;
		log_error(NULL,
		    "root has no inotify watch left: agentd may miss cgroups of new pods and "
		    "changes of files; raise the sysctl fs.inotify.max_user_watches");
	}
	return wd;
}

void broker_loop_turn(int epoll, int timeout_ms)
{
	struct epoll_event ev;
	int n = epoll_wait(epoll, &ev, 1, timeout_ms);

	if (n < 0 && errno != EINTR)
		abort();
	if (n == 1) {
		struct broker_watch *w = ev.data.ptr;
		w->ready(w->ctx, ev.events);
	}
}

static void on_expired(void *ctx, uint32_t events)
{
	struct broker_timer *t = ctx;
	uint64_t times;

	(void)events;
	if (read(t->watch.fd, &times, sizeof(times)) != sizeof(times))
		return; /* it was set anew meanwhile */
	t->set = false;
	t->due(t->ctx);
}

int broker_timer_open(struct broker_timer *t, int epoll, void (*due)(void *ctx), void *ctx)
{
	*t = (struct broker_timer){.epoll = epoll, .due = due, .ctx = ctx};
	t->watch = (struct broker_watch){.ready = on_expired, .ctx = t};
	t->watch.fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (t->watch.fd < 0)
		return -1;
	if (broker_watch_start(epoll, &t->watch, EPOLLIN)) {
		close(t->watch.fd);
		t->watch.fd = -1;
		return -1;
	}
	return 0;
}

/* A time of zero would disarm it. */
void broker_timer_set(struct broker_timer *t, int64_t ms)
{
	struct itimerspec at = {.it_value = {.tv_sec = 0}};

	if (ms >= 0) {
		at.it_value.tv_sec = ms / 1000;
		at.it_value.tv_nsec = ms % 1000 * 1000000 + (ms == 0);
	}
	t->set = ms >= 0;
	if (timerfd_settime(t->watch.fd, 0, &at, NULL))
		abort();
}

bool broker_timer_is_set(const struct broker_timer *t)
{
	return t->set;
}

void broker_timer_close(struct broker_timer *t)
{
	if (t->watch.fd < 0)
		return;
	broker_watch_end(t->epoll, &t->watch);
	close(t->watch.fd);
	t->watch.fd = -1;
}
