/* rpc_limits_test.c - what a server ends or holds for a limit, and what it says about it.
 * LINK: tests/unit/rpc/rpc_rig.c */
#include "rpc_rig.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

static unsigned requests, breaches[2];

static void on_request(void *ctx)
{
	(void)ctx;
	requests++;
}

static void on_breach(void *ctx, enum rpc_breach what)
{
	(void)ctx;
	breaches[what]++;
}

static void begin(struct rig *r, struct served *s, unsigned silent_ms)
{
	const struct rpc_server_options o = {.max_message = 1000,
	    .max_streams = 10,
	    .max_headers = 4096,
	    .silent_ms = silent_ms,
	    .request = on_request,
	    .breach = on_breach};

	requests = breaches[0] = breaches[1] = 0;
	rig_begin(r);
	served_begin(s, r, &o);
	served_listen(s);
	rpc_channel_free(&r->channel);
	r->channel = rig_channel(r, s->path, 0);
}

/* Who says nothing, or only that it speaks HTTP/2, goes; who has called stays. */
static void test_silent_connections_end(void **state)
{
	static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0";
	struct rig r;
	struct served s;
	struct side c = {.stream = NULL};
	int mute, polite;

	(void)state;
	begin(&r, &s, 1500);
	rig_open(&r, &c);
	WAIT(&r, s.ncalls == 1);
	mute = served_dial(&s);
	polite = served_dial(&s);
	assert_int_equal(
	    send(polite, preface, sizeof(preface) - 1, MSG_NOSIGNAL), sizeof(preface) - 1);
	WAIT(&r, s.connections == 3);
	assert_false(is_at_end(mute));
	WAIT(&r, breaches[RPC_BREACH_SILENT] == 2);
	WAIT(&r, is_at_end(mute) && is_at_end(polite));
	rig_wait_connections(&r, s.server, 1);
	rig_settle(&r, 1600);
	assert_int_equal(rpc_server_connections(s.server), 1);
	assert_int_equal(c.closes, 0);
	assert_int_equal(breaches[RPC_BREACH_SILENT], 2);
	close(mute);
	close(polite);
	side_reset(&c);
	served_end(&s);
	rig_end(&r);
}

/* A message that is too large is a breach; a stream that the client ends in any state is none. */
static void test_only_large_messages_are_a_breach(void **state)
{
	static const char large[1001];
	struct rig r;
	struct served s;
	struct side c = {.stream = NULL};

	(void)state;
	begin(&r, &s, 0);
	for (unsigned i = 0; i < 2; i++) {
		rig_open(&r, &c);
		rpc_send(c.stream, "x", 1);
		WAIT(&r, s.ncalls == i + 1 && s.calls[i].messages == 1);
		if (i == 0)
			rpc_close(&c.stream, RPC_CANCELLED, "");
		else
			rpc_half_close(c.stream);
		WAIT(&r, s.calls[i].closes == 1 || s.calls[i].half_closes == 1);
		side_reset(&c);
	}
	assert_int_equal(requests, 2);
	assert_int_equal(breaches[RPC_BREACH_MESSAGE], 0);
	rig_open(&r, &c);
	rpc_send(c.stream, large, sizeof(large) - 1); /* as much as may be */
	WAIT(&r, s.ncalls == 3 && s.calls[2].messages == 1);
	rpc_send(c.stream, large, sizeof(large));
	WAIT(&r, s.calls[2].closes == 1);
	assert_int_equal(breaches[RPC_BREACH_MESSAGE], 1);
	assert_int_equal(s.calls[2].messages, 1);
	side_reset(&c);
	served_end(&s);
	rig_end(&r);
}

/* While it is held nothing is read but what was asked for; afterwards all comes, in order. */
static void test_hold(void **state)
{
	struct rig r;
	struct served s;
	struct side c = {.stream = NULL};

	(void)state;
	begin(&r, &s, 0);
	rig_open(&r, &c);
	WAIT(&r, s.ncalls == 1);
	rpc_server_hold(s.server, true);
	for (unsigned i = 0; i < 5; i++)
		rpc_send(c.stream, "x", 1);
	WAIT(&r, s.calls[0].messages == 1);
	rig_settle(&r, 50);
	assert_int_equal(s.calls[0].messages, 1);
	rpc_pause(s.calls[0].stream, true);
	rpc_server_hold(s.server, false);
	rig_settle(&r, 50);
	assert_int_equal(s.calls[0].messages, 1); /* its owner does not want to read yet */
	rpc_pause(s.calls[0].stream, false);
	WAIT(&r, s.calls[0].messages == 5);
	assert_int_equal(requests, 5);
	side_reset(&c);
	served_end(&s);
	rig_end(&r);
}

static void refuse_it(void *ctx, struct rpc_stream *s, const char *method)
{
	bool *whole = ctx;

	(void)method;
	if (*whole)
		rpc_refuse_connection(s);
	else
		rpc_refuse(s, RPC_RESOURCE_EXHAUSTED, "too many");
}

/* One call, or the connection with all its calls. */
static void test_refusals(void **state)
{
	const struct rpc_server_options o = {.max_message = 1000, .max_streams = 10};
	struct rig r;
	struct served s;
	struct side c = {.stream = NULL};
	bool whole = false;
	int mute;

	(void)state;
	begin(&r, &s, 0);
	rpc_server_free(&s.server);
	s.server = rpc_server_new(r.rpc, &o, refuse_it, &whole);
	rig_open(&r, &c);
	WAIT(&r, c.closes == 1);
	assert_int_equal(c.status, RPC_RESOURCE_EXHAUSTED);
	assert_string_equal(c.why, "too many");
	WAIT(&r, rpc_server_streams(s.server) == 0);
	assert_int_equal(rpc_server_connections(s.server), 1);
	mute = served_dial(&s);
	WAIT(&r, s.connections == 2);
	side_reset(&c);
	whole = true;
	rig_open(&r, &c);
	WAIT(&r, c.closes == 1);
	rig_wait_connections(&r, s.server, 1);
	assert_false(is_at_end(mute)); /* another one of the same pod */
	side_reset(&c);
	close(mute);
	served_end(&s);
	rig_end(&r);
}

/* Whoever is guarded is read a portion at a time (portion.h), and all of it comes. */
static void test_portions_of_a_message(void **state)
{
	enum { SIZE = 3 << 20 };
	const struct rpc_server_options o = {.max_message = SIZE,
	    .max_streams = 10,
	    .max_headers = 4096,
	    .per_second = 1000,
	    .burst = 1000};
	char *message = calloc(1, SIZE);
	struct rig r;
	struct served s;
	struct side c = {.stream = NULL};

	(void)state;
	rig_begin(&r);
	served_begin(&s, &r, &o);
	served_listen(&s);
	rpc_channel_free(&r.channel);
	r.channel = rig_channel(&r, s.path, 0);
	rig_open(&r, &c);
	for (unsigned i = 1; i <= 4; i++) {
		rpc_send(c.stream, message, SIZE);
		WAIT(&r, s.ncalls == 1 && s.calls[0].messages == i);
	}
	assert_int_equal(s.calls[0].bytes, 4 * SIZE);
	side_reset(&c);
	served_end(&s);
	rig_end(&r);
	free(message);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_silent_connections_end),
	    cmocka_unit_test(test_only_large_messages_are_a_breach),
	    cmocka_unit_test(test_hold),
	    cmocka_unit_test(test_refusals),
	    cmocka_unit_test(test_portions_of_a_message),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
