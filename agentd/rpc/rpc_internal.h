/* rpc_internal.h - shared by the files of rpc/ only.
 */
#pragma once
#include "channel.h"
#include "server.h"
#include "tag_internal.h"
#include "turn_internal.h"
#include "wait.h"

#include <grpc/grpc.h>

struct rpc {
	struct loop *loop;
	grpc_completion_queue *cq;
	grpc_channel *lame; /* leads nowhere: what a call that only echoes needs */
	grpc_call *echo;
	struct rpc_wait wait; /* due: tags are ready, or there is something else to do */
	struct loop_fd watch;
	struct rpc_tags ready;            /* finished: their turn is next */
	size_t pending;                   /* tags that grpc or the lists hold */
	bool running, ending;             /* inside a turn; rpc_free() is at work */
	uint64_t wakes, tags, bytes;      /* for tests; how many; of messages that came */
	uint64_t burst_tags, burst_bytes; /* when `quiet` was armed last */
	struct loop_timer quiet;          /* armed during a burst */
	struct rpc_intake intake;
	struct rpc_stream *streams;
	struct rpc_server *servers;
	struct rpc_channel *channels;
};

/* A tag is about to be given to grpc; `done` will run exactly once, on the loop, and not in here.
 */
void *rpc_tag_start(struct rpc *r, struct rpc_tag *t, rpc_tag_done done);
/* Around what may finish at once: grpc keeps the first tag that does for us; others go to the
 * queue. */
void rpc_catch_begin(struct rpc *r);
void rpc_catch_end(struct rpc *r);
/* The same, for a tag of operations of a call.  An error of grpc's is one of ours: it aborts. */
struct rpc_batch {
	grpc_call *call;
	const grpc_op *ops;
	size_t n;
};
void rpc_batch_start(
    struct rpc *r, const struct rpc_batch *b, struct rpc_tag *t, rpc_tag_done done);
void rpc_queue_begin(struct rpc *r);
/* Waits for `ms` (-1: for ever) until something is finished, or stirred; what is finished is ready.
 * False: neither. */
bool rpc_queue_fetch(struct rpc *r, int ms);
void rpc_queue_run(struct rpc *r); /* some of what is ready */
void rpc_queue_end(struct rpc *r);
void rpc_log_init(void);

struct rpc_out { /* one outgoing message */
	grpc_byte_buffer *bytes;
	size_t len;
	struct rpc_out *next;
};

struct rpc_stream {
	struct rpc *rpc;
	struct rpc_server *server;   /* NULL on the client side and when the server went */
	struct rpc_channel *channel; /* NULL on the server side */
	void (*gone)(struct rpc_channel *c);
	grpc_call *call;
	unsigned refs;            /* one per tag under way, one of the owner, one of a callback */
	struct rpc_stream **slot; /* the owner's; NULL: no owner (any more), no events */
	struct rpc_events ev;
	void *ctx;
	struct rpc_tag reading, writing, headers_out, headers_in, half_out, status_out, ending;
	bool is_reading, is_writing, paused, read_end,
	    ended;                                         /* grpc reported the end of the call */
	bool half_wanted, half_sent;                       /* client */
	bool accepted, closing, headers_sent, status_sent; /* server */
	int fd; /* server: the connection's; another's by now, unless `inode` is its own */
	ino_t inode;
	grpc_byte_buffer *in;
	struct rpc_out *out, **out_end;
	size_t queued, writing_len;
	int64_t writing_since_ms;
	size_t taken, kept;            /* server: messages handed over; by the owner */
	struct rpc_intake_stream turn; /* client */
	grpc_metadata *metadata;       /* client: headers under way */
	size_t nmetadata;
	grpc_metadata_array initial, trailing; /* client: received, not looked at */
	grpc_status_code status;
	grpc_slice details;
	int cancelled;            /* server: where grpc says so, not looked at */
	struct loop_timer linger; /* server: how long a closed stream may take to flush */
	struct rpc_stream *prev, *next;
};
struct rpc_stream *rpc_stream_new(struct rpc *r, grpc_call *call);
void rpc_stream_unref(struct rpc_stream *s);
void rpc_stream_own(
    struct rpc_stream *s, struct rpc_stream **slot, const struct rpc_events *ev, void *ctx);
void rpc_stream_start(
    struct rpc_stream *s, const grpc_op *op, size_t n, struct rpc_tag *t, rpc_tag_done done);
void rpc_stream_read(struct rpc_stream *s);
void rpc_stream_ended(struct rpc_stream *s);   /* grpc reported the end */
void rpc_stream_abandon(struct rpc_stream *s); /* its server or runtime goes: no events, at once */
struct rpc_msg *rpc_msg_new(grpc_byte_buffer *bytes); /* takes them */
void rpc_msg_free(struct rpc_msg **m);
grpc_byte_buffer *rpc_msg_bytes(const struct rpc_msg *m);
char *rpc_intake_begin(struct rpc_stream *s); /* RPC_ARRIVALS_HEADER's value, to be freed */
bool rpc_intake_may_read(struct rpc_stream *s);
void rpc_intake_was_read(struct rpc_stream *s);
void rpc_intake_answered(struct rpc_stream *s); /* its headers came */
void rpc_intake_end(struct rpc_stream *s);
void rpc_intake_charge(struct rpc *r, int64_t more); /* waits for a server's client */
void rpc_intake_leave(struct rpc_stream *s);         /* it has what it asked for, or gives it up */
void rpc_intake_watch(struct rpc *r);                /* somebody waits, or nobody any more */
void rpc_intake_run(struct rpc *r);                  /* what came, and whose turn it is */
void rpc_channel_drop_all(struct rpc *r);
