/* envoy_lists.h - the entries of the lists of an Envoy's page, {TOP: [{LIST: [entry, ...]}, ...]},
 * one at a time and without what nobody asks for.  Pure.
 *
 * An app may have answered in Envoy's place.  So much of the text is held as one entry's part is,
 * and that is bounded.
 */
#pragma once
#include <jansson.h>

struct envoy_lists {
	const char *top;         /* "configs" */
	const char *const *keep; /* members of entries, at any depth below others; then NULL */
	/* `list` is a name from `lists`; `entry` has only what is kept, and is borrowed. */
	void (*entry)(void *ctx, const char *list, const json_t *entry);
	const char *const *lists; /* then NULL; others are passed over */
};

/* Of an entry: no more values are kept, and no text that is longer. */
enum { ENVOY_LISTS_VALUES_MAX = 1000, ENVOY_LISTS_TEXT_MAX = 64 * 1024 };

/* `text` is JSON. */
void envoy_lists_read(const struct envoy_lists *what, const char *text, size_t len, void *ctx);
/* How many entries an Envoy writes at most in so many bytes: who has more is another one. */
size_t envoy_lists_most(size_t len);
