/* portion.h - how much of one connection grpc reads at a time (grpc-core.md 2).
 *
 * grpc reads a connection until nothing is left in it.  Where the client writes as fast that is a
 * whole window, a megabyte: 2 to 6 ms in which its thread sees no other connection, and ten such
 * clients come before anybody's next step.  So after a portion grpc is told that there is nothing,
 * and epoll to look again: it reports the connection behind all others that are ready.
 *
 * Where the descriptor's epoll is not known everything is one portion.  The caller (guard.c) locks.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/types.h>

enum { RPC_PORTION = 32 << 10 }; /* bytes, and what the last read has beyond */

struct rpc_portion { /* embed it zeroed */
	bool polled; /* `epoll` has the descriptor, and reports `event` */
	int epoll;
	struct epoll_event event;
	int64_t taken; /* bytes of this portion */
};

void rpc_portion_polled(struct rpc_portion *p, int epoll, const struct epoll_event *event);
/* What a read said: bytes, or -1: there is nothing now, so the next portion begins. */
void rpc_portion_read(struct rpc_portion *p, ssize_t n);
bool rpc_portion_is_over(const struct rpc_portion *p);
/* The next portion begins when `fd` is reported again.  False: it will not be; read on. */
bool rpc_portion_next(struct rpc_portion *p, int fd);
