/* inject_stream_fuzz.c - any bytes as a file of manifests: refused with a line, or done; done twice
 * is done once, byte for byte; a check changes no byte; what was done can be taken back.
 */
#include "inject/stream.h"
#include "inject_rig.h"
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char *stream(enum inject_action action, const char *text, size_t len, size_t *n)
{
	struct inject_work w = {rig_config(true), action, json_array()};
	struct err e = {0};
	char *out = inject_stream(&w, text, len, n, &e);

	must(out || strstr(e.msg, "line "));
	json_decref(w.said);
	return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	size_t nonce, ntwice, nback, nagain, nfirst;
	char *first = stream(INJECT_CHECK, text, size, &nfirst), *once, *twice, *back, *again;

	if (first)
		must(nfirst == size && !memcmp(first, text, size));
	free(first);
	once = stream(INJECT_ADD, text, size, &nonce);
	if (!once)
		return 0;
	twice = stream(INJECT_ADD, once, nonce, &ntwice);
	must(twice && ntwice == nonce && !memcmp(once, twice, nonce));
	back = stream(INJECT_TAKE_BACK, once, nonce, &nback);
	must(back);
	again = stream(INJECT_ADD, back, nback, &nagain);
	must(again); /* keys that were taken away come back in another place */
	free(once);
	free(twice);
	free(back);
	free(again);
	return 0;
}
