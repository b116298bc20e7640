/* rpc_test.c - the runtime's end: whatever is under way, nothing leaks, hangs or is heard of later.
 * LINK: tests/unit/rpc/rpc_rig.c */
#include "rpc_rig.h"

#include "rpc/rpc_internal.h"

#include <event2/event.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>

static void prepare_echo(struct side *s)
{
	s->on_message = echo;
}

enum { CONNECTED = 999 }; /* instead of a number of turns: after all answers came */
enum victim { SERVER, CHANNEL, CLIENT_STREAM, SERVER_STREAM, RUNTIME, VICTIMS };

static void drop_victim(struct rig *r, enum victim v)
{
	switch (v) {
	case SERVER:
		rpc_server_free(&r->s.server);
		break;
	case CHANNEL:
		rpc_channel_free(&r->channel);
		break;
	case CLIENT_STREAM:
		rpc_close(&r->client.stream, RPC_CANCELLED, "");
		break;
	case SERVER_STREAM:
		rpc_close(&r->s.calls[0].stream, RPC_OK, "");
		break;
	default:
		break;
	}
}

/* A life cut off after `turns` turns of the loop by dropping one object; the rest goes in the order
 * of the owners, or with the runtime, that finds everything still there. */
static void cut_life(enum victim v, unsigned turns)
{
	struct rig r;

	rig_begin(&r);
	r.s.prepare = prepare_echo;
	rig_open(&r, &r.client);
	for (unsigned i = 0; i < 3; i++)
		rpc_send(r.client.stream, "some bytes that are echoed", 26);
	if (turns == CONNECTED)
		WAIT(&r, r.client.messages == 3);
	else
		rig_spin(&r, turns);
	if (turns % 3 == 2)
		rig_settle(&r, 1);
	drop_victim(&r, v);
	if (v == RUNTIME) {
		rpc_free(&r.rpc);
		assert_null(r.client.stream); /* slots are NULL, so owners may close them still */
		assert_int_equal(r.client.closes, 0);
		r.s.server = NULL;
		r.channel = NULL;
	}
	rig_spin(&r, turns % 5);
	rig_end(&r);
}

static void test_ends_at_every_stage(void **state)
{
	(void)state;

	for (unsigned turns = 0; turns < 40; turns++)
		for (unsigned v = 0; v < VICTIMS; v++)
			cut_life(v, turns);
}

/* Each runtime takes its fds with it.  (A connection attempt under way is left to grpc, which
 * forgets it: the process is about to end.) */
static void test_runtime_leaves_nothing(void **state)
{
	(void)state;
	cut_life(RUNTIME, CONNECTED); /* what is opened once, is open now */
	unsigned before = open_fds();

	for (unsigned i = 0; i < 20; i++)
		cut_life(i % VICTIMS, CONNECTED);
	/* grpc closes its own by a thread of its own. */
	for (unsigned i = 0; i < 5000 && open_fds() > before; i++)
		usleep(1000);
	assert_true(open_fds() <= before);
}

static void test_null_is_accepted(void **state)
{
	(void)state;
	struct rpc *r = NULL;
	struct rpc_server *s = NULL;
	struct rpc_channel *c = NULL;
	struct rpc_stream *st = NULL;

	rpc_free(&r);
	rpc_server_free(&s);
	rpc_channel_free(&c);
	rpc_close(&st, RPC_OK, NULL);
}

/* --- what a burst leaves --- */

static unsigned trims;

int malloc_trim(size_t pad)
{
	(void)pad;
	trims++;
	return 0;
}

static void exchange(struct rig *r, unsigned messages)
{
	unsigned until = r->client.messages + messages;

	for (unsigned i = 0; i < messages; i++)
		rpc_send(r->client.stream, "x", 1);
	WAIT(r, r->client.messages == until);
}

/* Freed memory goes back once after a burst; a few messages are none. */
static void test_a_burst_is_tidied_up_once(void **state)
{
	(void)state;
	struct rig r;

	trims = 0;
	rig_begin(&r);
	r.s.prepare = prepare_echo;
	rig_open(&r, &r.client);
	exchange(&r, 3);
	assert_false(r.rpc->quiet.armed);
	exchange(&r, 200);
	assert_true(r.rpc->quiet.armed);
	WAIT(&r, trims == 1);
	assert_false(r.rpc->quiet.armed);
	exchange(&r, 3);
	assert_false(r.rpc->quiet.armed);
	assert_int_equal(trims, 1);
	rig_end(&r);
}

/* A push to one pod is few messages, and leaves as much. */
static void test_few_large_messages_are_a_burst(void **state)
{
	(void)state;
	enum { SIZE = 900 << 10 };
	char *bytes = calloc(1, SIZE);
	struct rig r;

	trims = 0;
	rig_begin(&r);
	r.s.prepare = prepare_echo;
	rig_open(&r, &r.client);
	exchange(&r, 3);
	assert_false(r.rpc->quiet.armed);
	for (unsigned i = 0; i < 4; i++)
		rpc_send(r.client.stream, bytes, SIZE);
	WAIT(&r, r.client.messages == 7);
	assert_true(r.rpc->quiet.armed);
	WAIT(&r, trims == 1);
	assert_false(r.rpc->quiet.armed);
	free(bytes);
	rig_end(&r);
}

/* --- a server that stops reading its socket --- */

static int listen_at(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	unlink(path); /* of one that was killed and had our pid */
	assert_return_code(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_return_code(listen(fd, 8), 0);
	return fd;
}

/* HTTP/2: SETTINGS with INITIAL_WINDOW_SIZE 2^31-1, then a WINDOW_UPDATE as large. */
static const unsigned char generous[] = {0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0x7f, 0xff, 0xff, 0xff, 0,
    0, 4, 8, 0, 0, 0, 0, 0, 0x7f, 0xff, 0, 0};

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Writes hang in the full socket, even when cancelled (istiod-live.md 1.12); the process must be
 * able to end. */
static void test_end_while_a_server_hangs(void **state)
{
	(void)state;
	enum { SIZE = 8 << 20 };
	struct rig r;
	char path[64], *bytes = calloc(1, SIZE);

	rig_begin(&r);
	snprintf(path, sizeof(path), "/tmp/rpc_test.%d", getpid());
	int listener = listen_at(path);

	rpc_channel_free(&r.channel);
	r.channel = rig_channel(&r, path, 0);
	rig_open(&r, &r.client);
	int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	assert_int_equal(write(peer, generous, sizeof(generous)), sizeof(generous));
	WAIT(&r, r.nchanges > 0 && r.changes[r.nchanges - 1] == RPC_READY);
	rpc_send(r.client.stream, bytes, SIZE);
	rpc_send(r.client.stream, bytes, SIZE);
	rig_settle(&r, 50);
	assert_int_equal(rpc_queued(r.client.stream), 2 * SIZE);

	/* Closing lets go of what is queued here; one message hangs. */
	rpc_close(&r.client.stream, RPC_CANCELLED, "");
	rpc_channel_free(&r.channel);
	rig_settle(&r, 20);
	int64_t start = now_ms();

	rpc_free(&r.rpc);
	print_message("rpc_free() took %d ms\n", (int)(now_ms() - start));
	assert_true(now_ms() - start < 30 * 1000); /* or for ever */
	r.s.server = NULL;
	rig_end(&r);
	close(peer);
	close(listener);
	unlink(path);
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_ends_at_every_stage),
	    cmocka_unit_test(test_runtime_leaves_nothing),
	    cmocka_unit_test(test_null_is_accepted),
	    cmocka_unit_test(test_a_burst_is_tidied_up_once),
	    cmocka_unit_test(test_few_large_messages_are_a_burst),
	    cmocka_unit_test(test_end_while_a_server_hangs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
