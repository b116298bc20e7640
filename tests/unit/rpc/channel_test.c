/* channel_test.c - connectivity, shards, and a channel's end, over unix sockets without TLS.
 *
 * LINK: tests/unit/rpc/rpc_rig.c tests/fake/secrets.c */
#include "rpc_rig.h"

#include "rpc/rpc_internal.h"
#include "tests/fake/secrets.h"

#include <event2/event.h>
#include <poll.h>
#include <sys/socket.h>

static void prepare_echo(struct side *s)
{
	s->on_message = echo;
}

static bool saw(const struct rig *r, enum rpc_channel_state s)
{
	return r->nchanges > 0 && r->changes[r->nchanges - 1] == s;
}

static void connect_and_talk(struct rig *r)
{
	r->s.prepare = prepare_echo;
	rig_open(r, &r->client);
	rpc_send(r->client.stream, "hello", 5);
	WAIT(r, r->client.messages == 1);
	WAIT(r, saw(r, RPC_READY));
}

/* READY -> IDLE is the only sign that a server sends its clients away (istiod-live.md 3). */
static void test_connectivity(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	assert_int_equal(rpc_channel_state(r.channel), RPC_IDLE);
	rig_settle(&r, 20);
	assert_int_equal(r.nchanges, 0); /* it does not connect before it is asked to */
	connect_and_talk(&r);
	assert_int_equal(rpc_channel_state(r.channel), RPC_READY);
	unsigned before = r.nchanges; /* 1 or 2: CONNECTING may be over when we look */

	rpc_server_free(&r.s.server);
	WAIT(&r, r.nchanges == before + 1);
	assert_int_equal(r.changes[before], RPC_IDLE);
	assert_int_equal(rpc_channel_state(r.channel), RPC_IDLE);
	WAIT(&r, r.client.closes == 1);
	assert_int_not_equal(r.client.status, RPC_OK);
	rig_end(&r);
}

static void on_ignored_call(void *ctx, struct rpc_stream *s, const char *method)
{
	(void)ctx;
	(void)s;
	(void)method;
}

/* The loop was busy, and when it looks the channel is READY again: still the owner must hear that
 * the old connection went, or its streams would not be moved. */
static void test_a_quick_reconnect_is_not_missed(void **state)
{
	(void)state;
	struct rig r;
	struct side again = {.stream = NULL};
	struct rpc_call call = {.method = "/x/Y", .wait_for_ready = true};
	struct rpc_server_options o = {.max_message = 1000, .max_streams = 10};
	struct pollfd p = {.events = POLLIN};

	rig_begin(&r);
	connect_and_talk(&r);
	unsigned before = r.nchanges;

	rpc_server_free(&r.s.server);
	r.s.server = rpc_server_new(r.rpc, &o, on_ignored_call, NULL);
	p.fd = r.s.listen_fd;
	/* grpc notices, soon; our loop does not run.  A call before that dies. */
	for (int tries = 0; tries < 600 && !p.revents; tries++) {
		side_reset(&again);
		rig_open_call(&r, &again, &call);
		rpc_queue_fetch(r.rpc, 100);
		poll(&p, 1, 0);
	}
	assert_true(p.revents & POLLIN);
	rpc_server_adopt(r.s.server, accept4(p.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
	rpc_queue_fetch(r.rpc, 100); /* mostly it is READY then; else CONNECTING is seen, too */
	assert_int_equal(r.nchanges, before);
	WAIT(&r, r.nchanges > before && saw(&r, RPC_READY));
	assert_int_equal(r.changes[before], RPC_IDLE);
	side_reset(&again);
	rig_end(&r);
}

/* Nobody listens: a plain call fails at once, one that waits for READY gets there later. */
static void test_wait_for_ready(void **state)
{
	(void)state;
	struct rig r;
	struct side fast = {.stream = NULL}, patient = {.stream = NULL};
	struct served late;
	struct rpc_call wait = {.method = "/x/Wait", .wait_for_ready = true};

	rig_begin(&r);
	served_begin(
	    &late, &r, &(struct rpc_server_options){.max_message = 1000, .max_streams = 10});
	late.prepare = prepare_echo;
	rpc_channel_free(&r.channel);
	r.channel = rig_channel(&r, late.path, 0);
	rig_open_call(&r, &patient, &wait);
	rig_open(&r, &fast);
	rpc_send(patient.stream, "patience", 8);
	WAIT(&r, fast.closes == 1);
	assert_int_equal(fast.status, RPC_UNAVAILABLE);
	assert_non_null(strstr(fast.why, "No such file"));
	WAIT(&r, saw(&r, RPC_TRANSIENT_FAILURE));
	assert_int_equal(patient.closes, 0);
	served_listen(&late);
	WAIT(&r, patient.messages == 1);
	assert_true(saw(&r, RPC_READY));
	side_reset(&patient);
	served_end(&late);
	rig_end(&r);
}

/* Asked once, without a stream; while there is no server it tries again and again by itself. */
static void test_connects_when_asked(void **state)
{
	(void)state;
	struct rig r;
	struct served late;

	rig_begin(&r);
	served_begin(
	    &late, &r, &(struct rpc_server_options){.max_message = 1000, .max_streams = 10});
	rpc_channel_free(&r.channel);
	r.channel = rig_channel(&r, late.path, 0);
	rpc_channel_connect(r.channel);
	WAIT(&r, saw(&r, RPC_TRANSIENT_FAILURE));
	rig_settle(&r, 500);
	served_listen(&late);
	WAIT(&r, saw(&r, RPC_READY));
	served_end(&late);
	rig_end(&r);
}

/* A target that is none: it only fails, says so from the start, and does not hold up the end, as a
 * watch on it would. */
static void test_no_target(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	rpc_channel_free(&r.channel);
	r.channel = rig_channel(&r, "", 0);
	assert_int_equal(rpc_channel_state(r.channel), RPC_TRANSIENT_FAILURE);
	rig_open(&r, &r.client);
	WAIT(&r, r.client.closes == 1);
	assert_int_not_equal(r.client.status, RPC_OK);
	rpc_channel_free(&r.channel);
	WAIT(&r, r.rpc->channels == NULL && r.rpc->pending <= 1); /* the server's request */
	rig_end(&r);
}

/* Different shards: connections of their own; the same shard: one. */
static void test_shards(void **state)
{
	(void)state;
	struct rig r;
	struct rpc_channel *channels[4];
	struct side c[4] = {{.stream = NULL}};

	rig_begin(&r);
	rpc_channel_free(&r.channel);
	r.s.prepare = prepare_echo;
	for (unsigned i = 0; i < 4; i++) {
		r.channel = channels[i] = rig_channel(&r, r.s.path, i % 2);
		rig_open(&r, &c[i]);
		rpc_send(c[i].stream, "hello", 5);
		WAIT(&r, c[i].messages == 1);
	}
	r.channel = NULL;
	assert_int_equal(r.s.connections, 2);
	for (unsigned i = 0; i < 4; i++) {
		side_reset(&c[i]);
		rpc_channel_free(&channels[i]);
	}
	rig_end(&r);
}

static bool peer_is_gone(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLRDHUP};

	return poll(&p, 1, 0) == 1;
}

/* Freed, its streams live on and nobody hears of its state; the connection goes with the last. */
static void test_streams_outlive_their_channel(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	connect_and_talk(&r);
	unsigned changes = r.nchanges;

	rpc_channel_free(&r.channel);
	assert_null(r.channel);
	rig_settle(&r, 30);
	rpc_send(r.client.stream, "still there?", 12);
	WAIT(&r, r.client.messages == 2);
	assert_false(peer_is_gone(r.s.peek_fd));
	rpc_close(&r.client.stream, RPC_CANCELLED, "");
	WAIT(&r, r.rpc->channels == NULL);
	rig_guard(&r, "the connection ends");
	while (!peer_is_gone(r.s.peek_fd))
		rig_settle(&r, 5);
	rig_unguard();
	assert_int_equal(r.nchanges, changes);
	rig_end(&r);
}

static void free_channel(struct side *s)
{
	rpc_channel_free(&s->rig->channel);
}

/* Freed by the event of its own stream, and inside its own `changed`. */
static void test_free_inside_events(void **state)
{
	(void)state;
	struct rig r;

	rig_begin(&r);
	r.s.refuse = true;
	r.client.on_closed = free_channel;
	rig_open(&r, &r.client);
	WAIT(&r, r.client.closes == 1);
	assert_null(r.channel);
	WAIT(&r, r.rpc->channels == NULL);
	rig_end(&r);
}

static struct rpc_channel *own;

static void free_own(void *ctx, enum rpc_channel_state s)
{
	(void)s;
	++*(unsigned *)ctx;
	rpc_channel_free(&own);
}

static void test_free_inside_changed(void **state)
{
	(void)state;
	struct rig r;
	unsigned changes = 0;
	struct rpc_channel_options o = {.plaintext = true, .shard = 7};
	struct rpc_channel *kept;

	rig_begin(&r);
	o.target = r.s.path;
	kept = r.channel;
	r.channel = own = rpc_channel_new(r.rpc, &o, free_own, &changes);
	rig_open(&r, &r.client);
	WAIT(&r, changes == 1);
	r.channel = kept;
	WAIT(&r, r.s.ncalls == 1);
	rig_settle(&r, 20);
	assert_int_equal(changes, 1);
	side_reset(&r.client);
	rig_end(&r);
}

/* --- headers --- */

static int open_with(struct rig *r, const char *key, const char *value, struct err *e)
{
	struct rpc_header h[] = {{"clusterid", "Kubernetes", false}, {key, value, true}};
	struct rpc_call call = {.method = "/x/Y", .headers = h, .nheaders = 2};

	return rpc_open(r->channel, &r->client.stream, &call, &side_events, &r->client, e);
}

/* grpc would print the value, and the call could not be used again (grpc-core.md 4). */
static void test_illegal_headers_fail_the_open(void **state)
{
	(void)state;
	static const char *const values[] = {"secret\n", "sec\x01ret", "s\351cret", "\x7f", "a\tb"};
	static const char *const keys[] = {"ClusterID", "", ":path", "with space", "some-bin"};
	struct rig r;
	struct err e;

	rig_begin(&r);
	for (unsigned i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		assert_int_equal(open_with(&r, "authorization", values[i], &e), -1);
		assert_null(r.client.stream);
		assert_int_equal(e.code, ERR_INVALID);
		assert_string_equal(e.msg, "/x/Y: header authorization has an illegal value");
	}
	for (unsigned i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		assert_int_equal(open_with(&r, keys[i], "fine", &e), -1);
		assert_string_equal(e.msg, "/x/Y: a header has an illegal name");
	}
	assert_null(r.rpc->streams);
	r.s.refuse = true;
	assert_int_equal(open_with(&r, "authorization", "Bearer fine", &e), 0);
	WAIT(&r, r.client.closes == 1);
	assert_int_equal(r.client.status, RPC_UNIMPLEMENTED);
	rig_end(&r);
}

/* A token is wiped by whoever lets go of it last, when it was refused and when grpc had it. */
static void test_header_values_are_wiped(void **state)
{
	(void)state;
	struct rig r;
	struct err e;

	if (!secrets_watched())
		skip();
	rig_begin(&r);
	rpc_channel_free(&r.channel);
	r.channel = rig_channel(&r, "/tmp/rpc_nobody_there", 0); /* so that it is not serialised */
	secrets_watch();
	assert_int_equal(open_with(&r, "authorization", "Bearer SECRET-SECRET-SECRET\n", &e), -1);
	assert_int_equal(open_with(&r, "authorization", "Bearer SECRET-SECRET-SECRET", &e), 0);
	WAIT(&r, r.client.closes == 1);
	assert_int_equal(r.client.status, RPC_UNAVAILABLE);
	WAIT(&r, !r.rpc->streams);
	rig_end(&r);
	assert_int_equal(secrets_freed(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_connectivity),
	    cmocka_unit_test(test_a_quick_reconnect_is_not_missed),
	    cmocka_unit_test(test_wait_for_ready),
	    cmocka_unit_test(test_connects_when_asked),
	    cmocka_unit_test(test_no_target),
	    cmocka_unit_test(test_shards),
	    cmocka_unit_test(test_streams_outlive_their_channel),
	    cmocka_unit_test(test_free_inside_events),
	    cmocka_unit_test(test_free_inside_changed),
	    cmocka_unit_test(test_illegal_headers_fail_the_open),
	    cmocka_unit_test(test_header_values_are_wiped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
