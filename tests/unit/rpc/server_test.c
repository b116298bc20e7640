/* server_test.c - one server per pod: hand-over of fds, isolation, hostile peers, no leaks.
 * LINK: tests/unit/rpc/rpc_rig.c */
#include "rpc_rig.h"

#include "rpc/rpc_internal.h"

#include <event2/event.h>
#include <fcntl.h>
#include <grpc/compression.h>
#include <grpc/grpc_security.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <utlist.h>

static void prepare_echo(struct side *s)
{
	s->on_message = echo;
}

/* --- hand-over --- */

static void test_fd_is_checked_and_closed_on_exec(void **state)
{
	(void)state;
	struct rig r;
	int blocking[2], fine[2];
	char byte;

	rig_begin(&r);
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM, 0, blocking), 0);
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fine), 0);
	/* A blocking one would hang the thread that serves all pods (grpc-core.md 1). */
	rpc_server_adopt(r.s.server, blocking[0]);
	assert_int_equal(read(blocking[1], &byte, 1), 0);
	assert_int_equal(fcntl(blocking[0], F_GETFD), -1);

	assert_false(fcntl(fine[0], F_GETFD) & FD_CLOEXEC);
	rpc_server_adopt(r.s.server, fine[0]);
	assert_true(fcntl(fine[0], F_GETFD) & FD_CLOEXEC);
	close(blocking[1]);
	close(fine[1]);
	rig_end(&r);
}

/* One round: a connection of its own, its call in one of several states when all is dropped. */
static void round_in_state(struct rig *r, unsigned how)
{
	struct side c = {.stream = NULL};
	unsigned before = r->s.ncalls;

	r->channel = rig_channel(r, r->s.path, 1000 + how);
	rig_open(r, &c);
	if (how >= 1)
		WAIT(r, r->s.ncalls == before + 1);
	if (how == 2)
		rpc_send(c.stream, "one way", 7);
	if (how >= 3) {
		rpc_send(c.stream, "hello", 5);
		WAIT(r, c.messages == 1);
	}
	if (how == 4)
		rpc_half_close(c.stream);
	if (how == 5)
		rpc_close(&r->s.calls[before].stream, RPC_OK, "");
	side_reset(&c);
	rpc_channel_free(&r->channel);
}

/* A call that is not unref'd keeps its connection's fd (grpc-core.md 1). */
static void test_fds_return(void **state)
{
	(void)state;
	enum { ROUNDS = 200, STATES = 6 };
	struct rig r;

	rig_begin(&r);
	rpc_channel_free(&r.channel);
	r.s.prepare = prepare_echo;
	round_in_state(&r, 3); /* what grpc opens once, is open now */
	WAIT(&r, r.rpc->streams == NULL && r.rpc->channels == NULL);
	rig_settle(&r, 50);
	unsigned before = open_fds();

	for (unsigned i = 0; i < ROUNDS; i++) {
		round_in_state(&r, i % STATES);
		WAIT(&r, r.rpc->streams == NULL && r.rpc->channels == NULL);
		r.s.ncalls = 0;
	}
	rig_guard(&r, "fds return");
	while (open_fds() > before)
		rig_settle(&r, 10);
	rig_unguard();
	assert_int_equal(open_fds(), before);
	rig_end(&r);
}

/* --- isolation --- */

static void test_servers_see_only_their_own_calls(void **state)
{
	(void)state;
	struct rig r;
	struct served other;
	struct rpc_channel *to_other;
	struct side c[10] = {{.stream = NULL}};

	rig_begin(&r);
	served_begin(
	    &other, &r, &(struct rpc_server_options){.max_message = 1000, .max_streams = 10});
	served_listen(&other);
	to_other = rig_channel(&r, other.path, 0);
	for (unsigned i = 0; i < 10; i++) {
		struct rpc_channel *mine = r.channel;
		char method[16];

		snprintf(method, sizeof(method), i % 2 ? "/b/%u" : "/a/%u", i);
		r.channel = i % 2 ? to_other : mine;
		rig_open_call(&r, &c[i], &(struct rpc_call){.method = method});
		r.channel = mine;
	}
	WAIT(&r, r.s.ncalls == 5 && other.ncalls == 5);
	rig_settle(&r, 20);
	for (unsigned i = 0; i < 5; i++) {
		assert_memory_equal(r.s.calls[i].method, "/a/", 3);
		assert_memory_equal(other.calls[i].method, "/b/", 3);
	}
	assert_int_equal(r.s.ncalls, 5);
	assert_int_equal(other.ncalls, 5);
	/* One goes, the other's calls live on. */
	served_end(&other);
	for (unsigned i = 1; i < 10; i += 2)
		WAIT(&r, c[i].closes == 1);
	for (unsigned i = 0; i < 10; i += 2)
		assert_int_equal(c[i].closes, 0);
	for (unsigned i = 0; i < 10; i++)
		side_reset(&c[i]);
	rpc_channel_free(&to_other);
	rig_end(&r);
}

/* Streams above the limit wait; a well-behaved client is not cut off. */
static void test_stream_limit(void **state)
{
	(void)state;
	struct rig r;
	struct served two;
	struct side c[3] = {{.stream = NULL}};

	rig_begin(&r);
	served_begin(&two, &r, &(struct rpc_server_options){.max_message = 1000, .max_streams = 2});
	served_listen(&two);
	rpc_channel_free(&r.channel);
	r.channel = rig_channel(&r, two.path, 0);
	rig_open(&r, &c[0]);
	WAIT(&r, two.ncalls == 1); /* the limit is known by now */
	rig_open(&r, &c[1]);
	rig_open(&r, &c[2]);
	WAIT(&r, two.ncalls == 2);
	rig_settle(&r, 50);
	assert_int_equal(two.ncalls, 2);
	rpc_close(&two.calls[0].stream, RPC_OK, "");
	WAIT(&r, two.ncalls == 3);
	assert_int_equal(two.connections, 1);
	for (unsigned i = 0; i < 3; i++)
		side_reset(&c[i]);
	served_end(&two);
	rig_end(&r);
}

/* --- hostile peers --- */

static void test_garbage_closes_only_its_own_connection(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "before", 6);
	WAIT(&r, r.client.messages == 1);

	int fd = served_dial(&r.s);

	WAIT(&r, r.s.connections == 2);
	assert_int_equal(write(fd, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 27), 27);
	rig_guard(&r, "the connection is closed");
	while (!is_at_end(fd))
		rig_settle(&r, 5);
	rig_unguard();
	close(fd);
	rpc_send(r.client.stream, "after", 5);
	WAIT(&r, r.client.messages == 2);
	assert_int_equal(r.client.closes, 0);
	rig_end(&r);
}

/* Peers that say nothing, or only the preface, disturb nobody; they go with the server. */
static void test_silent_peers(void **state)
{
	(void)state;
	struct rig r;
	int silent, preface;

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	silent = served_dial(&r.s);
	preface = served_dial(&r.s);
	assert_int_equal(write(preface, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24), 24);
	WAIT(&r, r.s.connections == 2);
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "hello", 5);
	WAIT(&r, r.client.messages == 1);
	assert_false(is_at_end(silent));
	assert_false(is_at_end(preface));
	rpc_server_free(&r.s.server);
	rig_guard(&r, "both are closed");
	while (!is_at_end(silent) || !is_at_end(preface))
		rig_settle(&r, 5);
	rig_unguard();
	close(silent);
	close(preface);
	rig_end(&r);
}

/* What is counted is what holds an fd: silent ones, one with a call, until its peer goes. */
static void test_connections_are_counted(void **state)
{
	(void)state;
	enum { MANY = 33, LEFT = 7 };
	struct rig r;
	int peers[MANY], others[MANY];

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	assert_int_equal(rpc_server_connections(r.s.server), 0);
	unsigned before = open_fds();
	for (unsigned i = 0; i < MANY; i++)
		peers[i] = served_dial(&r.s);
	WAIT(&r, r.s.connections == MANY);
	assert_int_equal(rpc_server_connections(r.s.server), MANY);
	unsigned all = open_fds();
	for (unsigned i = LEFT; i < MANY; i++)
		close(peers[i]);
	rig_guard(&r, "both ends are closed");
	while (open_fds() > all - 2 * (MANY - LEFT))
		rig_settle(&r, 5);
	rig_unguard();
	/* The numbers of the closed ones are taken by sockets that are not the server's. */
	for (unsigned i = 0; i < MANY; i++)
		others[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(rpc_server_connections(r.s.server), LEFT);
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "hello", 5);
	WAIT(&r, r.client.messages == 1);
	assert_int_equal(rpc_server_connections(r.s.server), LEFT + 1);
	side_reset(&r.client);
	rpc_channel_free(&r.channel);
	for (unsigned i = 0; i < LEFT; i++)
		close(peers[i]);
	for (unsigned i = 0; i < MANY; i++)
		close(others[i]);
	rig_wait_connections(&r, r.s.server, 0);
	rig_guard(&r, "all are closed");
	while (open_fds() > before + 2) /* the rig's copy of the last one; grpc's own */
		rig_settle(&r, 5);
	rig_unguard();
	rig_end(&r);
}

/* Known again by its inode: whoever has its number later is not cut. */
static void test_a_connection_can_be_cut(void **state)
{
	(void)state;
	struct rig r;
	int pair[2], other[2];

	rig_begin(&r);
	assert_int_equal(
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	struct rpc_connection c = rpc_server_adopt(r.s.server, pair[0]);
	assert_true(rpc_connection_is_open(&c));
	assert_false(is_at_end(pair[1]));
	rpc_connection_cut(&c);
	rig_guard(&r, "the peer and we see its end");
	while (!is_at_end(pair[1]) || rpc_connection_is_open(&c))
		rig_settle(&r, 5);
	rig_unguard();
	close(pair[1]);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, other), 0);
	struct rpc_connection same_number = {other[0], c.inode}, none = {.fd = -1};
	rpc_connection_cut(&same_number);
	rpc_connection_cut(&none);
	assert_false(rpc_connection_is_open(&same_number) || rpc_connection_is_open(&none));
	assert_int_equal(write(other[1], "x", 1), 1);
	close(other[0]);
	close(other[1]);
	rig_end(&r);
}

/* A client that is no part of agentd: raw grpc with a queue of its own, polled by hand. */
struct raw {
	grpc_completion_queue *cq;
	grpc_channel *channel;
	grpc_call *call;
	grpc_metadata_array initial, trailing;
	grpc_status_code status;
	grpc_slice details;
};

static void raw_call(struct raw *c, const char *path, grpc_compression_algorithm how, size_t size)
{
	grpc_arg arg = {.type = GRPC_ARG_INTEGER,
	    .key = (char *)GRPC_COMPRESSION_CHANNEL_DEFAULT_ALGORITHM,
	    .value.integer = (int)how};
	grpc_channel_args args = {.num_args = 1, .args = &arg};
	grpc_channel_credentials *plain = grpc_insecure_credentials_create();
	char target[80], *zeroes = calloc(1, size);
	grpc_slice method = grpc_slice_from_static_string("/x/Y");
	grpc_slice slice = grpc_slice_from_copied_buffer(zeroes, size);
	grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
	grpc_op ops[] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
	    {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message},
	    {.op = GRPC_OP_RECV_INITIAL_METADATA,
		.data.recv_initial_metadata.recv_initial_metadata = &c->initial},
	    {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
		.data.recv_status_on_client = {.trailing_metadata = &c->trailing,
		    .status = &c->status,
		    .status_details = &c->details}}};

	snprintf(target, sizeof(target), "unix:%s", path);
	*c = (struct raw){.cq = grpc_completion_queue_create_for_next(NULL)};
	c->channel = grpc_channel_create(target, plain, &args);
	c->call = grpc_channel_create_call(c->channel, NULL, GRPC_PROPAGATE_DEFAULTS, c->cq, method,
	    NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
	assert_int_equal(grpc_call_start_batch(c->call, ops, 2, &ops[0], NULL), GRPC_CALL_OK);
	assert_int_equal(
	    grpc_call_start_batch(c->call, &ops[2], 2, &c->status, NULL), GRPC_CALL_OK);
	grpc_byte_buffer_destroy(message);
	grpc_slice_unref(slice);
	grpc_channel_credentials_release(plain);
	free(zeroes);
}

static bool raw_ended(struct raw *c)
{
	grpc_event ev = grpc_completion_queue_next(c->cq, gpr_time_0(GPR_CLOCK_MONOTONIC), NULL);

	return ev.type == GRPC_OP_COMPLETE && ev.tag == &c->status;
}

static void raw_end(struct raw *c)
{
	grpc_call_unref(c->call);
	grpc_channel_destroy(c->channel);
	grpc_completion_queue_shutdown(c->cq);
	while (grpc_completion_queue_next(c->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL).type !=
	       GRPC_QUEUE_SHUTDOWN)
		;
	grpc_completion_queue_destroy(c->cq);
	grpc_metadata_array_destroy(&c->initial);
	grpc_metadata_array_destroy(&c->trailing);
	grpc_slice_unref(c->details);
}

static void run_raw(struct rig *r, struct raw *c)
{
	rig_guard(r, "the raw client's call ends");
	while (!raw_ended(c))
		rig_settle(r, 1);
	rig_unguard();
}

/* The message limit is one of compressed bytes: 16 MiB of zeroes are 16 KiB of gzip. */
static void test_compression_is_refused(void **state)
{
	(void)state;
	struct rig r;
	struct raw c;

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	raw_call(&c, r.s.path, GRPC_COMPRESS_GZIP, 16 << 20);
	run_raw(&r, &c);
	assert_int_equal(c.status, GRPC_STATUS_UNIMPLEMENTED);
	for (unsigned i = 0; i < r.s.ncalls; i++) {
		assert_int_equal(r.s.calls[i].messages, 0);
		WAIT(&r, r.s.calls[i].closes == 1);
	}
	raw_end(&c);
	rig_end(&r);
}

/* The same client without compression is served: the test above does not pass by accident. */
static void test_raw_client_without_compression(void **state)
{
	(void)state;
	struct rig r;
	struct raw c;

	rig_begin(&r);
	raw_call(&c, r.s.path, GRPC_COMPRESS_NONE, 1000);
	WAIT(&r, r.s.ncalls == 1 && r.s.calls[0].messages == 1);
	assert_int_equal(r.s.calls[0].bytes, 1000);
	rpc_close(&r.s.calls[0].stream, RPC_OK, "");
	run_raw(&r, &c);
	assert_int_equal(c.status, GRPC_STATUS_OK);
	raw_end(&c);
	rig_end(&r);
}

/* --- freeing --- */

static struct served *to_free;

static void free_server(struct side *s, const struct rpc_msg *m)
{
	(void)s;
	(void)m;
	rpc_server_free(&to_free->server);
}

static void prepare_free(struct side *s)
{
	s->on_message = free_server;
}

/* Freed inside an event of its own stream: slots are NULL at once, and nothing more is heard. */
static void test_free_inside_an_event(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	to_free = &r.s;
	r.s.prepare = prepare_free;
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "one", 3);
	rpc_send(r.client.stream, "two", 3);
	WAIT(&r, r.client.closes == 1);
	assert_int_not_equal(r.client.status, RPC_OK);
	assert_int_equal(r.s.calls[0].messages, 1);
	assert_int_equal(r.s.calls[0].closes, 0);
	assert_null(r.s.calls[0].stream);
	WAIT(&r, r.rpc->servers == NULL);
	rig_end(&r);
}

static void free_in_incoming(void *ctx, struct rpc_stream *s, const char *method)
{
	struct rpc_server **server = ctx;

	(void)s;
	(void)method;
	rpc_server_free(server);
}

static void test_free_inside_incoming(void **state)
{
	(void)state;
	struct rig r;
	int pair[2];
	struct rpc_server_options o = {.max_message = 100, .max_streams = 1};

	rig_begin(&r);
	assert_return_code(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
	rpc_server_free(&r.s.server);
	r.s.server = rpc_server_new(r.rpc, &o, free_in_incoming, &r.s.server);
	rpc_server_adopt(r.s.server, pair[0]);
	close(pair[1]);
	rig_open(&r, &r.client);
	WAIT(&r, r.client.closes == 1);
	assert_null(r.s.server);
	WAIT(&r, r.rpc->servers == NULL);
	rig_end(&r);
}

/* A client that never reads holds the server's writes; freeing the server ends that, too. */
static void flood(struct side *s)
{
	static char chunk[1 << 20];

	rpc_send(s->stream, chunk, sizeof(chunk));
}

static void flood_first(struct side *s, const struct rpc_msg *m)
{
	(void)m;
	for (unsigned i = 0; i < 8; i++)
		flood(s);
}

static void prepare_flood(struct side *s)
{
	s->on_message = flood_first;
}

static bool has_streams_of_servers(const struct rpc *r)
{
	const struct rpc_stream *s;

	DL_FOREACH (r->streams, s)
		if (!s->channel)
			return true;
	return false;
}

static void test_free_while_nobody_reads(void **state)
{
	(void)state;
	struct rig r;

	for (unsigned closed_before = 0; closed_before < 2; closed_before++) {
		rig_begin(&r);
		r.s.prepare = prepare_flood;
		rig_open(&r, &r.client);
		rpc_pause(r.client.stream, true);
		rpc_send(r.client.stream, "go", 2);
		/* What was asked for before the pause. */
		WAIT(&r, r.client.messages == 1);
		assert_true(rpc_queued(r.s.calls[0].stream) > (6 << 20));
		if (closed_before)
			rpc_close(&r.s.calls[0].stream, RPC_OK, "");
		rpc_server_free(&r.s.server);
		WAIT(&r, r.rpc->servers == NULL);
		/* The client may have heard of it, if all that had come was read (rpc_pause()). */
		WAIT(&r, !has_streams_of_servers(r.rpc));
		rig_end(&r);
	}
}

/* The sanitizers'; gcc comes without their header. */
size_t __sanitizer_get_current_allocated_bytes(void);

/* Envoy's first requests are 60 kB; what a connection keeps for its next read is not. */
static void test_large_request_leaves_no_large_buffer(void **state)
{
	(void)state;
	static char request[60 * 1000];
	struct rig r;

	rig_begin(&r);
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "x", 1);
	WAIT(&r, r.s.ncalls == 1 && r.s.calls[0].messages == 1);
	rig_settle(&r, 20);
	size_t before = __sanitizer_get_current_allocated_bytes();
	for (unsigned i = 2; i < 6; i++) {
		rpc_send(r.client.stream, request, sizeof(request));
		WAIT(&r, r.s.calls[0].messages == i);
	}
	rig_guard(&r, "the buffers are freed");
	while (__sanitizer_get_current_allocated_bytes() >= before + 32 * 1024)
		rig_settle(&r, 5);
	rig_unguard();
	rig_end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_fd_is_checked_and_closed_on_exec),
	    cmocka_unit_test(test_fds_return),
	    cmocka_unit_test(test_servers_see_only_their_own_calls),
	    cmocka_unit_test(test_stream_limit),
	    cmocka_unit_test(test_garbage_closes_only_its_own_connection),
	    cmocka_unit_test(test_silent_peers),
	    cmocka_unit_test(test_connections_are_counted),
	    cmocka_unit_test(test_a_connection_can_be_cut),
	    cmocka_unit_test(test_compression_is_refused),
	    cmocka_unit_test(test_raw_client_without_compression),
	    cmocka_unit_test(test_free_inside_an_event),
	    cmocka_unit_test(test_free_inside_incoming),
	    cmocka_unit_test(test_free_while_nobody_reads),
	    cmocka_unit_test(test_large_request_leaves_no_large_buffer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
