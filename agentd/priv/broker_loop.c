/* broker_loop.c - one event for each wait, so that no handler can meet a watch that another one
 * has just freed.  epoll hands ready fds out in turn, so nobody starves. */
#include "broker_loop.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

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
