/* plugin.h - one extension's configuration (ECDS), and what of it Envoy is given.
 *
 * istiod means it for an agent that fetches a plugin's module, and puts what that agent needs, the
 * pull secret too, into the environment of the plugin's VM (status-listener.md 5).  Envoy shows
 * what it has and prints what it refuses.  So these keys leave each Wasm filter, in a TypedStruct
 * too; all else stays the bytes that came.
 *
 * agentd fetches no module.  A filter whose module Envoy cannot have would be refused, and hold
 * back the others of its answer.  In its place Envoy gets what its failure policy says, in a form
 * that its slot takes: an RBAC filter in the slots that istiod makes, in others a Wasm filter
 * without a module.
 */
#pragma once
#include "discovery.h"

#define TYPE_EXTENSION TYPE_PREFIX "envoy.config.core.v3.TypedExtensionConfig"

struct plugin {
	char name[DISCOVERY_NAME_SIZE];
	const char *why; /* Envoy cannot have the module; NULL: it can, or it is no Wasm filter */
	bool open;       /* with `why`: traffic passes without the filter; else none does */
};

/* `extension`: a packed TypedExtensionConfig.  1: what Envoy is given was appended to `out`; 0: it
 * is given `extension` as it is; -1: it has no name, or no configuration of a type that can
 * be read. */
int plugin_give(struct plugin *p, struct pbwire extension, struct evbuffer *out);
