/* wasm_fuzz.c - any bytes as responses with extensions, and as requests for them, in both flavours.
 *
 * No key of istiod's stays in a Wasm filter, what Envoy is given is given again as it is (a filter
 * without a module stays one), and no more names are kept than there may be.
 */
#include "common/err.h"
#include "worker/ads/wasm.h"

#include <event2/buffer.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held)
{
	if (!held)
		abort();
}

static struct pbwire reader_of(struct evbuffer *b, struct iovec *whole)
{
	struct pbwire msg;

	*whole = (struct iovec){evbuffer_pullup(b, -1), evbuffer_get_length(b)};
	pbwire_init(&msg, whole, whole->iov_base ? 1 : 0);
	return msg;
}

static void is_the_same(struct evbuffer *a, struct evbuffer *b)
{
	size_t n = evbuffer_get_length(a);

	must(n == evbuffer_get_length(b));
	must(!n || !memcmp(evbuffer_pullup(a, -1), evbuffer_pullup(b, -1), n));
}

static void ask(struct ads_wasm *w, enum discovery_flavour f, struct pbwire msg)
{
	struct discovery_request q;
	struct err e;

	if (discovery_read_request(&q, f, msg, &e) == 0)
		ads_wasm_request(w, f, &q, msg);
	must(w->n <= ADS_WASM_MAX && w->open <= w->n);
}

static void try(enum discovery_flavour f, struct pbwire msg)
{
	struct ads_wasm w = {0};
	struct evbuffer *first = evbuffer_new(), *second = evbuffer_new();
	struct iovec whole;
	struct err e;
	char why[ERR_MSG_SIZE];
	int rc = ads_wasm_response(&w, f, msg, first, &e);

	must(w.n <= ADS_WASM_MAX && w.open <= w.n);
	must(!w.n == !ads_wasm_why(&w, why, sizeof(why)));
	if (rc >= 0) {
		must(ads_wasm_response(&w, f, reader_of(first, &whole), second, &e) >= 0);
		is_the_same(first, second);
	}
	json_decref(ads_wasm_dump(&w));
	ask(&w, f, msg);
	ads_wasm_stream_ended(&w);
	ask(&w, f, msg);
	ads_wasm_clear(&w);
	evbuffer_free(first);
	evbuffer_free(second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct iovec iov[2] = {
	    {(void *)data, size / 2}, {(void *)(data + size / 2), size - size / 2}};
	struct pbwire msg;

	pbwire_init(&msg, iov, 2);
	try(DISCOVERY_DELTA, msg);
	try(DISCOVERY_SOTW, msg);
	return 0;
}
