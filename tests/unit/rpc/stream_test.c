/* stream_test.c - streams between a real client and a real server on one loop.
 * LINK: tests/unit/rpc/rpc_rig.c */
#include "rpc_rig.h"

#include "rpc/rpc_internal.h"

static void prepare_conversation(struct side *s)
{
	s->on_message = echo;
	s->on_half_closed = close_ok;
}

static void prepare_echo(struct side *s)
{
	s->on_message = echo;
}

/* A conversation: both directions, half-close, status; the slot is empty when `closed` runs (R3).
 */
static void test_conversation(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_conversation;
	r.client.got = evbuffer_new();
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "hello ", 6);
	WAIT(&r, r.client.messages == 1);
	rpc_send(r.client.stream, "", 0);
	rpc_send(r.client.stream, "there", 5);
	WAIT(&r, r.client.messages == 3);
	assert_memory_equal(evbuffer_pullup(r.client.got, -1), "hello there", 11);
	assert_string_equal(r.s.calls[0].method, "/test.Echo/Talk");
	assert_int_equal(r.client.closes, 0);
	rpc_half_close(r.client.stream);
	WAIT(&r, r.client.closes == 1);
	assert_int_equal(r.client.status, RPC_OK);
	assert_string_equal(r.client.why, "");
	assert_false(r.client.slot_was_set);
	assert_int_equal(r.s.calls[0].half_closes, 1);
	/* The server's owner ended it, so it hears nothing more. */
	rig_settle(&r, 20);
	assert_int_equal(r.s.calls[0].closes, 0);
	assert_int_equal(r.client.closes, 1);
	rig_end(&r);
}

/* Nothing more to send: once all that was sent is out. */
static void test_half_close_comes_after_the_messages(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_conversation;
	rig_open(&r, &r.client);
	for (unsigned i = 0; i < 5; i++)
		rpc_send(r.client.stream, "hello", 5);
	rpc_half_close(r.client.stream);
	WAIT(&r, r.client.closes == 1);
	assert_int_equal(r.client.messages, 5);
	assert_int_equal(r.client.status, RPC_OK);
	rig_end(&r);
}

static void reply_and_close(struct side *s, const struct rpc_msg *m)
{
	(void)m;
	rpc_send(s->stream, "answer", 6);
	rpc_close(&s->stream, RPC_OK, "");
}

static void prepare_unary(struct side *s)
{
	s->on_message = reply_and_close;
}

/* rpc_close() on a server sends what is queued first: the answer is never lost. */
static void test_unary(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_unary;
	for (unsigned i = 0; i < 50; i++) {
		rig_open(&r, &r.client);
		rpc_send(r.client.stream, "question", 8);
		rpc_half_close(r.client.stream);
		WAIT(&r, r.client.closes == 1);
		assert_int_equal(r.client.messages, 1);
		assert_int_equal(r.client.bytes, 6);
		assert_int_equal(r.client.status, RPC_OK);
		side_reset(&r.client);
	}
	assert_int_equal(r.s.connections, 1);
	rig_end(&r);
}

static void check_sequence(struct side *s, const struct rpc_msg *m)
{
	unsigned *expected = s->ctx;
	char head[sizeof(unsigned)];
	size_t n, have = 0;
	const struct iovec *iov = rpc_msg_iov(m, &n);

	for (size_t i = 0; i < n && have < sizeof(head); i++)
		for (size_t k = 0; k < iov[i].iov_len && have < sizeof(head); k++)
			head[have++] = ((const char *)iov[i].iov_base)[k];
	assert_int_equal(rpc_msg_size(m), sizeof(head) + *expected % 300);
	assert_memory_equal(head, expected, sizeof(head));
	(*expected)++;
}

/* Order, and the queue: all is accepted at once, counted, and `writable` comes when it is out. */
static void test_many_messages_in_order(void **state)
{
	(void)state;
	enum { COUNT = 3000 };
	struct rig r;
	unsigned back = 0;
	size_t accepted = 0;

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	r.client.on_message = check_sequence;
	r.client.ctx = &back;
	rig_open(&r, &r.client);
	for (unsigned i = 0; i < COUNT; i++) {
		char bytes[304] = "";

		memcpy(bytes, &i, sizeof(i));
		rpc_send(r.client.stream, bytes, sizeof(i) + i % 300);
		accepted += sizeof(i) + i % 300;
		assert_int_equal(rpc_queued(r.client.stream), accepted);
	}
	assert_int_equal(r.client.writables, 0);
	WAIT(&r, back == COUNT);
	assert_true(r.client.writables >= 1);
	assert_int_equal(rpc_queued(r.client.stream), 0);
	rig_end(&r);
}

static unsigned waiting_tags(const struct rpc *r)
{
	unsigned n = 0;

	for (const struct rpc_tag *t = r->ready.first; t; t = t->next)
		n++;
	return n;
}

/* One wake-up of the loop serves all tags that came since the last one (grpc-core.md 2), up to a
 * number that leaves time for others (R6). */
static void test_wakeups_are_shared(void **state)
{
	(void)state;
	struct rig r;
	struct side c[50] = {{.stream = NULL}};

	rig_begin(&r);
	r.s.prepare = prepare_unary;
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "connect", 7);
	WAIT(&r, r.client.closes == 1 && !r.rpc->streams);
	for (unsigned i = 0; i < 50; i++) {
		rig_open(&r, &c[i]);
		rpc_send(c[i].stream, "question", 8);
	}
	while (waiting_tags(r.rpc) < 70) /* grpc works, the loop does not */
		rpc_queue_fetch(r.rpc, 1000);
	uint64_t tags = r.rpc->tags, wakes = r.rpc->wakes;

	rig_turn(&r);
	assert_int_equal(r.rpc->wakes, wakes + 1);
	assert_int_equal(r.rpc->tags, tags + 64);
	for (unsigned i = 0; i < 50; i++)
		WAIT(&r, c[i].closes == 1);
	print_message(
	    "%lu tags, %lu wake-ups\n", (unsigned long)r.rpc->tags, (unsigned long)r.rpc->wakes);
	rig_end(&r);
}

/* A message that goes out at once, or is here when it is asked for, costs no wake-up of its own:
 * the messages of a push do not wait for each other. */
static void test_what_is_done_at_once_wakes_nobody(void **state)
{
	(void)state;
	enum { COUNT = 50 };
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "one", 3);
	WAIT(&r, r.client.messages == 1);
	uint64_t wakes = r.rpc->wakes;

	for (unsigned i = 0; i < COUNT; i++)
		rpc_send(r.s.calls[0].stream, "x", 1);
	WAIT(&r, r.client.messages == 1 + COUNT);
	assert_true(r.rpc->wakes - wakes < COUNT / 2);
	rig_end(&r);
}

/* Nothing happens inside a call, only on the loop (R2); and nothing after rpc_close() (R1). */
static void test_events_come_by_the_loop_only(void **state)
{
	(void)state;
	struct rig r;
	struct side *server;

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "one", 3);
	WAIT(&r, r.client.messages == 1);
	server = &r.s.calls[0];
	rpc_send(r.client.stream, "two", 3);
	rpc_send(server->stream, "three", 5);
	rpc_pause(r.client.stream, true);
	rpc_pause(r.client.stream, false);
	while (!waiting_tags(r.rpc)) /* something has come, and nobody heard */
		rpc_queue_fetch(r.rpc, 1000);
	assert_int_equal(server->messages, 1);
	assert_int_equal(r.client.messages, 1);
	unsigned writables = r.client.writables;

	rpc_close(&r.client.stream, RPC_CANCELLED, "");
	assert_null(r.client.stream);
	rpc_close(&r.client.stream, RPC_CANCELLED, ""); /* NULL slot: nothing */
	WAIT(&r, server->closes == 1);                  /* the other end heard of it */
	rig_settle(&r, 30);
	assert_int_equal(r.client.messages, 1);
	assert_int_equal(r.client.writables, writables);
	assert_int_equal(r.client.closes, 0);
	assert_int_equal(server->status, RPC_CANCELLED);
	assert_false(server->slot_was_set);
	rig_end(&r);
}

/* Whatever the server sent before on that connection is here when this comes back. */
static void ask_behind(struct rig *r, struct side *c)
{
	unsigned before = c->messages;

	rpc_send(c->stream, "?", 1);
	WAIT(r, c->messages == before + 1);
}

/* A paused client's stream hears of its end when nothing that came before is unread. */
static void test_a_paused_stream_and_its_end(void **state)
{
	(void)state;
	struct side behind = {.stream = NULL};
	struct rig r;

	for (unsigned unread = 0; unread < 2; unread++) {
		rig_begin(&r);
		r.s.prepare = prepare_echo;
		rig_open(&r, &r.client);
		rpc_send(r.client.stream, "one", 3);
		WAIT(&r, r.client.messages == 1);
		rig_open(&r, &behind);
		ask_behind(&r, &behind);
		rpc_pause(r.client.stream, true);
		/* The read that was asked for before. */
		rpc_send(r.s.calls[0].stream, "two", 3);
		WAIT(&r, r.client.messages == 2);
		if (unread)
			rpc_send(r.s.calls[0].stream, "three", 5);
		rpc_close(&r.s.calls[0].stream, RPC_ABORTED, "over");
		ask_behind(&r, &behind);
		rig_spin(&r, 10);
		assert_int_equal(r.client.messages, 2);
		if (unread) {
			assert_int_equal(r.client.closes, 0);
			rpc_pause(r.client.stream, false);
		}
		WAIT(&r, r.client.closes == 1);
		assert_int_equal(r.client.messages, 2 + unread);
		assert_int_equal(r.client.status, RPC_ABORTED);
		side_reset(&behind);
		rig_end(&r);
	}
}

static void close_self(struct side *s, const struct rpc_msg *m)
{
	(void)m;
	rpc_close(&s->stream, RPC_CANCELLED, "enough");
}

/* R5: a stream may be ended inside its own event. */
static void test_closing_inside_an_event(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	r.client.on_message = close_self;
	rig_open(&r, &r.client);
	for (unsigned i = 0; i < 10; i++)
		rpc_send(r.client.stream, "x", 1);
	WAIT(&r, r.s.ncalls == 1 && r.s.calls[0].closes == 1);
	rig_settle(&r, 20);
	assert_int_equal(r.client.messages, 1);
	assert_int_equal(r.client.closes, 0);
	rig_end(&r);
}

/* --- forwarding --- */

struct relay {
	struct side up; /* stream to the second server */
	struct rpc_channel *channel;
	bool shared;
};

/* What waits in the queue are the very slices that the message came in, but for tiny ones (grpc
 * keeps up to 23 bytes inside the slice itself). */
static bool same_slices(const struct rpc_stream *to, const struct rpc_msg *m)
{
	const grpc_slice_buffer *q = &to->out->bytes->data.raw.slice_buffer;
	size_t n, shared = 0;
	const struct iovec *iov = rpc_msg_iov(m, &n);

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < q->count; k++)
			if (GRPC_SLICE_START_PTR(q->slices[k]) == iov[i].iov_base)
				shared += iov[i].iov_len;
	return n > 4 && shared > rpc_msg_size(m) / 100 * 99;
}

static void relay_message(struct side *s, const struct rpc_msg *m)
{
	struct relay *relay = s->ctx;

	rpc_send(relay->up.stream, "first", 5); /* so that the next one has to queue */
	rpc_forward(relay->up.stream, m);
	relay->shared = same_slices(relay->up.stream, m);
}

static struct relay *the_relay;

static void prepare_relay(struct side *s)
{
	struct err e;
	struct rpc_call call = {.method = "/test.Echo/Behind"};

	s->ctx = the_relay;
	s->on_message = relay_message;
	assert_return_code(rpc_open(the_relay->channel, &the_relay->up.stream, &call, &side_events,
			       &the_relay->up, &e),
	    0);
}

static void prepare_keep(struct side *s)
{
	s->got = evbuffer_new();
}

static void test_forwarding_20_mib(void **state)
{
	(void)state;
	enum { SIZE = 20 << 20 };
	struct rig r;
	struct served behind;
	struct relay relay = {.shared = false};
	char *bytes = malloc(SIZE);

	for (size_t i = 0; i < SIZE; i++)
		bytes[i] = (char)(i * 2654435761U >> 13);
	rig_begin(&r);
	rpc_server_free(&r.s.server);
	served_end(&r.s);
	served_begin(
	    &r.s, &r, &(struct rpc_server_options){.max_message = SIZE, .max_streams = 10});
	served_begin(
	    &behind, &r, &(struct rpc_server_options){.max_message = SIZE, .max_streams = 10});
	served_listen(&r.s);
	served_listen(&behind);
	rpc_channel_free(&r.channel);
	r.channel = rig_channel(&r, r.s.path, 1);
	relay.channel = rig_channel(&r, behind.path, 2);
	the_relay = &relay;
	r.s.prepare = prepare_relay;
	behind.prepare = prepare_keep;

	rig_open(&r, &r.client);
	rpc_send(r.client.stream, bytes, SIZE);
	WAIT(&r, behind.ncalls == 1 && behind.calls[0].messages == 2);
	assert_int_equal(behind.calls[0].bytes, SIZE + 5);
	evbuffer_drain(behind.calls[0].got, 5);
	assert_memory_equal(evbuffer_pullup(behind.calls[0].got, -1), bytes, SIZE);
	assert_true(relay.shared);

	free(bytes);
	side_reset(&relay.up);
	rpc_channel_free(&relay.channel);
	served_end(&behind);
	rig_end(&r);
}

/* The same message to several streams: forwarding does not empty it (grpc-core.md 8). */
static void forward_twice(struct side *s, const struct rpc_msg *m)
{
	rpc_forward(s->stream, m);
	rpc_forward(s->stream, m);
}

static void prepare_twice(struct side *s)
{
	s->on_message = forward_twice;
}

static void test_forwarding_does_not_consume(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_twice;
	r.client.got = evbuffer_new();
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "twice-and-long-enough-not-to-be-inlined.", 40);
	WAIT(&r, r.client.messages == 2);
	assert_int_equal(r.client.bytes, 80);
	assert_memory_equal(evbuffer_pullup(r.client.got, -1),
	    "twice-and-long-enough-not-to-be-inlined.twice-and-long-enough-not-to-be-inlined.", 80);
	rig_end(&r);
}

/* --- limits and errors --- */

/* A message above the server's limit: the client is told, the server's owner never sees it. */
static void test_oversize_message(void **state)
{
	(void)state;
	enum { LIMIT = 1 << 20 };
	static char bytes[LIMIT + 1];
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, bytes, LIMIT);
	WAIT(&r, r.client.messages == 1);
	rpc_send(r.client.stream, bytes, LIMIT + 1);
	WAIT(&r, r.client.closes == 1 && r.s.calls[0].closes == 1);
	assert_int_equal(r.client.status, RPC_RESOURCE_EXHAUSTED);
	assert_int_equal(r.s.calls[0].messages, 1);
	assert_int_equal(r.s.calls[0].half_closes, 0);
	assert_int_equal(r.s.calls[0].status, RPC_CANCELLED);
	rig_end(&r);
}

static void send_65_mib(struct side *s, const struct rpc_msg *m)
{
	enum { SIZE = (64 << 20) + 1 };
	char *bytes = calloc(1, SIZE);

	(void)m;
	rpc_send(s->stream, bytes, SIZE);
	free(bytes);
}

static void prepare_65_mib(struct side *s)
{
	s->on_message = send_65_mib;
}

static void test_oversize_answer(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_65_mib;
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "go", 2);
	WAIT(&r, r.client.closes == 1);
	assert_int_equal(r.client.status, RPC_RESOURCE_EXHAUSTED);
	assert_int_equal(r.client.messages, 0);
	rig_end(&r);
}

static void test_unknown_method(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.refuse = true;
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "anybody there?", 14);
	WAIT(&r, r.client.closes == 1);
	assert_int_equal(r.client.status, RPC_UNIMPLEMENTED);
	assert_int_equal(r.client.messages, 0);
	rig_end(&r);
}

static void test_deadline(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	/* A busy machine may need more than the deadline for the server to hear of the call. */
	for (int ms = 100; r.s.ncalls == 0; ms *= 2) {
		r.client = (struct side){.rig = &r};
		rig_open_call(
		    &r, &r.client, &(struct rpc_call){.method = "/x/Y", .deadline_ms = ms});
		WAIT(&r, r.client.closes == 1);
		assert_int_equal(r.client.status, RPC_DEADLINE_EXCEEDED);
	}
	WAIT(&r, r.s.calls[0].closes == 1);
	rig_end(&r);
}

static void close_with_dirt(struct side *s, const struct rpc_msg *m)
{
	char why[1001];

	(void)m;
	memset(why, 'y', 1000);
	memcpy(why, "dirty\n\x1b[31m\x80 ", 13);
	why[1000] = '\0';
	rpc_close(&s->stream, RPC_PERMISSION_DENIED, why);
}

static void prepare_dirt(struct side *s)
{
	s->on_message = close_with_dirt;
}

/* istiod echoes whole headers in its texts (istiod-live.md 5): 200 printable bytes are enough. */
static void test_status_text_is_cut(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_dirt;
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "go", 2);
	WAIT(&r, r.client.closes == 1);
	assert_int_equal(r.client.status, RPC_PERMISSION_DENIED);
	assert_int_equal(strlen(r.client.why), 200);
	assert_memory_equal(r.client.why, "dirty??[31m? yyy", 16);
	rig_end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_conversation),
	    cmocka_unit_test(test_half_close_comes_after_the_messages),
	    cmocka_unit_test(test_unary),
	    cmocka_unit_test(test_many_messages_in_order),
	    cmocka_unit_test(test_wakeups_are_shared),
	    cmocka_unit_test(test_what_is_done_at_once_wakes_nobody),
	    cmocka_unit_test(test_events_come_by_the_loop_only),
	    cmocka_unit_test(test_a_paused_stream_and_its_end),
	    cmocka_unit_test(test_closing_inside_an_event),
	    cmocka_unit_test(test_forwarding_20_mib),
	    cmocka_unit_test(test_forwarding_does_not_consume),
	    cmocka_unit_test(test_oversize_message),
	    cmocka_unit_test(test_oversize_answer),
	    cmocka_unit_test(test_unknown_method),
	    cmocka_unit_test(test_deadline),
	    cmocka_unit_test(test_status_text_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
