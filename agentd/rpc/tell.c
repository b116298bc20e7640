/* tell.c - what guard.c and tap.c tell the thread that sleeps (wait.h).  A file of its own:
 * programs that link those sleep as they always did.
 */
#include "wait_internal.h"

#include <sys/eventfd.h>

_Thread_local struct rpc_waiter rpc_waiter = {.loops = -1, .grpcs = -1};

void rpc_wait_tell(int eventfd)
{
	if (rpc_waiter.wait)
		rpc_waiter.wait->due = true;
	else
		eventfd_write(eventfd, 1);
}

void rpc_wait_added(int epoll, int fd, const struct epoll_event *event)
{
	if (!rpc_waiter.wait || fd != rpc_waiter.wait->wake_fd)
		return;
	rpc_waiter.loops = epoll;
	rpc_waiter.wake = *event;
}
