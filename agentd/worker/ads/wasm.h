/* wasm.h - Wasm filters of a pod's Envoy whose module it cannot have, and what it gets for them.
 *
 * plugin.h says what Envoy is given of each extension.  Here are whole responses, and the names of
 * the filters that were replaced: from the answer that brought them until another answer brings one
 * that Envoy can have, or Envoy stops asking for the name.  istiod never says that an extension is
 * gone.
 */
#pragma once
#include "plugin.h"
#include <jansson.h>

struct err;

enum { ADS_WASM_MAX = 64 }; /* names; more are replaced, but not noted */

struct ads_wasm { /* embed it zeroed */
	struct ads_wasm_row *rows;
	unsigned n, open; /* all; those without which traffic passes */
	unsigned changes; /* of the names and their reasons */
	unsigned asked;   /* how often Envoy began to say what it asks for */
};

/* A response of TYPE_EXTENSION.  1: Envoy is given `out`; 0: the response as it came; -1: nothing,
 * for one of its resources is no extension. */
int ads_wasm_response(struct ads_wasm *w, enum discovery_flavour f, struct pbwire msg,
    struct evbuffer *out, struct err *e);
/* Any request of Envoy's: `q` was read from it. */
void ads_wasm_request(struct ads_wasm *w, enum discovery_flavour f,
    const struct discovery_request *q, struct pbwire msg);
/* Envoy keeps what it was given, and says on its next stream what of it it still asks for. */
void ads_wasm_stream_ended(struct ads_wasm *w);
const char *ads_wasm_why(const struct ads_wasm *w, char *out, size_t size); /* of one; NULL: none */
json_t *ads_wasm_dump(const struct ads_wasm *w); /* {name: why}; the caller's */
void ads_wasm_clear(struct ads_wasm *w);
