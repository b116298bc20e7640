/* wait.c - libevent calls epoll_wait() -> grpc_completion_queue_next() -> grpc calls epoll_wait(),
 * on its own set, which has libevent's -> the kernel's answer.
 *   An event of grpc's: it reads, and finishes operations; what is finished is fetched.
 *   libevent's set has something: grpc is not told, but an echo ends its wait.
 * -> libevent is told what the kernel has for it, and, if the runtime has something to do, that
 * `wake_fd` is readable, in libevent's own words for it.
 */
#include "wait_internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

static char loops_mark; /* its address: libevent's set, inside grpc's */

static int ask_kernel(int epoll, struct epoll_event *events, int max, int ms)
{
	return (int)syscall(SYS_epoll_pwait, epoll, events, max, ms, NULL, 0);
}

/* --- inside: grpc's own --- */

static void see_set(int epoll)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = &loops_mark};

	if (rpc_waiter.grpcs == epoll || rpc_waiter.loops < 0)
		return;
	rpc_waiter.grpcs = epoll;
	if (syscall(SYS_epoll_ctl, epoll, EPOLL_CTL_ADD, rpc_waiter.loops, &event))
		abort(); /* nobody would hear of anything but grpc */
}

/* Leaves what is grpc's. */
static int take_mark(struct epoll_event *events, int n)
{
	int left = 0;

	for (int i = 0; i < n; i++)
		if (events[i].data.ptr == &loops_mark)
			rpc_waiter.loop_ready = true;
		else
			events[left++] = events[i];
	return n < 0 ? n : left;
}

/* At most so many of grpc's before libevent has its turn again: each may be a portion (portion.h).
 */
enum { EVENTS_AT_ONCE = 16 };

/* The kernel is asked once in each wait, whatever is known already. */
static int sleep_in_grpc(int epoll, struct epoll_event *events, int max, int ms)
{
	bool over = rpc_waiter.loop_ready || rpc_waiter.wait->due;
	int n = 0;

	if (max > EVENTS_AT_ONCE)
		max = EVENTS_AT_ONCE;
	see_set(epoll);
	if (!rpc_waiter.looked || (ms != 0 && !over))
		n = take_mark(events, ask_kernel(epoll, events, max, over ? 0 : ms));
	rpc_waiter.looked = true;
	if (ms != 0 && (rpc_waiter.loop_ready || rpc_waiter.wait->due))
		rpc_waiter.wait->stir(rpc_waiter.wait);
	return n;
}

/* --- outside: libevent's --- */

/* Leaves what is not `wake_fd`'s. */
static int take_wake(struct epoll_event *events, int n)
{
	eventfd_t ignored;
	int left = 0;

	for (int i = 0; i < n; i++)
		if (events[i].data.u64 != rpc_waiter.wake.data.u64) {
			events[left++] = events[i];
		} else {
			eventfd_read(rpc_waiter.wait->wake_fd, &ignored);
			rpc_waiter.wait->due = true;
		}
	return n < 0 ? n : left;
}

static int sleep_in_loop(struct epoll_event *events, int max, int ms)
{
	struct rpc_wait *w = rpc_waiter.wait;
	int n = 0;

	rpc_waiter.inside = true;
	rpc_waiter.looked = rpc_waiter.loop_ready = false;
	w->sleep(w, w->due ? 0 : ms);
	rpc_waiter.inside = false;
	if (rpc_waiter.loop_ready)
		n = take_wake(events, ask_kernel(rpc_waiter.loops, events, max - 1, 0));
	if (n >= 0 && w->due)
		events[n++] = rpc_waiter.wake;
	return n;
}

__attribute__((visibility("default"))) int epoll_wait(
    int epoll, struct epoll_event *events, int max, int ms)
{
	rpc_waiter.calls++;
	if (rpc_waiter.inside)
		return sleep_in_grpc(epoll, events, max, ms);
	if (rpc_waiter.wait && epoll == rpc_waiter.loops)
		return sleep_in_loop(events, max, ms);
	return take_mark(events, ask_kernel(epoll, events, max, ms));
}

/* --- life --- */

unsigned rpc_wait_calls(void)
{
	return rpc_waiter.calls;
}

void rpc_wait_begin(struct rpc_wait *w)
{
	if (rpc_waiter.wait)
		abort();
	rpc_waiter.wait = w;
}

void rpc_wait_end(struct rpc_wait *w)
{
	if (rpc_waiter.wait != w)
		abort();
	if (rpc_waiter.grpcs >= 0)
		syscall(SYS_epoll_ctl, rpc_waiter.grpcs, EPOLL_CTL_DEL, rpc_waiter.loops, NULL);
	rpc_waiter.wait = NULL;
	rpc_waiter.loops = rpc_waiter.grpcs = -1;
}
