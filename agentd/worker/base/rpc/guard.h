/* guard.h - what a pod may send, judged before grpc reads it (threats-and-faults.md T8).
 *
 * grpc core 1.51 takes whatever comes: it makes 12 KB of a stream before anybody hears of it, holds
 * a client to its limit of streams only when that client has acknowledged it, and stays with a
 * connection as long as bytes come.  So each HTTP/2 frame costs, and all connections of a server
 * pay from one bucket.  A connection that cannot pay ends: grpc reads an end of file instead of its
 * bytes.  Any thread.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct rpc_guard;               /* of one server */
enum { RPC_GUARD_FRAMES = 20 }; /* that say little, for one request */

/* In requests, at least 50: one pays for two calls, RPC_GUARD_FRAMES, 200 window updates,
 * or some hundred KiB; 0 a second: all is free. */
struct rpc_guard *rpc_guard_new(int64_t per_second, int64_t burst);
/* Its connections are closed, or free from now on. */
void rpc_guard_free(struct rpc_guard **g);
/* Before grpc gets it.  A previous connection with this number is forgotten. */
void rpc_guard_add(struct rpc_guard *g, int fd, ino_t inode);
/* How many connections were ended since the last time. */
unsigned rpc_guard_floods(struct rpc_guard *g);
/* Did anything of this connection come by here?  If not, grpc reads in a way we do not know. */
bool rpc_guard_sees(const struct rpc_guard *g, int fd);
