/* runtime.c - defaults <- what the status port needs <- the pod's values, of which "" takes a key
 * away. */
#include "runtime.h"
#include "mesh/node.h"
#include "status.h"
#include <string.h>

/* Envoy wants its switches as booleans; everything else stays text. */
static json_t *typed(const char *text)
{
	if (!strcmp(text, "true") || !strcmp(text, "false"))
		return json_boolean(*text == 't');
	return json_string(text);
}

static void overlay(json_t *layer, json_t *values)
{
	const char *key;
	json_t *v;

	json_object_foreach (values, key, v)
		if (json_string_length(v))
			json_object_set_new(layer, key, typed(json_string_value(v)));
		else
			json_object_del(layer, key);
}

json_t *runtime_layers(const struct node *n)
{
	json_t *layer = json_pack("{s:s, s:b, s:b, s:b, s:b}", "re2.max_program_size.error_level",
	    "32768",
	    "envoy.deprecated_features:envoy.config.listener.v3.Listener.hidden_envoy_deprecated_"
	    "use_original_dst",
	    true, "envoy.reloadable_features.http_reject_path_with_fragment", false,
	    "envoy.reloadable_features.fixed_heap_use_allocated", true,
	    "envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update", false);

	status_add_limits(n, layer);
	overlay(layer, node_settings(n)->runtime_values);
	return json_pack("{s:[{s:s, s:o}, {s:s, s:{}}]}", "layers", "name", "global config",
	    "static_layer", layer, "name", "admin", "admin_layer");
}
