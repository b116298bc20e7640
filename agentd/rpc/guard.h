/* guard.h - what a pod may send, judged before grpc reads it (threats-and-faults.md T8).
 *
 * grpc core 1.51 takes whatever comes.  It makes 12 KB of a stream before anybody hears of it.  It
 * holds a client to its limits of streams and headers only when that client has acknowledged them.
 * It stays with a connection as long as bytes come.  So the guard sees both directions:
 *
 *   rules    a header block has a size and a number of fields, a connection a number of streams;
 *   a bucket each HTTP/2 frame and field costs, and all connections of a server pay from one,
 *            and from the pod's share of the node's (share.h);
 *   memory   streams, headers and messages are charged when they come, and given back when they
 *            are gone.  What all servers hold has one budget (budget.h).
 *
 * A connection that breaks a rule, or cannot pay, ends: grpc reads an end of file instead of its
 * bytes.  Who holds most at the edge of the budget loses all its connections.  A
 * connection along which descriptors may come is looked at before it is read.  Any thread.
 */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct rpc_guard;                /* of one server */
enum { RPC_GUARD_FIELDS = 100 }; /* of a header block; Envoy sends ten */

enum rpc_rule {
	RPC_RULE_FRAMES,     /* the bucket is empty */
	RPC_RULE_SHARE,      /* so is the bucket of all pods, and this one is beyond its share */
	RPC_RULE_BLOCK_SIZE, /* of headers */
	RPC_RULE_BLOCK_FIELDS,
	RPC_RULE_BLOCK_SHAPE, /* frames.h */
	RPC_RULE_STREAMS,     /* more than it may have open */
	RPC_RULE_MEMORY,      /* the budget is used up, and this pod holds most */
	RPC_RULE_RIGHTS,      /* descriptors (base/sink.h) */
	RPC_RULE_END
};
const char *rpc_rule_text(enum rpc_rule r); /* "a header block ...", for the log */

struct rpc_guard_options {
	int64_t per_second, burst; /* requests (toll.h); 0 a second: all is free */
	uint32_t block_size;       /* bytes of a header block; 0: no bound */
	unsigned streams;          /* of a connection; 0: no bound */
	size_t message_size;       /* bytes of the largest one */
};
struct rpc_guard *rpc_guard_new(const struct rpc_guard_options *o);
/* Its connections are closed, or free from now on. */
void rpc_guard_free(struct rpc_guard **g);
/* Before grpc gets it.  A previous connection with this number is forgotten. */
void rpc_guard_add(struct rpc_guard *g, int fd, ino_t inode);
void rpc_guard_heard(struct rpc_guard *g, int fd, ino_t inode); /* the server, of one more call */
/* A message of a live call was handed over, and is the owner's; negative: this call is over. */
void rpc_guard_took(struct rpc_guard *g, int fd, ino_t inode, int64_t bytes);
/* What is held for the pod elsewhere: bytes that wait for istiod; negative: less. */
void rpc_guard_charge(struct rpc_guard *g, int64_t more);
/* Bytes that wait for its Envoy: they are shown, and are no reason to cut anybody, for a push comes
 * to many good pods at once. */
void rpc_guard_push(struct rpc_guard *g, int64_t more);
/* Did anything of this connection come by here?  If not, grpc reads in a way we do not know. */
bool rpc_guard_sees(const struct rpc_guard *g, int fd);

struct rpc_guard_news {
	unsigned broken[RPC_RULE_END]; /* connections that were ended for it, since the last time */
	int64_t held;                  /* bytes, now */
	bool left_behind; /* some of it by streams that their client reset: rpc_guard_calm() */
};
/* The server has heard of all calls that came: nothing of those that were reset is left. */
void rpc_guard_calm(struct rpc_guard *g);
/* False: nothing new. */
bool rpc_guard_news(struct rpc_guard *g, struct rpc_guard_news *n);
int64_t rpc_guard_held(struct rpc_guard *g);
/* Written to when any guard has news: a rule was broken, or a pod's holding passed its share, or
 * a doubling of it, or fell below its half.  -1: nobody listens. */
void rpc_guard_tell(int eventfd);
bool rpc_guard_has_news(void);                     /* any of them; once */
void rpc_guard_budget(int64_t share, int64_t all); /* budget.h */
