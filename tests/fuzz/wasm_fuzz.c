/* wasm_fuzz.c - any bytes as responses with extensions, in both flavours.
 *
 * Names are no more than their limit, and the last word on each counts: the same response again
 * changes nothing.
 */
#include "worker/ads/wasm.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held)
{
	if (!held)
		abort();
}

static void try(enum discovery_flavour f, struct pbwire msg)
{
	struct ads_wasm w = {0};
	json_t *first, *second;

	ads_wasm_response(&w, f, msg);
	first = ads_wasm_dump(&w);
	must(json_array_size(first) <= ADS_WASM_MAX);
	must(json_array_size(first) == ads_wasm_count(&w));
	ads_wasm_clear(&w);
	ads_wasm_response(&w, f, msg);
	second = ads_wasm_dump(&w);
	must(json_equal(first, second));
	json_decref(first);
	json_decref(second);
	ads_wasm_clear(&w);
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
