/* ads_request_fuzz.c - what a pod or istiod may say on ADS, walked over by worker/ads/discovery.
 *
 * First byte: bit 0 the flavour, the rest how the bytes are cut.  Whatever comes in: a request that
 * is carried on has exactly one node, at its end, with our id and metadata once, and every other
 * byte is kept in order.
 */
#include "common/err.h"
#include "worker/ads/discovery.h"

#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
	if (!ok)
		abort();
}

static int on_name(void *ctx, const struct discovery_name *n, struct err *e)
{
	size_t *count = ctx;

	must(strlen(n->name) < DISCOVERY_NAME_SIZE && strlen(n->version) < DISCOVERY_NONCE_SIZE);
	return ++*count > 100 ? err_set(e, ERR_INVALID, "enough") : 0;
}

/* Our id and metadata are the last two fields of the node and the only ones of their numbers. */
static void check_node(struct pbwire node)
{
	struct pbwire_field f;
	unsigned ids = 0, metadatas = 0;
	char text[8];

	while (pbwire_next(&node, &f) > 0) {
		must(metadatas == 0);
		if (f.number == 1) {
			ids++;
			must(!pbwire_string(f.bytes, text, sizeof(text)) && !strcmp(text, "ID"));
		}
		if (f.number == 3) {
			metadatas++;
			must(!pbwire_string(f.bytes, text, sizeof(text)) && !strcmp(text, "MD"));
		}
	}
	must(node.left == 0 && ids == 1 && metadatas == 1);
}

/* The bytes of a message that are not ours to replace: outside of its nodes, and inside. */
static void split(struct iovec whole, uint32_t node, struct evbuffer *outside, struct evbuffer *in)
{
	const uint8_t *at = whole.iov_base;
	struct pbwire msg;
	struct pbwire_field f, g;

	pbwire_init(&msg, &whole, 1);
	for (; pbwire_next(&msg, &f) > 0; at += f.size) {
		const uint8_t *inner = at + f.size - f.bytes.left;

		if (f.number != node) {
			evbuffer_add(outside, at, f.size);
			continue;
		}
		for (; pbwire_next(&f.bytes, &g) > 0; inner += g.size)
			if (g.number != 1 && g.number != 3)
				evbuffer_add(in, inner, g.size);
	}
}

static void check_equal(struct evbuffer *a, struct evbuffer *b)
{
	size_t len = evbuffer_get_length(a);

	must(evbuffer_get_length(b) == len);
	must(!len || !memcmp(evbuffer_pullup(a, -1), evbuffer_pullup(b, -1), len));
}

static void check_kept(struct iovec before, struct iovec after, uint32_t node)
{
	struct evbuffer *outside[] = {evbuffer_new(), evbuffer_new()};
	struct evbuffer *in[] = {evbuffer_new(), evbuffer_new()};

	split(before, node, outside[0], in[0]);
	split(after, node, outside[1], in[1]);
	check_equal(outside[0], outside[1]);
	check_equal(in[0], in[1]);
	for (int i = 0; i < 2; i++) {
		evbuffer_free(outside[i]);
		evbuffer_free(in[i]);
	}
}

static void check_replaced(struct evbuffer *b, enum discovery_flavour flavour, struct iovec before)
{
	struct iovec iov = {evbuffer_pullup(b, -1), evbuffer_get_length(b)};
	uint32_t number = flavour == DISCOVERY_DELTA ? 1 : 2;
	struct pbwire msg;
	struct pbwire_field f;
	unsigned nodes = 0;

	pbwire_init(&msg, &iov, 1);
	while (pbwire_next(&msg, &f) > 0) {
		if (f.number != number)
			continue;
		nodes++;
		must(msg.left == 0);
		check_node(f.bytes);
	}
	must(msg.left == 0 && nodes == 1);
	check_kept(before, iov, number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const struct discovery_node ours = {"ID", "MD", 2};
	enum discovery_flavour flavour = size > 0 ? data[0] & 1 : 0;
	size_t cut = size > 1 ? data[0] / 2 % size : 0, names = 0;
	struct iovec iov[3];
	struct pbwire msg;
	struct discovery_request q;
	struct discovery_response r;
	struct evbuffer *out = evbuffer_new();
	struct err e;

	if (size > 0)
		data++, size--;
	if (cut > size)
		cut = size;
	iov[0] = (struct iovec){(void *)data, cut};
	iov[1] = (struct iovec){NULL, 0};
	iov[2] = (struct iovec){(void *)(data + cut), size - cut};
	pbwire_init(&msg, iov, 3);
	if (discovery_read_request(&q, flavour, msg, &e) == 0)
		must(strlen(q.nack_why) < sizeof(q.nack_why));
	if (discovery_read_response(&r, msg, &e) == 0)
		discovery_put_ack(out, flavour, &r, "why");
	evbuffer_drain(out, evbuffer_get_length(out));
	discovery_each_name(flavour, msg, on_name, &names, &e);
	if (discovery_replace_node(out, flavour, msg, &ours, &e) == 0)
		check_replaced(out, flavour, (struct iovec){(void *)data, size});
	else
		must(evbuffer_get_length(out) == 0);
	evbuffer_free(out);
	return 0;
}
