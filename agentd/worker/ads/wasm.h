/* wasm.h - extensions of a pod's Envoy whose Wasm module is somewhere else.
 *
 * pilot-agent fetches such a module and names its file to Envoy.  agentd does not: Envoy asks the
 * URI itself, in vain, and then answers each request with 503, though it is ready
 * (status-listener.md 5).  So the extensions are counted, and named to people.
 */
#pragma once
#include "discovery.h"
#include <jansson.h>

#define TYPE_EXTENSION TYPE_PREFIX "envoy.config.core.v3.TypedExtensionConfig"

enum { ADS_WASM_MAX = 64 }; /* names; more are not noted */

struct ads_wasm {
	json_t *names; /* {name: true}; NULL: none was seen yet */
};

/* A response of TYPE_EXTENSION.  State of the world: of all extensions; delta: of some. */
void ads_wasm_response(struct ads_wasm *w, enum discovery_flavour f, struct pbwire msg);
unsigned ads_wasm_count(const struct ads_wasm *w);
json_t *ads_wasm_dump(const struct ads_wasm *w); /* [name]; the caller's */
void ads_wasm_clear(struct ads_wasm *w);
