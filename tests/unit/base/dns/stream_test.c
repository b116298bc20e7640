/* stream_test.c - messages in pieces and in heaps, both ways; who does not read is ended.
 *
 * LINK: tests/fake/loop.c
 */
#include "base/dns/stream.h"
#include "common/mem.h"
#include "tests/fake/loop.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

static struct world {
	struct loop *l;
	struct dns_stream *s;
	int peer;
	char log[4096];
	bool free_it;
	int64_t hold_ms;
} w;

static void on_message(void *ctx, uint8_t *data, size_t size)
{
	size_t n = strlen(w.log);

	(void)ctx;
	snprintf(w.log + n, sizeof(w.log) - n, "%.*s;", (int)(size < 9 ? size : 9), (char *)data);
	if (w.hold_ms)
		dns_stream_hold(w.s, w.hold_ms);
	if (w.free_it)
		dns_stream_free(&w.s);
}

static void on_closed(void *ctx)
{
	(void)ctx;
	strcat(w.log, "closed");
	dns_stream_free(&w.s);
}

static int setup(void **state)
{
	static const struct dns_stream_events ev = {on_message, on_closed};
	int pair[2];

	(void)state;
	memset(&w, 0, sizeof(w));
	w.l = fake_loop();
	assert_int_equal(
	    socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	w.peer = pair[1];
	w.s = dns_stream_new(w.l, pair[0], &ev, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	dns_stream_free(&w.s);
	close(w.peer);
	fake_loop_end(&w.l);
	return 0;
}

static void put(const char *bytes, size_t size)
{
	assert_int_equal(send(w.peer, bytes, size, 0), size);
	fake_loop_advance(w.l, 0);
}

static void said(const char *what)
{
	assert_string_equal(w.log, what);
	*w.log = '\0';
}

static void in_pieces(void **state)
{
	(void)state;
	put("\0", 1);
	put("\5he", 3);
	said("");
	put("llo\0\1a\0", 7);
	said("hello;a;");
	put("\0\0\2", 3);
	said(";");
	put("bc", 2);
	said("bc;");
}

/* More than one turn takes. */
static void in_a_heap(void **state)
{
	char heap[300];

	(void)state;
	for (size_t i = 0; i < sizeof(heap); i += 3)
		memcpy(heap + i, "\0\1x", 3);
	put(heap, sizeof(heap));
	assert_int_equal(strlen(w.log), 200);
}

static void held(void **state)
{
	(void)state;
	w.hold_ms = 100;
	put("\0\1a\0\1b\0\1c", 9);
	put("\0\1d", 3);
	said("a;");
	fake_loop_advance(w.l, 99);
	said("");
	fake_loop_advance(w.l, 1);
	said("b;");
	w.hold_ms = 0;
	fake_loop_advance(w.l, 100);
	said("c;d;");
}

static void freed_by_its_event(void **state)
{
	(void)state;
	w.free_it = true;
	put("\0\1a\0\1b", 6);
	said("a;");
	assert_int_equal(fake_loop_live(w.l), 0);
}

static void the_other_end_goes(void **state)
{
	(void)state;
	put("\0\1a\0", 4);
	shutdown(w.peer, SHUT_WR);
	fake_loop_advance(w.l, 0);
	said("a;closed");
}

static void said_to_the_other_end(void **state)
{
	char got[16];

	(void)state;
	dns_stream_send(w.s, (const uint8_t *)"abc", 3);
	dns_stream_send(w.s, (const uint8_t *)"d", 1);
	fake_loop_advance(w.l, 0);
	assert_int_equal(recv(w.peer, got, sizeof(got), 0), 8);
	assert_memory_equal(got, "\0\3abc\0\1d", 8);
	close(w.peer);
	w.peer = -1;
	dns_stream_send(w.s, (const uint8_t *)"e", 1);
	fake_loop_advance(w.l, 0);
	said("closed");
	w.peer = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void nobody_reads(void **state)
{
	static const uint8_t message[16384];

	(void)state;
	for (int i = 0; i < 1000 && w.s; i++) {
		dns_stream_send(w.s, message, sizeof(message));
		assert_non_null(w.s); /* not inside of the call */
		fake_loop_advance(w.l, 0);
	}
	said("closed");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(in_pieces),
	    TEST(in_a_heap),
	    TEST(held),
	    TEST(freed_by_its_event),
	    TEST(the_other_end_goes),
	    TEST(said_to_the_other_end),
	    TEST(nobody_reads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
