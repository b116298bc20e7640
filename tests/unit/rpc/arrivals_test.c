/* arrivals_test.c - frames of both directions, and what is told of them. */
#include "rpc/arrivals.h"
#include "rpc/frames.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WIRE = 4096, TOLD = 4096 };
enum { PRIORITY = 2 };

struct wire {
	uint8_t bytes[WIRE];
	size_t n;
};

struct talk {
	struct rpc_arrivals *a;
	struct wire out, in;
	char told[TOLD]; /* "o1 m1:5 e1 " */
};

static void on_told(void *ctx, uint64_t mark, enum rpc_arrival what, uint32_t size)
{
	struct talk *t = ctx;
	size_t at = strlen(t->told);

	if (what == RPC_ARRIVAL_MESSAGE)
		snprintf(t->told + at, TOLD - at, "m%x:%u ", (unsigned)mark, size);
	else
		snprintf(t->told + at, TOLD - at, "%c%x ", what == RPC_ARRIVAL_END ? 'e' : 'o',
		    (unsigned)mark);
}

static void put(struct wire *w, const void *bytes, size_t n)
{
	assert_true(w->n + n <= WIRE);
	memcpy(w->bytes + w->n, bytes, n);
	w->n += n;
}

static void frame(struct wire *w, uint8_t type, uint8_t flags, uint8_t stream, size_t size)
{
	const uint8_t head[] = {
	    0, (uint8_t)(size >> 8), (uint8_t)size, type, flags, 0, 0, 0, stream};

	put(w, head, sizeof(head));
}

static void request(struct talk *t, uint8_t stream, const char *name, const char *value)
{
	char field[100] = "\x83";
	int n = snprintf(field + 1, sizeof(field) - 1, "%c%c%s%c%s", 1, (char)strlen(name), name,
	    (char)strlen(value), value);

	field[1] = 0;
	frame(&t->out, RPC_FRAME_HEADERS, RPC_FLAG_END_HEADERS, stream, (size_t)n + 1);
	put(&t->out, field, (size_t)n + 1);
}

static void marked(struct talk *t, uint8_t stream, unsigned mark)
{
	char value[RPC_ARRIVALS_DIGITS + 1];

	snprintf(value, sizeof(value), "%016x", mark);
	request(t, stream, RPC_ARRIVALS_HEADER, value);
}

/* The prefix and the content, in one frame. */
static void message(struct talk *t, uint8_t stream, uint8_t flags, size_t size)
{
	const uint8_t prefix[] = {0, 0, 0, (uint8_t)(size >> 8), (uint8_t)size};
	uint8_t content[WIRE] = {0};

	frame(&t->in, RPC_FRAME_DATA, flags, stream, sizeof(prefix) + size);
	put(&t->in, prefix, sizeof(prefix));
	put(&t->in, content, size);
}

/* All that goes out, then all that comes in, in pieces of `cut` bytes, each of its own. */
static void feed(struct talk *t, size_t cut)
{
	t->a = rpc_arrivals_new(on_told, t);
	t->told[0] = '\0';
	for (int direction = 0; direction < 2; direction++) {
		const struct wire *w = direction ? &t->in : &t->out;

		for (size_t at = 0; at < w->n; at += cut) {
			size_t n = w->n - at < cut ? w->n - at : cut;
			uint8_t *piece = malloc(n);

			memcpy(piece, w->bytes + at, n);
			(direction ? rpc_arrivals_in : rpc_arrivals_out)(t->a, piece, n);
			free(piece);
		}
	}
	rpc_arrivals_free(&t->a);
}

static void assert_told(struct talk *t, const char *what)
{
	for (size_t cut = 1; cut < 40; cut++) {
		feed(t, cut);
		assert_string_equal(t->told, what);
	}
	feed(t, WIRE);
	assert_string_equal(t->told, what);
}

static int setup(void **state)
{
	struct talk *t = calloc(1, sizeof(*t));

	put(&t->out, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", RPC_FRAMES_PREFACE);
	frame(&t->out, 4, 0, 0, 0);
	*state = t;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

static void messages_are_told_with_their_size(void **state)
{
	struct talk *t = *state;

	marked(t, 1, 0xabc);
	marked(t, 3, 7);
	message(t, 3, 0, 300);
	message(t, 1, 0, 0);
	message(t, 1, 0, 1000);
	assert_told(t, "oabc o7 m7:300 mabc:0 mabc:1000 ");
}

static void a_message_of_many_frames_is_told_once(void **state)
{
	struct talk *t = *state;
	const uint8_t prefix[] = {0, 0, 0, 1, 0}, content[256] = {0};

	marked(t, 1, 1);
	marked(t, 3, 2);
	frame(&t->in, RPC_FRAME_DATA, 0, 1, 3);
	put(&t->in, prefix, 3);
	message(t, 3, 0, 9);
	frame(&t->in, RPC_FRAME_DATA, 0, 1, 2 + 100);
	put(&t->in, prefix + 3, 2);
	put(&t->in, content, 100);
	frame(&t->in, RPC_FRAME_DATA, 0, 1, 156 + 5);
	put(&t->in, content, 156);
	put(&t->in, prefix, 5); /* the next one begins */
	assert_told(t, "o1 o2 m2:9 m1:256 m1:256 ");
}

static void padding_is_no_content(void **state)
{
	struct talk *t = *state;
	const uint8_t padded[] = {4, 0, 0, 0, 0, 2, 'a', 'b', 1, 1, 1, 1};

	marked(t, 1, 1);
	frame(&t->in, RPC_FRAME_DATA, RPC_FLAG_PADDED, 1, sizeof(padded));
	put(&t->in, padded, sizeof(padded));
	message(t, 1, 0, 3);
	assert_told(t, "o1 m1:2 m1:3 ");
}

static void padding_that_is_a_lie_is_all(void **state)
{
	struct talk *t = *state;
	const uint8_t padded[] = {255, 0, 0, 0, 0, 2};

	marked(t, 1, 1);
	frame(&t->in, RPC_FRAME_DATA, RPC_FLAG_PADDED, 1, sizeof(padded));
	put(&t->in, padded, sizeof(padded));
	frame(&t->in, RPC_FRAME_DATA, RPC_FLAG_PADDED, 1, 0);
	message(t, 1, 0, 3);
	assert_told(t, "o1 m1:3 ");
}

static void each_kind_of_end_is_told_once(void **state)
{
	struct talk *t = *state;

	for (uint8_t i = 1; i <= 9; i += 2)
		marked(t, i, i);
	frame(&t->out, RPC_FRAME_RST_STREAM, 0, 7, 4);
	put(&t->out, "\0\0\0\x08", 4);
	message(t, 1, RPC_FLAG_END_STREAM, 5);
	frame(&t->in, RPC_FRAME_HEADERS, RPC_FLAG_END_STREAM | RPC_FLAG_END_HEADERS, 3, 1);
	put(&t->in, "\x88", 1);
	frame(&t->in, RPC_FRAME_RST_STREAM, 0, 5, 4);
	put(&t->in, "\0\0\0\x0b", 4);
	frame(&t->in, RPC_FRAME_DATA, RPC_FLAG_END_STREAM, 9, 0);
	message(t, 1, 0, 5); /* of streams that are over */
	message(t, 7, 0, 5);
	assert_told(t, "o1 o3 o5 o7 o9 e7 m1:5 e1 e3 e5 e9 ");
}

static void what_has_no_mark_is_left_alone(void **state)
{
	struct talk *t = *state;

	request(t, 1, "clusterid", "Kubernetes");
	request(t, 3, RPC_ARRIVALS_HEADER, "000000000000000"); /* a digit too few */
	request(t, 5, RPC_ARRIVALS_HEADER, "00000000000000z0");
	message(t, 1, 0, 5);
	message(t, 3, 0, 5);
	message(t, 5, 0, 5);
	assert_told(t, "");
}

static void a_mark_may_go_on_in_another_frame(void **state)
{
	struct talk *t = *state;
	static const char field[] = "\0\x0f" RPC_ARRIVALS_HEADER "\x10"
				    "00000000000000ff";

	frame(&t->out, RPC_FRAME_HEADERS, 0, 1, 12);
	put(&t->out, field, 12);
	frame(&t->out, RPC_FRAME_CONTINUATION, RPC_FLAG_END_HEADERS, 1, sizeof(field) - 1 - 12);
	put(&t->out, field + 12, sizeof(field) - 1 - 12);
	frame(
	    &t->out, RPC_FRAME_HEADERS, PRIORITY, 1, 3); /* trailers; its end below is another's */
	put(&t->out, field, 3);
	message(t, 1, 0, 5);
	assert_told(t, "off mff:5 ");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    T(messages_are_told_with_their_size),
	    T(a_message_of_many_frames_is_told_once),
	    T(padding_is_no_content),
	    T(padding_that_is_a_lie_is_all),
	    T(each_kind_of_end_is_told_once),
	    T(what_has_no_mark_is_left_alone),
	    T(a_mark_may_go_on_in_another_frame),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
