/* targets_fuzz.c - any text as an app's probers and as its scrape targets, and the bootstrap that
 * comes of it.
 *
 * Whatever was accepted: every port is the app's, every text is printable; the document is JSON,
 * the status port has the routes that were declared and no more, all commands are guarded, and the
 * script is the same for every pod.
 * LINK: tests/fuzz/node_rig.c
 */
#include "mesh/targets.h"
#include "node_rig.h"
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ROUTES_ALWAYS = 5, LISTENER = 2 };

static char *script; /* of the first pod */

static void check_text(const json_t *v)
{
	for (const char *s = json_string_value(v); s && *s; s++)
		must(*s > ' ' && *s <= '~');
}

static size_t check_targets(json_t *targets)
{
	size_t i, dialled = 0;
	json_t *v;

	json_array_foreach (targets, i, v) {
		json_int_t port = json_integer_value(at(v, "port"));
		const char *kind = json_string_value(at(v, "kind"));

		must(port >= 1 && port <= 65535 && !targets_port_is_reserved((unsigned)port));
		must(json_integer_value(at(v, "timeout_s")) <= TARGETS_TIMEOUT_MAX_S);
		check_text(at(v, "path"));
		check_text(at(v, "service"));
		check_text(at(v, "route"));
		dialled += kind && !strcmp(kind, "tcp");
	}
	return dialled;
}

static void check_guarded(json_t *route)
{
	const char *path = json_string_value(at(at(route, "match"), "path"));

	must(path || at(at(route, "match"), "safe_regex"));
	if (path && (!strncmp(path, "/quit", 5) || !strncmp(path, "/drain", 6)))
		must(at(at(route, "typed_per_filter_config"), "envoy.filters.http.rbac"));
	must(at(route, "direct_response") || at(route, "route"));
}

static void check_script(json_t *filters)
{
	json_t *v;
	size_t i;

	json_array_foreach (filters, i, v) {
		json_t *code =
		    at(at(at(v, "typed_config"), "default_source_code"), "inline_string");

		if (!code)
			continue;
		if (!script)
			script = strdup(json_string_value(code));
		must(!strcmp(script, json_string_value(code)));
	}
}

static void check_bootstrap(const struct node *n, size_t routes)
{
	size_t len, i;
	char *text = bootstrap_render(n, &len);
	json_t *b = json_loads(text, JSON_REJECT_DUPLICATES, NULL), *manager, *all, *route;

	must(b != NULL);
	manager = json_array_get(at(at(b, "static_resources"), "listeners"), LISTENER);
	manager = at(json_array_get(at(manager, "filter_chains"), 0), "filters");
	manager = at(json_array_get(manager, 0), "typed_config");
	all = json_array_get(at(at(manager, "route_config"), "virtual_hosts"), 0);
	all = at(all, "routes");
	must(json_array_size(all) == routes);
	json_array_foreach (all, i, route)
		check_guarded(route);
	check_script(at(manager, "http_filters"));
	json_decref(b);
	free(text);
}

static void try(const char *key, json_t *text)
{
	json_t *env = json_pack("{s:O}", key, text);
	struct err e = {0};
	struct node *n = rig_node(env, &e);

	if (n) {
		const struct node_settings *s = node_settings(n);
		size_t dialled = check_targets(s->probers) + check_targets(s->scrapes);

		check_bootstrap(n, ROUTES_ALWAYS + json_array_size(s->probers) - dialled);
	}
	node_free(&n);
	json_decref(env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	json_t *text = json_stringn((const char *)data, size);

	if (text) {
		try("ISTIO_KUBE_APP_PROBERS", text);
		try("ISTIO_PROMETHEUS_ANNOTATIONS", text);
	}
	json_decref(text);
	return 0;
}
