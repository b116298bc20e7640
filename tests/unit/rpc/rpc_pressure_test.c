/* rpc_pressure_test.c - writers that are faster than their readers, and streams closed with a
 * queue.
 *
 * LINK: tests/unit/rpc/rpc_rig.c */
#include "rpc_rig.h"

#include "rpc/rpc_internal.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

static void prepare_echo(struct side *s)
{
	s->on_message = echo;
}

static void flood(struct side *s)
{
	static char chunk[256 << 10];

	rpc_send(s->stream, chunk, sizeof(chunk));
}

static void flood_first(struct side *s, const struct rpc_msg *m)
{
	(void)m;
	flood(s);
}

static void prepare_flood(struct side *s)
{
	s->on_message = flood_first;
	s->on_writable = flood;
}

/* A peer that asks for nothing gets little more than a window: the writer is held back, and goes on
 * when the reader does.  BDP probing must be off for this (grpc-core.md 3). */
static void test_back_pressure(void **state)
{
	(void)state;
	struct rig r;
	struct side *server;

	rig_begin(&r);
	r.s.prepare = prepare_flood;
	rig_open(&r, &r.client);
	rpc_pause(r.client.stream, true);
	rpc_send(r.client.stream, "go", 2);
	WAIT(&r, r.s.ncalls == 1 && r.s.calls[0].messages == 1);
	server = &r.s.calls[0];
	rig_settle(&r, 200);
	print_message(
	    "taken by grpc from a writer whose reader pauses: %u x 256 KiB\n", server->writables);
	assert_true(server->writables <= 4);
	assert_true(rpc_queued(server->stream) > 0);
	/* The read that was armed when it paused brings one message, no more. */
	assert_true(r.client.messages <= 1);

	unsigned before = server->writables;
	rpc_pause(r.client.stream, false);
	WAIT(&r, r.client.messages >= 40);
	assert_true(server->writables > before + 30);
	rig_end(&r);
}

/* Pausing inside `message` is exact: the next one is not even asked for. */
static void pause_self(struct side *s, const struct rpc_msg *m)
{
	(void)m;
	rpc_pause(s->stream, true);
}

static void prepare_pause(struct side *s)
{
	s->on_message = pause_self;
}

static void test_pause_inside_message(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	r.client.on_message = pause_self;
	rig_open(&r, &r.client);
	for (unsigned i = 0; i < 5; i++)
		rpc_send(r.client.stream, "x", 1);
	WAIT(&r, r.client.messages == 1);
	for (unsigned i = 2; i <= 5; i++) {
		rig_settle(&r, 20);
		assert_int_equal(r.client.messages, i - 1);
		rpc_pause(r.client.stream, false);
		WAIT(&r, r.client.messages == i);
	}
	rig_end(&r);
}

/* Messages that came before the status are not lost when their reader pauses; status comes last. */
static void send_three_and_close(struct side *s, const struct rpc_msg *m)
{
	(void)m;
	for (unsigned i = 0; i < 3; i++)
		rpc_send(s->stream, "message", 7);
	rpc_close(&s->stream, RPC_ABORTED, "that was all");
}

static void prepare_three(struct side *s)
{
	s->on_message = send_three_and_close;
}

static void test_status_comes_after_the_messages(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_three;
	r.client.on_message = pause_self;
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "go", 2);
	for (unsigned i = 1; i <= 3; i++) {
		WAIT(&r, r.client.messages == i);
		rig_settle(&r, 20);
		if (r.client.stream)
			rpc_pause(r.client.stream, false);
	}
	WAIT(&r, r.client.closes == 1);
	assert_int_equal(r.client.messages, 3);
	assert_int_equal(r.client.status, RPC_ABORTED);
	assert_string_equal(r.client.why, "that was all");
	rig_end(&r);
}

/* A server that does not read hears of its client's end all the same. */
static void test_paused_server_hears_of_the_end(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_pause;
	rig_open(&r, &r.client);
	rpc_send(r.client.stream, "one", 3);
	rpc_send(r.client.stream, "two", 3);
	WAIT(&r, r.s.ncalls == 1 && r.s.calls[0].messages == 1);
	rig_settle(&r, 20);
	rpc_close(&r.client.stream, RPC_CANCELLED, "");
	WAIT(&r, r.s.calls[0].closes == 1);
	assert_int_equal(r.s.calls[0].messages, 1);
	rig_end(&r);
}

/* --- a server's close --- */

/* Closed with a full queue towards a peer that reads later: all of it arrives, then the status. */
static void fill_and_close(struct side *s, const struct rpc_msg *m)
{
	(void)m;
	for (unsigned i = 0; i < 20; i++)
		flood(s);
	rpc_close(&s->stream, RPC_OK, "done");
}

static void prepare_fill(struct side *s)
{
	s->on_message = fill_and_close;
}

static void test_close_flushes(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_fill;
	r.client.on_message = NULL;
	rig_open(&r, &r.client);
	rpc_pause(r.client.stream, true);
	rpc_send(r.client.stream, "go", 2);
	WAIT(&r, r.s.ncalls == 1 && r.s.calls[0].messages == 1);
	rig_settle(&r, 20);
	rpc_pause(r.client.stream, false);
	WAIT(&r, r.client.closes == 1);
	assert_int_equal(r.client.messages, 20);
	assert_int_equal(r.client.status, RPC_OK);
	rig_end(&r);
}

/* The same towards a peer that never reads: after the grace it is cancelled and its queue dropped.
 */
static void test_close_does_not_wait_for_ever(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_fill;
	rig_open(&r, &r.client);
	rpc_pause(r.client.stream, true);
	rpc_send(r.client.stream, "go", 2);
	WAIT(&r, r.s.ncalls == 1 && r.s.calls[0].messages == 1);
	rig_settle(&r, 50);
	/* The client's stream is the one with a channel; the other one lingers. */
	struct rpc_stream *lingering = r.rpc->streams;

	while (lingering->channel)
		lingering = lingering->next;
	assert_true(lingering->linger.armed);
	assert_true(lingering->queued > (3 << 20));
	loop_timer_in(
	    r.loop, &lingering->linger, 1, lingering->linger.fired, lingering->linger.ctx);
	WAIT(&r, r.rpc->streams == r.client.stream && !r.client.stream->next);
	/* grpc tells a client that does not read nothing, not even this (rpc.h). */
	rig_settle(&r, 30);
	assert_int_equal(r.client.closes, 0);
	rpc_pause(r.client.stream, false);
	WAIT(&r, r.client.closes == 1);
	assert_int_equal(r.client.status, RPC_CANCELLED);
	rig_end(&r);
}

/* A client of few bytes that opens wide windows, asks once on stream 1, and never reads. */
static int connect_deaf(const struct rig *r)
{
	static const char hello[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
				    "\0\0\6\4\0\0\0\0\0\0\4\x7f\xff\xff\xff"
				    "\0\0\4\x8\0\0\0\0\0\x70\0\0\0"
				    "\0\0\x29\1\4\0\0\0\1\x83\x86\4\2/x\1\1x"
				    "\xf\x10\x10"
				    "application/grpc\0\2te\x8trailers"
				    "\0\0\7\0\0\0\0\0\1\0\0\0\0\2go";
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", r->s.path);
	assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(write(fd, hello, sizeof(hello) - 1), sizeof(hello) - 1);
	return fd;
}

static bool is_hung_up(int fd)
{
	struct pollfd p = {.fd = fd};

	return poll(&p, 1, 0) == 1 && p.revents & POLLHUP;
}

/* istiod-live.md 1.12: a write to a full socket outlives a cancelled call; its connection's end
 * ends it.  The other connection of the same server stays. */
static void test_abort_ends_a_stuck_connection(void **state)
{
	(void)state;
	struct rig r;
	struct side *stuck;
	int deaf;

	rig_begin(&r);
	r.s.prepare = prepare_flood;
	deaf = connect_deaf(&r);
	WAIT(&r, r.s.ncalls == 1 && r.s.calls[0].messages == 1);
	stuck = &r.s.calls[0];
	r.s.prepare = prepare_echo;
	rig_open(&r, &r.client);
	WAIT(&r, r.s.ncalls == 2);
	rig_settle(&r, 50);
	assert_true(rpc_queued(stuck->stream) > 0);
	rpc_abort(&stuck->stream);
	assert_null(stuck->stream);
	assert_true(is_hung_up(deaf));
	WAIT(&r, !r.rpc->streams->next || !r.rpc->streams->next->next);
	rpc_abort(&stuck->stream); /* NULL is fine */
	rpc_send(r.client.stream, "hello", 5);
	WAIT(&r, r.client.messages == 1);
	assert_int_equal(stuck->closes, 0);
	close(deaf);
	rig_end(&r);
}

/* The number may be another connection's by now: that one is not cut. */
static void test_abort_cuts_no_other_connection(void **state)
{
	(void)state;
	struct rig r;
	int pair[2];

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	rig_open(&r, &r.client);
	WAIT(&r, r.s.ncalls == 1);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	r.s.calls[0].stream->fd = pair[0];
	rpc_abort(&r.s.calls[0].stream);
	assert_false(is_hung_up(pair[1]));
	WAIT(&r, r.client.closes == 1); /* the call ends all the same */
	close(pair[0]);
	close(pair[1]);
	rig_end(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_abort_ends_a_stuck_connection),
	    cmocka_unit_test(test_abort_cuts_no_other_connection),
	    cmocka_unit_test(test_back_pressure),
	    cmocka_unit_test(test_pause_inside_message),
	    cmocka_unit_test(test_status_comes_after_the_messages),
	    cmocka_unit_test(test_paused_server_hears_of_the_end),
	    cmocka_unit_test(test_close_flushes),
	    cmocka_unit_test(test_close_does_not_wait_for_ever),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
