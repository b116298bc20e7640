/* rpc.h - grpc core on the event loop.
 *
 * Only rpc/rpc*.c include <grpc/...>.  One completion queue, emptied by the loop's own
 * thread, which sleeps inside grpc (wait.h); so a thread has one runtime.  One server per pod, fed
 * with accepted fds: which pod a call belongs to is a pointer, never a lookup (grpc-core.md 1).  A
 * unary call is a stream that carries one message each way.  Loop thread only.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct err;
struct loop;
struct rpc;        /* the runtime: the completion queue */
struct rpc_msg;    /* a received message, still in the slices that grpc gave us */
struct rpc_stream; /* one call, either side */

/* The status codes of gRPC that agentd itself uses. */
enum rpc_status {
	RPC_OK = 0,
	RPC_CANCELLED = 1,
	RPC_UNKNOWN = 2,
	RPC_INVALID_ARGUMENT = 3,
	RPC_DEADLINE_EXCEEDED = 4,
	RPC_PERMISSION_DENIED = 7,
	RPC_RESOURCE_EXHAUSTED = 8,
	RPC_FAILED_PRECONDITION = 9,
	RPC_ABORTED = 10,
	RPC_UNIMPLEMENTED = 12,
	RPC_INTERNAL = 13,
	RPC_UNAVAILABLE = 14,
	RPC_UNAUTHENTICATED = 16,
};
const char *rpc_status_name(int status); /* "UNAVAILABLE"; "code 99" for others */

struct rpc *rpc_new(struct loop *l);
/* Ends what is left, without events (slots become NULL).  Not inside an event. */
void rpc_free(struct rpc **r);

/* How much of what streams in turn (channel.h) bring may be on its way at a time, from its first
 * byte until a server's client has read it; 0, the default: no bound.  One message may be larger.
 */
void rpc_bound(struct rpc *r, int64_t bytes);
struct rpc_flow {
	int64_t bound, held, waiting; /* bytes; waiting: of messages that have begun */
	unsigned streams;             /* that wait */
	unsigned unseen;              /* streams that are not bound, since the start */
};
struct rpc_flow rpc_flow(const struct rpc *r);

/* The events of a stream.  No event arrives inside the call that caused it. */
struct rpc_events {
	/* `m` is valid during the callback; its bytes can be sent on with rpc_forward(). */
	void (*message)(void *ctx, struct rpc_stream *s, struct rpc_msg *m);
	/* The write queue is empty again.  May be NULL. */
	void (*writable)(void *ctx, struct rpc_stream *s);
	/* The client will send no more; may also be the first sign of one that vanished.  May be
	 * NULL. */
	void (*half_closed)(void *ctx, struct rpc_stream *s);
	/* Last event; the owner's slot is already NULL.  `why` is cut to 200 printable bytes. */
	void (*closed)(void *ctx, int status, const char *why);
	/* Streams that are read in turn (channel.h) wait for memory, and messages of this one hold
	 * some: the first of them was not read for `unread_ms`.  Once a second.  May be NULL. */
	void (*crowded)(void *ctx, struct rpc_stream *s, int64_t unread_ms);
};

/* The bytes of a message in order; valid as long as the message. */
const struct iovec *rpc_msg_iov(const struct rpc_msg *m, size_t *n);
size_t rpc_msg_size(const struct rpc_msg *m);

void rpc_send(struct rpc_stream *s, const void *data, size_t len); /* copied; wiped */
void rpc_forward(struct rpc_stream *to, const struct rpc_msg *m);  /* the same bytes, not copied */
size_t rpc_queued(const struct rpc_stream *s); /* bytes accepted here but not yet taken by grpc */
/* Stop asking for messages: back-pressure.  One that was asked for already may still come.  A
 * client's stream hears of an end once it read all that came before it, so a paused one may hear of
 * it at once, or when it reads again. */
void rpc_pause(struct rpc_stream *s, bool paused);
/* What the owner of a server's stream keeps for it: its pod holds that, too, until the stream is
 * gone.  In place of what was said before. */
void rpc_keeps(struct rpc_stream *s, size_t bytes);
void rpc_half_close(struct rpc_stream *s); /* client side: nothing more to send */
/* End it: no event follows.  A server's stream sends its queue, for at most 10 s, then the status;
 * a client's is cancelled. */
void rpc_close(struct rpc_stream **s, int status, const char *why);
/* The same for a peer that does not read: at once, and on the server side the connection ends with
 * it, for a call whose write is stuck does not end otherwise (istiod-live.md 1.12). */
void rpc_abort(struct rpc_stream **s);
