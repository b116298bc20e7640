/* rpc.h (fake) - agentd/base/rpc*.h without grpc: the test is the peer at the other end.
 *
 * Events reach the code under test only inside fake_loop_advance(), one after the other, never
 * inside a call (R2).  A stream, channel or server that has ended can still be looked at by the
 * test until rpc_free(); using it from the code under test aborts, which is how a test sees a stale
 * handle. As in grpc, a message that was already asked for arrives even after rpc_pause(); every
 * message has several slices.
 */
#pragma once
#include "rpc/channel.h"
#include "rpc/server.h"

/* What rpc_new() made last, for code that keeps it to itself; and the servers made from it. */
struct rpc *fake_rpc_last(void);
struct rpc_server *fake_rpc_server(const struct rpc *r, unsigned i);

/* --- the code under test is the server --- */
/* A new call; `incoming` runs at the next advance. */
struct rpc_stream *fake_rpc_call(struct rpc_server *s, const char *method);
bool fake_rpc_accepted(const struct rpc_stream *s);
unsigned fake_rpc_adopted(const struct rpc_server *s); /* fds handed over (and closed here) */
bool fake_rpc_closed(const struct rpc_server *s, unsigned i); /* the i-th of them, by whom ever */
void fake_rpc_hang_up(struct rpc_server *s, unsigned i);      /* its peer goes */
void fake_rpc_connections(struct rpc_server *s, unsigned n);  /* are open; 0 until told */

/* --- the code under test is the client --- */
unsigned fake_rpc_opened(const struct rpc *r);                       /* how many streams, ever */
struct rpc_stream *fake_rpc_stream(const struct rpc *r, unsigned i); /* the i-th of them, or NULL */
const char *fake_rpc_header(const struct rpc_stream *s, const char *key); /* NULL: not sent */
const struct rpc_call *fake_rpc_how(
    const struct rpc_stream *s); /* method, deadline, wait_for_ready */
struct rpc_channel *fake_rpc_channel_of(const struct rpc_stream *s);
unsigned fake_rpc_channels(const struct rpc *r);
struct rpc_channel *fake_rpc_channel(const struct rpc *r, unsigned i);
const struct rpc_channel_options *fake_rpc_channel_options(const struct rpc_channel *c);
bool fake_rpc_channel_freed(const struct rpc_channel *c);
/* `changed` follows.  A channel without it is READY as soon as rpc_channel_connect() was called. */
void fake_rpc_channel_set(struct rpc_channel *c, enum rpc_channel_state s);
void fake_rpc_script(struct rpc *r); /* channels to come become what is set, and nothing else */
unsigned fake_rpc_connects(const struct rpc_channel *c); /* calls of rpc_channel_connect() */

/* --- either side: what the peer does --- */
void fake_rpc_push(struct rpc_stream *s, const void *data, size_t len); /* a message to the code */
void fake_rpc_half_close(struct rpc_stream *s);
/* A server's status (after its messages), or a client's cancellation (at once). */
void fake_rpc_end(struct rpc_stream *s, int status, const char *why);
/* While stalled the peer takes nothing: rpc_queued() grows.  The end of it brings `writable`. */
void fake_rpc_stall(struct rpc_stream *s, bool stalled);
void fake_rpc_take(struct rpc_stream *s, size_t bytes); /* only a part, while stalled */

/* Others wait for memory, and the peer has read nothing for so long: the event comes now. */
void fake_rpc_crowd(struct rpc_stream *s, int64_t unread_ms);
void fake_rpc_flow(struct rpc *r, const struct rpc_flow *f); /* what rpc_flow() says */

/* --- either side: what the code did --- */
unsigned fake_rpc_sent(
    const struct rpc_stream *s); /* messages, whether the peer took them or not */
const void *fake_rpc_sent_bytes(const struct rpc_stream *s, unsigned i, size_t *len);
size_t fake_rpc_kept(const struct rpc_stream *s); /* as rpc_keeps() said */
bool fake_rpc_half_closed(const struct rpc_stream *s);
bool fake_rpc_paused(const struct rpc_stream *s);
bool fake_rpc_ended(const struct rpc_stream *s);   /* by either side, or because its server went */
bool fake_rpc_aborted(const struct rpc_stream *s); /* by rpc_abort() */
/* What rpc_close() gave; -1 when it was not called.  Not accepted: RPC_UNIMPLEMENTED. */
int fake_rpc_status(const struct rpc_stream *s);
const char *fake_rpc_why(const struct rpc_stream *s); /* "" when rpc_close() was not called */
unsigned fake_rpc_live(const struct rpc *r); /* streams that have not ended, on either side */

/* A message outside of any stream, for functions that take one. */
struct rpc_msg *fake_rpc_msg(const void *data, size_t len);
void fake_rpc_msg_free(struct rpc_msg **m);
