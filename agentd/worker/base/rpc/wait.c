/* wait.c - libevent calls epoll_wait() -> grpc_completion_queue_next() -> grpc calls epoll_wait(),
 * on its own set, which has libevent's -> the kernel's answer.
 *   An event of grpc's: it reads, and finishes operations; what is finished is fetched.
 *   libevent's set has something: grpc is not told, but an echo ends its wait.
 * -> libevent is told what the kernel has for it, and, if the runtime has something to do, that
 * `wake_fd` is readable, in libevent's own words for it.
 */
#include "wait.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Thread_local struct {
	struct rpc_wait *wait;   /* NULL: this thread has none */
	int loops, grpcs;        /* epoll sets; -1: not seen yet */
	struct epoll_event wake; /* what libevent wants to hear of `wake_fd` */
	unsigned calls;          /* of epoll_wait() */
	bool inside;             /* grpc */
	bool looked;             /* the kernel was asked, in this wait */
	bool loop_ready;         /* libevent's set has something */
} here = {.loops = -1, .grpcs = -1};

static char loops_mark; /* its address: libevent's set, inside grpc's */

static int ask_kernel(int epoll, struct epoll_event *events, int max, int ms)
{
	return (int)syscall(SYS_epoll_pwait, epoll, events, max, ms, NULL, 0);
}

/* --- inside: grpc's own --- */

static void see_set(int epoll)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &loops_mark};

	if (here.grpcs == epoll || here.loops < 0)
		return;
	here.grpcs = epoll;
	if (syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, here.loops, &event))
		abort(); /* nobody would hear of anything but grpc */
}

/* Leaves what is grpc's. */
static int take_mark(struct epoll_event *events, int n)
{
	int left = 0;

	for (int i = 0; i < n; i++)
		if (events[i].data.ptr == &loops_mark)
			here.loop_ready = true;
		else
			events[left++] = events[i];
	return n < 0 ? n : left;
}

/* At most so many of grpc's before libevent has its turn again: each may be a portion (portion.h).
 */
enum { EVENTS_AT_ONCE = 16 };

static int sleep_in_grpc(int epoll, struct epoll_event *events, int max, int ms)
{
	int n = 0;

	if (max > EVENTS_AT_ONCE)
		max = EVENTS_AT_ONCE;
	see_set(epoll);
	if (!here.looked || (ms != 0 && !here.loop_ready && !here.wait->due))
		n = take_mark(events, ask_kernel(epoll, events, max, ms));
	here.looked = true;
	if (ms != 0 && (here.loop_ready || here.wait->due))
		here.wait->stir(here.wait);
	return n;
}

/* --- outside: libevent's --- */

/* Leaves what is not `wake_fd`'s. */
static int take_wake(struct epoll_event *events, int n)
{
	eventfd_t ignored;
	int left = 0;

	for (int i = 0; i < n; i++)
		if (events[i].data.u64 != here.wake.data.u64) {
			events[left++] = events[i];
		} else {
			eventfd_read(here.wait->wake_fd, &ignored);
			here.wait->due = true;
		}
	return n < 0 ? n : left;
}

static int sleep_in_loop(struct epoll_event *events, int max, int ms)
{
	struct rpc_wait *w = here.wait;
	int n = 0;

	here.inside = true;
	here.looked = here.loop_ready = false;
	w->sleep(w, w->due ? 0 : ms);
	here.inside = false;
	if (here.loop_ready)
		n = take_wake(events, ask_kernel(here.loops, events, max - 1, 0));
	if (n >= 0 && w->due)
		events[n++] = here.wake;
	return n;
}

/* Weak: tests of what sleeps have one of their own. */
__attribute__((visibility("default"), weak)) int epoll_wait(
    int epoll, struct epoll_event *events, int max, int ms)
{
	here.calls++;
	if (here.inside)
		return sleep_in_grpc(epoll, events, max, ms);
	if (here.wait && epoll == here.loops)
		return sleep_in_loop(events, max, ms);
	return take_mark(events, ask_kernel(epoll, events, max, ms));
}

/* --- life --- */

unsigned rpc_wait_calls(void)
{
	return here.calls;
}

void rpc_wait_begin(struct rpc_wait *w)
{
	if (here.wait)
		abort();
	here.wait = w;
}

void rpc_wait_end(struct rpc_wait *w)
{
	if (here.wait != w)
		abort();
	if (here.grpcs >= 0)
		syscall(SYS_epoll_ctl, here.grpcs, EPOLL_CTL_DEL, here.loops, NULL);
	here.wait = NULL;
	here.loops = here.grpcs = -1;
}

void rpc_wait_tell(int eventfd)
{
	if (here.wait)
		here.wait->due = true;
	else
		eventfd_write(eventfd, 1);
}

void rpc_wait_added(int epoll, int fd, const struct epoll_event *event)
{
	if (!here.wait || fd != here.wait->wake_fd)
		return;
	here.loops = epoll;
	here.wake = *event;
}
