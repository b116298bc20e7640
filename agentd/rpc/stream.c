/* stream.c - one call, either side.
 *
 * Reading: RECV_MESSAGE is armed; its tag brings a message to the owner, then the next one is
 * armed, unless the owner paused.  No message: the peer will send no more. Writing: one
 * SEND_MESSAGE is under way, the rest waits in `out`; when the last came back the owner is told
 * `writable`, and what had to wait for it (half-close, status) goes. End: grpc reports it once
 * (RECV_STATUS_ON_CLIENT, RECV_CLOSE_ON_SERVER: rpc_stream_ended()); the owner hears `closed` as
 * soon as no read is under way any more, since that read may still bring the last message.  Writes
 * are not waited for: they can hang as long as a dead peer's socket is full (istiod-live.md 1.12).
 * The owner can let go at any time; the stream then lives on without events until every tag came
 * back.  A server's stream first flushes its queue, but not for ever.
 */
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "rpc_internal.h"
#include "server_internal.h"

#include <string.h>
#include <utlist.h>

LOG_SCOPE("rpc");

enum { WHY_SIZE = 201, LINGER_MS = 10 * 1000, PREFIX_SIZE = 5 };

struct rpc_stream *rpc_stream_new(struct rpc *r, grpc_call *call)
{
	struct rpc_stream *s = mem_zalloc(sizeof(*s));

	s->rpc = r;
	s->call = call;
	s->refs = 1;
	s->out_end = &s->out;
	s->details = grpc_empty_slice();
	DL_APPEND(r->streams, s);
	return s;
}

static void set_queued(struct rpc_stream *s, size_t bytes)
{
	const int64_t more = (int64_t)bytes - (int64_t)s->queued;

	if (s->server)
		rpc_server_push(s->server, more);
	if (!s->channel)
		rpc_intake_charge(s->rpc, more);
	s->queued = bytes;
}

void rpc_keeps(struct rpc_stream *s, size_t bytes)
{
	if (s->server)
		rpc_server_charge(s->server, (int64_t)bytes - (int64_t)s->kept);
	s->kept = bytes;
}

static void drop_queue(struct rpc_stream *s)
{
	while (s->out) {
		struct rpc_out *o = s->out;

		s->out = o->next;
		grpc_byte_buffer_destroy(o->bytes);
		free(o);
	}
	s->out_end = &s->out;
	set_queued(s, s->is_writing ? s->writing_len : 0);
}

void rpc_stream_unref(struct rpc_stream *s)
{
	if (--s->refs > 0)
		return;
	loop_timer_stop(&s->linger);
	drop_queue(s);
	rpc_intake_end(s);
	rpc_keeps(s, 0);
	for (size_t i = 0; i < s->nmetadata; i++) {
		grpc_slice_unref(s->metadata[i].key);
		grpc_slice_unref(s->metadata[i].value);
	}
	free(s->metadata);
	grpc_metadata_array_destroy(&s->initial);
	grpc_metadata_array_destroy(&s->trailing);
	grpc_slice_unref(s->details);
	grpc_call_unref(s->call);
	DL_DELETE(s->rpc->streams, s);
	if (s->channel)
		s->gone(s->channel);
	free(s);
}

void rpc_stream_start(
    struct rpc_stream *s, const grpc_op *op, size_t n, struct rpc_tag *t, rpc_tag_done done)
{
	s->refs++;
	rpc_batch_start(s->rpc, &(struct rpc_batch){s->call, op, n}, t, done);
}

/* --- the owner --- */

void rpc_stream_own(
    struct rpc_stream *s, struct rpc_stream **slot, const struct rpc_events *ev, void *ctx)
{
	s->ev = *ev;
	s->ctx = ctx;
	s->slot = slot;
	*slot = s;
}

/* No event after this; the caller still has its reference. */
static void disown(struct rpc_stream *s)
{
	*take(s->slot) = NULL;
}

static void tell_closed(struct rpc_stream *s)
{
	char why[WHY_SIZE];
	int status = s->channel ? (int)s->status : RPC_CANCELLED;
	const char *text = "the client went away";
	size_t len = strlen(text);

	if (!s->slot || !s->ended || s->is_reading)
		return;
	if (s->channel) {
		text = (const char *)GRPC_SLICE_START_PTR(s->details);
		len = GRPC_SLICE_LENGTH(s->details);
	}
	err_excerpt(why, sizeof(why), text, (unsigned)len);
	disown(s);
	s->ev.closed(s->ctx, status, why);
	rpc_stream_unref(s);
}

void rpc_stream_ended(struct rpc_stream *s)
{
	s->ended = true;
	tell_closed(s);
}

/* --- reading --- */

static void tell_message(struct rpc_stream *s, grpc_byte_buffer *bytes)
{
	struct rpc_msg *m = rpc_msg_new(bytes);

	if (s->server)
		rpc_server_took(s, (int64_t)(PREFIX_SIZE + rpc_msg_size(m)));
	s->ev.message(s->ctx, s, m);
	rpc_msg_free(&m);
	rpc_intake_was_read(s);
	if (s->server)
		rpc_server_request(s->server);
	rpc_stream_read(s);
}

static void on_read(struct rpc_tag *t, bool ok)
{
	struct rpc_stream *s = tag_owner(t, struct rpc_stream, reading);
	grpc_byte_buffer *bytes = take(s->in);

	s->is_reading = false;
	if (bytes)
		s->rpc->bytes += grpc_byte_buffer_length(bytes);
	if (!ok || !bytes)
		s->read_end = true;
	if (!ok && s->slot && s->server) /* a peer that only goes is no error of the read */
		rpc_server_breach(s->server, RPC_BREACH_MESSAGE);
	if (bytes && ok && s->slot)
		tell_message(s, bytes);
	else if (bytes)
		grpc_byte_buffer_destroy(bytes);
	else if (ok && s->slot && !s->channel && !s->ended && s->ev.half_closed)
		s->ev.half_closed(s->ctx, s);
	tell_closed(s);
	rpc_stream_unref(s);
}

/* Ask for the next message, unless there is a reason not to. */
void rpc_stream_read(struct rpc_stream *s)
{
	grpc_op op = {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &s->in};

	if (!s->slot || s->paused || s->is_reading || s->read_end)
		return;
	if (s->server && rpc_server_is_held(s->server))
		return;
	if (s->turn.on && !rpc_intake_may_read(s))
		return;
	s->is_reading = true;
	rpc_stream_start(s, &op, 1, &s->reading, on_read);
}

void rpc_pause(struct rpc_stream *s, bool paused)
{
	s->paused = paused;
	rpc_stream_read(s);
}

/* --- writing --- */

static void write_more(struct rpc_stream *s);

static void on_written(struct rpc_tag *t, bool ok)
{
	struct rpc_stream *s = tag_owner(t, struct rpc_stream, writing);

	s->is_writing = false;
	set_queued(s, s->queued - s->writing_len);
	if (!ok)
		drop_queue(s); /* the call is over: its end is reported by itself */
	write_more(s);
	if (ok && s->slot && !s->out && !s->is_writing && !s->ended && s->ev.writable)
		s->ev.writable(s->ctx, s);
	rpc_stream_unref(s);
}

static void on_half_closed(struct rpc_tag *t, bool ok)
{
	(void)ok;
	rpc_stream_unref(tag_owner(t, struct rpc_stream, half_out));
}

static void on_status_sent(struct rpc_tag *t, bool ok)
{
	(void)ok;
	rpc_stream_unref(tag_owner(t, struct rpc_stream, status_out));
}

/* A server's headers travel with its first message or its status: one packet less. */
static size_t put_headers(struct rpc_stream *s, grpc_op *op)
{
	if (s->channel || s->headers_sent)
		return 0;
	s->headers_sent = true;
	*op = (grpc_op){.op = GRPC_OP_SEND_INITIAL_METADATA};
	return 1;
}

static void write_message(struct rpc_stream *s)
{
	struct rpc_out *o = s->out;
	grpc_op ops[2];
	size_t n = put_headers(s, ops);

	s->out = o->next;
	if (!s->out)
		s->out_end = &s->out;
	s->is_writing = true;
	s->writing_len = o->len;
	s->writing_since_ms = loop_now_ms(s->rpc->loop);
	ops[n++] =
	    (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = o->bytes};
	rpc_stream_start(s, ops, n, &s->writing, on_written);
	/* The batch took the slices; the empty shell is ours (grpc-core.md 8). */
	grpc_byte_buffer_destroy(o->bytes);
	free(o);
}

static void write_status(struct rpc_stream *s)
{
	grpc_op ops[2];
	size_t n = put_headers(s, ops);

	s->status_sent = true;
	ops[n++] = (grpc_op){.op = GRPC_OP_SEND_STATUS_FROM_SERVER,
	    .data.send_status_from_server = {.status = s->status, .status_details = &s->details}};
	rpc_stream_start(s, ops, n, &s->status_out, on_status_sent);
}

static void write_half_close(struct rpc_stream *s)
{
	grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};

	s->half_sent = true;
	rpc_stream_start(s, &op, 1, &s->half_out, on_half_closed);
}

/* Start whatever has its turn; one operation of a kind at a time. */
static void write_more(struct rpc_stream *s)
{
	if (s->is_writing)
		return;
	if (s->out)
		write_message(s);
	else if (s->closing && !s->status_sent)
		write_status(s);
	else if (s->half_wanted && !s->half_sent)
		write_half_close(s);
}

static void enqueue(struct rpc_stream *s, grpc_byte_buffer *bytes)
{
	struct rpc_out *o = mem_zalloc(sizeof(*o));

	*o = (struct rpc_out){.bytes = bytes, .len = grpc_byte_buffer_length(bytes)};
	*s->out_end = o;
	s->out_end = &o->next;
	set_queued(s, s->queued + o->len);
	write_more(s);
}

/* On any thread of grpc's.  It may have been a private key. */
static void on_slice_freed(void *data, size_t len)
{
	explicit_bzero(data, len);
	free(data);
}

void rpc_send(struct rpc_stream *s, const void *data, size_t len)
{
	grpc_slice slice = grpc_slice_new_with_len(mem_dup(data, len), len, on_slice_freed);

	enqueue(s, grpc_raw_byte_buffer_create(&slice, 1));
	grpc_slice_unref(slice);
}

void rpc_forward(struct rpc_stream *to, const struct rpc_msg *m)
{
	enqueue(to, grpc_byte_buffer_copy(rpc_msg_bytes(m)));
}

size_t rpc_queued(const struct rpc_stream *s)
{
	return s->queued;
}

void rpc_half_close(struct rpc_stream *s)
{
	s->half_wanted = true;
	write_more(s);
}

/* --- ending --- */

static void cancel(struct rpc_stream *s)
{
	drop_queue(s);
	grpc_call_cancel(s->call, NULL);
}

/* The peer does not read: what it was to get is dropped, so that it cannot pile up here. */
static void on_linger_end(void *ctx)
{
	cancel(ctx);
}

static void finish(struct rpc_stream *s, int status, const char *why)
{
	if (s->ended)
		return;
	if (s->channel) {
		cancel(s);
		return;
	}
	s->closing = true;
	s->status = (grpc_status_code)status;
	s->details = grpc_slice_from_copied_string(why ? why : "");
	loop_timer_in(s->rpc->loop, &s->linger, LINGER_MS, on_linger_end, s);
	write_more(s);
}

void rpc_close(struct rpc_stream **slot, int status, const char *why)
{
	struct rpc_stream *s = *slot;

	if (!s)
		return;
	disown(s);
	finish(s, status, why);
	rpc_stream_unref(s);
}

void rpc_abort(struct rpc_stream **slot)
{
	struct rpc_stream *s = *slot;

	if (!s)
		return;
	disown(s);
	if (!s->ended)
		cancel(s);
	if (!s->channel)
		rpc_connection_cut(&(struct rpc_connection){s->fd, s->inode});
	rpc_stream_unref(s);
}

void rpc_stream_abandon(struct rpc_stream *s)
{
	bool owned = s->slot != NULL;

	s->server = NULL;
	if (owned)
		disown(s);
	cancel(s);
	if (owned)
		rpc_stream_unref(s);
}
