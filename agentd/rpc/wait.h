/* wait.h - where the loop's thread sleeps: inside grpc.
 *
 * grpc reads its sockets only while somebody is inside grpc_completion_queue_next(), libevent only
 * while it is inside epoll_wait() (grpc-core.md 2).  A thread for each would wake the other with
 * every operation.  So libevent's epoll_wait() is ours, as grpc's recvmsg() is (guard.c): there the
 * thread goes into grpc, and the set that grpc sleeps on has libevent's in it.  One thread, nothing
 * handed over, no lock.  A thread has at most one runtime.
 */
#pragma once
#include <stdbool.h>

struct epoll_event;

struct rpc_wait {    /* of a runtime; its caller fills it in */
	int wake_fd; /* an eventfd: readable, for the loop, when the runtime is to have a turn */
	bool due;    /* it is; set by the loop's thread */
	/* In grpc, until something is `due`, or for `ms`; -1: for ever. */
	void (*sleep)(struct rpc_wait *w, int ms);
	void (*stir)(struct rpc_wait *w); /* ends that, from inside of it */
};

/* From here on the sleep of the loop that watches `wake_fd` is w->sleep(), on this thread.  Begun
 * before that descriptor is watched, ended after. */
void rpc_wait_begin(struct rpc_wait *w);
void rpc_wait_end(struct rpc_wait *w);

/* The runtime should have a turn.  Any thread: another one than the loop's writes to the eventfd.
 */
void rpc_wait_tell(int eventfd);

/* How often this thread called epoll_wait().  It is for whoever has to know that it is ours. */
unsigned rpc_wait_calls(void);

/* guard.c: a descriptor was added to an epoll set. */
void rpc_wait_added(int epoll, int fd, const struct epoll_event *event);
