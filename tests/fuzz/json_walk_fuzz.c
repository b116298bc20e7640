/* json_walk_fuzz.c - any bytes, token by token: what jansson takes is taken, within its bounds and
 * in so many steps as there are bytes, and what is taken closes what it opened.
 */
#include "base/json_walk.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held)
{
	if (!held)
		abort();
}

/* The deepest level; 0: it is bad. */
static unsigned walk(const char *text, size_t size)
{
	struct json_walk w;
	enum json_token t;
	unsigned deepest = 1;

	json_walk_begin(&w, text, size);
	for (size_t steps = 0; (t = json_walk_next(&w)) != JSON_WALK_END; steps++) {
		if (t == JSON_WALK_BAD) {
			must(json_walk_next(&w) == JSON_WALK_BAD);
			return 0;
		}
		must(steps < size && w.len && w.token >= text && w.token + w.len <= w.at);
		must(w.at <= text + size && w.depth <= JSON_WALK_DEPTH_MAX);
		deepest = w.depth > deepest ? w.depth : deepest;
	}
	must(!w.depth && w.at == text + size);
	return deepest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);
	json_t *v;

	memcpy(text, data, size);
	const unsigned deepest = walk(text, size);
	v = json_loadb(text, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	if (memchr(text, '\0', size))
		must(!deepest); /* jansson takes one for the end */
	else
		must(!v || deepest || size > JSON_WALK_DEPTH_MAX);
	must(!deepest || !json_is_object(v) || json_walk_is_object(text, size));
	json_decref(v);
	free(text);
	return 0;
}
