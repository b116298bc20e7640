/* dns_stream_fuzz.c - any bytes as a connection of DNS by TCP, in pieces.
 *
 * First byte: how long a piece is; second: bits.  Whatever comes: the messages are those that the
 * two bytes before each say, in their order, wherever the bytes are cut and whether the reader
 * pauses; an answer has its length before it; a stream that is freed in an event says no more.
 * SOAK: 10000000 runs
 * LINK: tests/fake/loop.c
 */
#include "base/dns/stream.h"
#include "tests/fake/loop.h"
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HOLDS = 1, ENDS = 2, ANSWERS = 4, HOLD_MS = 10, SENT_MAX = 32 * 1024 };

static struct talk {
	struct loop *l;
	struct dns_stream *s;
	const uint8_t *at, *end; /* what is still to come */
	unsigned bits, events;
	size_t answered;
	bool closed;
} t;

static void must(bool held)
{
	if (!held)
		abort();
}

static void on_message(void *ctx, uint8_t *bytes, size_t size)
{
	(void)ctx;
	must(t.s && !t.closed);
	must(t.end - t.at >= 2 && size == ((size_t)t.at[0] << 8 | t.at[1]));
	must((size_t)(t.end - t.at) >= 2 + size && !memcmp(bytes, t.at + 2, size));
	t.at += 2 + size;
	t.events++;
	memset(bytes, 0, size);
	if (t.bits & ANSWERS && t.answered + 2 + size < DNS_STREAM_QUEUE_MAX / 8) {
		dns_stream_send(t.s, bytes, size);
		t.answered += 2 + size;
	}
	if (t.bits & HOLDS && t.events % 3 == 0)
		dns_stream_hold(t.s, HOLD_MS);
	if (t.bits & ENDS && t.events == 5)
		dns_stream_free(&t.s);
}

static void on_closed(void *ctx)
{
	(void)ctx;
	must(t.s && !t.closed);
	t.closed = true;
	dns_stream_free(&t.s);
}

/* All of it, with its pauses. */
static void settle(void)
{
	for (size_t i = 0; t.s && i < SENT_MAX / 2; i++) {
		const unsigned before = t.events;

		fake_loop_advance(t.l, t.bits & HOLDS ? HOLD_MS : 0);
		if (t.events == before)
			return;
	}
}

/* Whole: while the reader pauses there may be no room for it. */
static void send_piece(int peer, const uint8_t *bytes, size_t n)
{
	while (t.s && send(peer, bytes, n, MSG_NOSIGNAL) < 0)
		fake_loop_advance(t.l, HOLD_MS);
}

static void check_answers(int peer)
{
	uint8_t in[4096];
	size_t all = 0;
	ssize_t n;

	while ((n = read(peer, in, sizeof(in))) > 0) {
		all += (size_t)n;
		fake_loop_advance(t.l, 0); /* there is room for more */
	}
	must(all <= t.answered && (!t.s || all == t.answered));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct dns_stream_events ev = {on_message, on_closed};
	const size_t piece = size > 2 ? data[0] + 1U : 1;
	int pair[2];

	if (size < 3)
		return 0;
	size = size - 2 < SENT_MAX ? size - 2 : SENT_MAX;
	must(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair));
	t = (struct talk){
	    .l = fake_loop(), .at = data + 2, .end = data + 2 + size, .bits = data[1]};
	t.s = dns_stream_new(t.l, pair[0], &ev, NULL);
	for (size_t at = 0; t.s && at < size; at += piece) {
		send_piece(pair[1], data + 2 + at, size - at < piece ? size - at : piece);
		fake_loop_advance(t.l, 0);
	}
	settle();
	if (t.s) /* what is left is no whole message */
		must(t.end - t.at < 2 || t.end - t.at < 2 + ((ptrdiff_t)t.at[0] << 8 | t.at[1]));
	check_answers(pair[1]);
	close(pair[1]);
	fake_loop_advance(t.l, HOLD_MS);
	must(!t.s);
	fake_loop_end(&t.l);
	return 0;
}
