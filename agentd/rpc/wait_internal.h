/* wait_internal.h - shared by wait.c and tell.c only.
 */
#pragma once
#include "wait.h"

#include <sys/epoll.h>

struct rpc_waiter {              /* of a thread */
	struct rpc_wait *wait;   /* NULL: it has none */
	int loops, grpcs;        /* epoll sets; -1: not seen yet */
	struct epoll_event wake; /* what libevent wants to hear of `wake_fd` */
	unsigned calls;          /* of epoll_wait() */
	bool inside;             /* grpc */
	bool looked;             /* the kernel was asked, in this wait */
	bool loop_ready;         /* libevent's set has something */
};
extern _Thread_local struct rpc_waiter rpc_waiter;
