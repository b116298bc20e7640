/* bootstrap_test.c - what Envoy is started with; that Envoy takes it is shown end to end.
 *
 * LINK: tests/unit/worker/envoy/node_rig.c
 */
#include "common/mem.h"
#include "node_rig.h"
#include "worker/envoy/bootstrap.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static json_t *render(const struct fixture *f)
{
	size_t len;
	auto_free char *text = bootstrap_render(f->node, &len);
	json_t *b = json_loads(text, JSON_REJECT_DUPLICATES, NULL);

	assert_int_equal(strlen(text), len);
	assert_non_null(b);
	return b;
}

static json_t *rendered_with(struct fixture *f, const char *key, const char *value)
{
	accepted(f, key, value);
	return render(f);
}

/* "a.b.0.c" inside a document; NULL if it is not there. */
static json_t *at(json_t *v, const char *path)
{
	while (*path) {
		size_t n = strcspn(path, ".");
		auto_free char *key = mem_printf("%.*s", (int)n, path);

		v = json_is_array(v) ? json_array_get(v, strtoul(key, NULL, 10))
				     : json_object_get(v, key);
		path += path[n] ? n + 1 : n;
	}
	return v;
}

static void text_at(json_t *v, const char *path, const char *expected)
{
	const char *text = json_string_value(at(v, path));

	if (!text || strcmp(text, expected) != 0)
		fail_msg("%s is %s, not %s", path, text ? text : "no text", expected);
}

static void number_at(json_t *v, const char *path, json_int_t expected)
{
	if (!json_is_integer(at(v, path)) || json_integer_value(at(v, path)) != expected)
		fail_msg("%s is not %lld", path, (long long)expected);
}

static json_t *named(json_t *list, const char *name)
{
	size_t i;
	json_t *v;

	json_array_foreach (list, i, v)
		if (!strcmp(json_string_value(json_object_get(v, "name")), name))
			return v;
	return NULL;
}

static json_t *cluster(json_t *b, const char *name)
{
	return named(at(b, "static_resources.clusters"), name);
}

static json_t *listener(json_t *b, const char *name)
{
	return named(at(b, "static_resources.listeners"), name);
}

#define ENDPOINT "load_assignment.endpoints.0.lb_endpoints.0.endpoint.address."
#define MANAGER "filter_chains.0.filters.0.typed_config."

/* The dots of the extension's name are no path. */
static json_t *http_options(json_t *c)
{
	return json_object_get(json_object_get(c, "typed_extension_protocol_options"),
	    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions");
}

static void test_node(void **state)
{
	struct fixture *f = *state;
	json_t *b;

	assert_non_null(make(f));
	b = render(f);
	assert_true(json_equal(at(b, "node"), node_json(f->node)));
	json_decref(b);
}

/* istio-agent.md 0.18, 8.4: Istio's names, so that its volumes fit. */
static void test_sockets(void **state)
{
	struct fixture *f = *state;
	json_t *b, *xds, *sds;

	assert_non_null(make(f));
	b = render(f);
	xds = cluster(b, "xds-grpc");
	sds = cluster(b, "sds-grpc");
	text_at(xds, ENDPOINT "pipe.path", "./etc/istio/proxy/XDS");
	text_at(sds, ENDPOINT "pipe.path", "./var/run/secrets/workload-spiffe-uds/socket");
	text_at(xds, "type", "STATIC");
	text_at(xds, "alt_stat_name", "xds-grpc;");
	text_at(xds, "load_assignment.cluster_name", "xds-grpc");
	assert_true(
	    json_is_object(at(http_options(xds), "explicit_http_config.http2_protocol_options")));
	assert_true(
	    json_is_object(at(http_options(sds), "explicit_http_config.http2_protocol_options")));
	/* each ADS stream on a connection of its own */
	number_at(http_options(xds), "common_http_protocol_options.max_requests_per_connection", 1);
	assert_null(at(http_options(sds), "common_http_protocol_options"));
	number_at(xds, "circuit_breakers.thresholds.1.max_requests", 100000);
	json_decref(b);
}

static void test_dynamic_resources(void **state)
{
	struct fixture *f = *state;
	json_t *b;

	assert_non_null(make(f));
	b = render(f);
	text_at(b, "dynamic_resources.ads_config.api_type", "DELTA_GRPC");
	text_at(b, "dynamic_resources.ads_config.transport_api_version", "V3");
	text_at(
	    b, "dynamic_resources.ads_config.grpc_services.0.envoy_grpc.cluster_name", "xds-grpc");
	assert_true(
	    json_is_true(at(b, "dynamic_resources.ads_config.set_node_on_first_message_only")));
	text_at(b, "dynamic_resources.lds_config.initial_fetch_timeout", "0s");
	text_at(b, "dynamic_resources.cds_config.resource_api_version", "V3");
	assert_true(json_is_object(at(b, "dynamic_resources.lds_config.ads")));
	json_decref(b);
	b = rendered_with(f, "ISTIO_DELTA_XDS", "false");
	text_at(b, "dynamic_resources.ads_config.api_type", "GRPC");
	json_decref(b);
}

/* Steady readiness needs no agentd: Envoy asks its own admin, by exact paths only. */
static void test_listeners(void **state)
{
	struct fixture *f = *state;
	json_t *b, *status, *stats, *route;

	assert_non_null(make(f));
	b = render(f);
	status = listener(b, "0.0.0.0_15021");
	stats = listener(b, "0.0.0.0_15090");
	assert_int_equal(json_array_size(at(b, "static_resources.listeners")), 2);
	text_at(status, "address.socket_address.address", "0.0.0.0");
	number_at(status, "address.socket_address.port_value", 15021);
	route = at(status, MANAGER "route_config.virtual_hosts.0.routes");
	assert_int_equal(json_array_size(route), 1);
	text_at(route, "0.match.path", "/healthz/ready");
	assert_int_equal(json_object_size(at(route, "0.match")), 1);
	text_at(route, "0.route.cluster", "prometheus_stats");
	text_at(route, "0.route.prefix_rewrite", "/ready");
	text_at(status, MANAGER "stat_prefix", "agent");
	route = at(stats, MANAGER "route_config.virtual_hosts.0.routes");
	assert_int_equal(json_array_size(route), 1);
	text_at(route, "0.match.path", "/stats/prometheus");
	assert_int_equal(json_object_size(at(route, "0.match")), 1);
	text_at(route, "0.route.cluster", "prometheus_stats");
	assert_null(at(route, "0.route.prefix_rewrite"));
	assert_true(json_is_true(at(status, "ignore_global_conn_limit")));
	assert_true(json_is_true(at(stats, "bypass_overload_manager")));
	json_decref(b);
}

static void test_ports(void **state)
{
	struct fixture *f = *state;
	json_t *b;

	put(f->pod.env, "ENVOY_STATUS_PORT", "16021");
	put(f->pod.env, "ENVOY_PROMETHEUS_PORT", "16090");
	b = rendered_with(f, "PROXY_CONFIG", "{proxyAdminPort: 16000, statusPort: 16020}");
	number_at(b, "admin.address.socket_address.port_value", 16000);
	text_at(b, "admin.address.socket_address.address", "127.0.0.1");
	number_at(cluster(b, "prometheus_stats"), ENDPOINT "socket_address.port_value", 16000);
	number_at(cluster(b, "agent"), ENDPOINT "socket_address.port_value", 16020);
	assert_non_null(listener(b, "0.0.0.0_16021"));
	assert_non_null(listener(b, "0.0.0.0_16090"));
	json_decref(b);
	put(f->pod.env, "ENVOY_STATUS_PORT", "0");
	put(f->pod.env, "ENVOY_PROMETHEUS_PORT", "0");
	b = rendered_with(f, "PROXY_CONFIG", "statusPort: 0");
	assert_int_equal(json_array_size(at(b, "static_resources.listeners")), 0);
	assert_null(cluster(b, "agent"));
	assert_int_equal(json_array_size(at(b, "static_resources.clusters")), 3);
	json_decref(b);
}

static void test_families(void **state)
{
	static const char *const six[] = {"fd00::7"}, *const both[] = {"10.0.0.7", "fd00::7"};
	struct fixture *f = *state;
	json_t *b;

	assert_non_null(make(f));
	node_set_addresses(f->node, six, 1);
	b = render(f);
	text_at(b, "admin.address.socket_address.address", "::1");
	text_at(cluster(b, "agent"), ENDPOINT "socket_address.address", "::1");
	text_at(listener(b, "::_15021"), "address.socket_address.address", "::");
	assert_null(at(listener(b, "::_15021"), "additional_addresses"));
	json_decref(b);
	node_set_addresses(f->node, both, 2);
	b = render(f);
	assert_null(at(listener(b, "0.0.0.0_15021"), "additional_addresses"));
	json_decref(b);
	b = rendered_with(f, "ISTIO_DUAL_STACK", "true"); /* a bind to a missing family is fatal */
	assert_null(at(listener(b, "0.0.0.0_15021"), "additional_addresses"));
	json_decref(b);
	node_set_addresses(f->node, both, 2);
	b = render(f);
	text_at(listener(b, "0.0.0.0_15021"),
	    "additional_addresses.0.address.socket_address.address", "::");
	json_decref(b);
}

/* The order of the tags matters, istio-agent.md 8.5. */
static void test_stats(void **state)
{
	struct fixture *f = *state;
	json_t *b;

	assert_non_null(make(f));
	b = render(f);
	assert_true(json_is_false(at(b, "stats_config.use_all_default_tags")));
	assert_int_equal(json_array_size(at(b, "stats_config.stats_tags")), 16);
	text_at(b, "stats_config.stats_tags.0.tag_name", "cluster_name");
	text_at(b, "stats_config.stats_tags.0.regex", "^cluster(\\.(.+);)");
	text_at(b, "stats_config.stats_tags.15.tag_name", "authz_dry_run_result");
	assert_int_equal(
	    json_array_size(at(b, "stats_config.stats_matcher.inclusion_list.patterns")), 13);
	json_decref(b);
}

static void test_same_bytes(void **state)
{
	struct fixture *f = *state;
	size_t n, m;
	auto_free char *first = NULL, *second = NULL;

	put(f->pod.labels, "app", "web");
	assert_non_null(make(f));
	first = bootstrap_render(f->node, &n);
	assert_non_null(make(f));
	second = bootstrap_render(f->node, &m);
	assert_int_equal(n, m);
	assert_string_equal(first, second);
}

/* A label is text wherever it goes: nothing of it becomes structure. */
static void test_hostile_text(void **state)
{
	struct fixture *f = *state;
	json_t *b;

	put(f->pod.labels, "app", "\"}], \"admin\": {\"evil\": [{\"\\u0022");
	accepted(f, "ISTIO_META_X", "\xe2\x80\xa8\"\\");
	b = render(f);
	text_at(b, "node.metadata.X", "\xe2\x80\xa8\"\\");
	text_at(b, "node.metadata.LABELS.app", "\"}], \"admin\": {\"evil\": [{\"\\u0022");
	assert_int_equal(json_object_size(at(b, "admin")), 3);
	json_decref(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(node),
	    TEST(sockets),
	    TEST(dynamic_resources),
	    TEST(listeners),
	    TEST(ports),
	    TEST(families),
	    TEST(stats),
	    TEST(same_bytes),
	    TEST(hostile_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
