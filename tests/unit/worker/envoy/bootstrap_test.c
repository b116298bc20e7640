/* bootstrap_test.c - what Envoy is started with; that Envoy takes it is shown end to end.
 *
 * LINK: tests/unit/mesh/node_rig.c
 */
#include "common/mem.h"
#include "tests/unit/mesh/node_rig.h"
#include "worker/envoy/bootstrap.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ENDPOINT "load_assignment.endpoints.0.lb_endpoints.0.endpoint.address."
#define OTHER_ADDRESS "additional_addresses.0.address.socket_address.address"
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
	text_at(b,
	    "dynamic_resources.ads_config.grpc_services.0.envoy_grpc.retry_policy.retry_back_off."
	    "max_interval",
	    "5s");
	text_at(b, "dynamic_resources.lds_config.initial_fetch_timeout", "0s");
	text_at(b, "dynamic_resources.cds_config.resource_api_version", "V3");
	assert_true(json_is_object(at(b, "dynamic_resources.lds_config.ads")));
	json_decref(b);
	b = rendered_with(f, "ISTIO_DELTA_XDS", "false");
	text_at(b, "dynamic_resources.ads_config.api_type", "GRPC");
	json_decref(b);
}

static json_t *routes_of(json_t *b, const char *name)
{
	return at(listener(b, name), MANAGER "route_config.virtual_hosts.0.routes");
}

static json_t *route(json_t *b, const char *path)
{
	json_t *r;
	size_t i;

	json_array_foreach (routes_of(b, "0.0.0.0_15020"), i, r) {
		const char *exact = json_string_value(at(r, "match.path"));

		if (exact ? !strcmp(exact, path) : !strcmp(path, "metrics"))
			return r;
	}
	return NULL;
}

/* A value that status.lua reads. */
static json_t *told(json_t *r, const char *key)
{
	json_t *all = at(r, "metadata.filter_metadata");

	return at(json_object_get(all, "envoy.filters.http.lua"), key);
}

static json_t *guard(json_t *r, const char *filter)
{
	return json_object_get(at(r, "typed_per_filter_config"), filter);
}

/* Everything is matched by its exact path; what the script alone answers has no cluster behind it.
 */
static void test_listeners(void **state)
{
	struct fixture *f = *state;
	json_t *b, *status, *stats, *r;

	assert_non_null(make(f));
	b = render(f);
	status = listener(b, "0.0.0.0_15021");
	stats = listener(b, "0.0.0.0_15090");
	assert_int_equal(json_array_size(at(b, "static_resources.listeners")), 3);
	text_at(status, "address.socket_address.address", "0.0.0.0");
	number_at(status, "address.socket_address.port_value", 15021);
	r = routes_of(b, "0.0.0.0_15021");
	assert_int_equal(json_array_size(r), 1);
	text_at(r, "0.match.path", "/healthz/ready");
	assert_int_equal(json_object_size(at(r, "0.match")), 1);
	number_at(r, "0.direct_response.status", 503);
	text_at(told(at(r, "0"), "serve"), "", "ready");
	text_at(status, MANAGER "stat_prefix", "agent");
	r = routes_of(b, "0.0.0.0_15090");
	assert_int_equal(json_array_size(r), 1);
	text_at(r, "0.match.path", "/stats/prometheus");
	assert_int_equal(json_object_size(at(r, "0.match")), 1);
	text_at(r, "0.route.cluster", "prometheus_stats");
	assert_null(at(r, "0.route.prefix_rewrite"));
	assert_true(json_is_true(at(status, "ignore_global_conn_limit")));
	assert_true(json_is_true(at(stats, "bypass_overload_manager")));
	json_decref(b);
}

static void test_status_port(void **state)
{
	static const char *const commands[] = {"/quitquitquit", "/drain", "/drain/wait"};
	struct fixture *f = *state;
	json_t *b, *layer, *manager;

	assert_non_null(make(f));
	b = render(f);
	manager = at(listener(b, "0.0.0.0_15020"), "filter_chains.0.filters.0.typed_config");
	text_at(manager, "codec_type", "HTTP1");
	assert_null(at(manager, "normalize_path")); /* raw paths */
	text_at(manager, "request_timeout", "10s"); /* a body that never ends */
	assert_int_equal(json_array_size(routes_of(b, "0.0.0.0_15020")), 5);
	for (unsigned i = 0; i < 3; i++) {
		json_t *r = route(b, commands[i]);
		json_t *who = at(
		    guard(r, "envoy.filters.http.rbac"), "rbac.rules.policies.loopback.principals");

		number_at(r, "direct_response.status", 503);
		assert_int_equal(json_array_size(who), 2);
		text_at(who, "0.direct_remote_ip.address_prefix", "127.0.0.1");
		number_at(who, "0.direct_remote_ip.prefix_len", 32);
		text_at(who, "1.direct_remote_ip.address_prefix", "::1");
		number_at(who, "1.direct_remote_ip.prefix_len", 128);
	}
	number_at(guard(route(b, "metrics"), "envoy.filters.http.local_ratelimit"),
	    "token_bucket.max_tokens", 20);
	assert_null(guard(route(b, "metrics"), "envoy.filters.http.rbac"));
	layer = at(b, "layered_runtime.layers.0.static_layer");
	assert_int_equal(json_integer_value(json_object_get(layer,
			     "envoy.resource_limits.listener.0.0.0.0_15020.connection_limit")),
	    64);
	json_decref(b);
	b = rendered_with(f, "METRICS_LOCALHOST_ACCESS_ONLY", "true");
	assert_non_null(guard(route(b, "metrics"), "envoy.filters.http.rbac"));
	json_decref(b);
}

/* It has what Lua itself has of texts, tables and numbers, and nothing of the machine. */
static void test_the_script_reaches_nothing(void **state)
{
	static const char *const doors[] = {"io.", "os.", "ffi", "require", "package", "debug.",
	    "dofile", "loadfile", "loadstring", "load(", "getfenv", "setfenv", "jit.", "_G"};
	struct fixture *f = *state;
	const char *script = "";
	json_t *b, *filter;
	size_t i;

	assert_non_null(make(f));
	b = render(f);
	json_array_foreach (at(listener(b, "0.0.0.0_15020"), MANAGER "http_filters"), i, filter)
		if (!strcmp(json_string_value(at(filter, "name")), "envoy.filters.http.lua"))
			script = json_string_value(
			    at(filter, "typed_config.default_source_code.inline_string"));
	assert_non_null(strstr(script, "function serve.ready("));
	for (i = 0; i < sizeof(doors) / sizeof(*doors); i++)
		assert_null(strstr(script, doors[i]));
	json_decref(b);
}

static void test_drain_values(void **state)
{
	struct fixture *f = *state;
	json_t *b = rendered_with(f, "PROXY_CONFIG", "terminationDrainDuration: 1500ms");

	assert_int_equal(json_integer_value(told(route(b, "/drain/wait"), "after_ms")), 1500);
	assert_null(told(route(b, "/drain/wait"), "own"));
	json_decref(b);
	put(f->pod.env, "MINIMUM_DRAIN_DURATION", "7s");
	b = rendered_with(f, "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true");
	assert_int_equal(json_integer_value(told(route(b, "/drain/wait"), "after_ms")), 7000);
	assert_int_equal(json_array_size(told(route(b, "/drain/wait"), "own")), 4);
	text_at(b, "stats_config.stats_matcher.inclusion_list.patterns.13.suffix",
	    "downstream_cx_active");
	assert_string_equal(meta_text(f, "EXIT_ON_ZERO_ACTIVE_CONNECTIONS"), "true");
	json_decref(b);
}

static void test_scrape_targets(void **state)
{
	struct fixture *f = *state;
	json_t *b, *r;

	assert_non_null(make(f));
	b = render(f);
	text_at(route(b, "metrics"), "route.cluster", "prometheus_stats");
	assert_int_equal(json_array_size(told(route(b, "metrics"), "targets")), 0);
	json_decref(b);
	b = rendered_with(f, "ISTIO_PROMETHEUS_ANNOTATIONS",
	    "{\"targets\": [{\"port\": \"9090\"}, {\"port\": \"9091\", \"path\": \"/x\"}]}");
	r = route(b, "metrics");
	text_at(r, "route.cluster", "agentd_scrape_1"); /* the last is streamed */
	text_at(told(r, "targets.0"), "cluster", "agentd_scrape_0");
	text_at(told(r, "targets.1"), "path", "/x");
	text_at(told(r, "targets.1"), "host", "localhost:9091");
	number_at(cluster(b, "agentd_scrape_1"), ENDPOINT "socket_address.port_value", 9091);
	text_at(cluster(b, "agentd_scrape_1"), ENDPOINT "socket_address.address", "127.0.0.1");
	json_decref(b);
}

static void test_probers(void **state)
{
	struct fixture *f = *state;
	json_t *b = rendered_with(f, "ISTIO_KUBE_APP_PROBERS",
	    "{\"/app-health/a/livez\": {\"httpGet\": {\"port\": 80, \"path\": \"/\\\"]]}\"}, "
	    "\"timeoutSeconds\": 3},"
	    "\"/app-health/b/livez\": {\"httpGet\": {\"port\": 443, \"scheme\": \"HTTPS\"}},"
	    "\"/app-health/c/livez\": {\"grpc\": {\"port\": 9, \"service\": \"s\"}},"
	    "\"/app-health/d/livez\": {\"tcpSocket\": {\"port\": 7}},"
	    "\"/app-health/e/livez\": {\"tcpSocket\": {\"port\": 7}}}");
	json_t *r = route(b, "/app-health/a/livez"), *tcp = cluster(b, "agentd_probe_tcp_7_0");

	text_at(r, "route.cluster", "agentd_probe_http");
	text_at(r, "route.timeout", "3s");
	text_at(told(r, "path"), "", "/\"]]}"); /* metadata, never a part of a program */
	r = route(b, "/app-health/b/livez");
	text_at(r, "route.cluster", "agentd_probe_https");
	text_at(r, "route.timeout", "0s");
	text_at(cluster(b, "agentd_probe_https"), "transport_socket.name",
	    "envoy.transport_sockets.tls");
	r = route(b, "/app-health/c/livez");
	number_at(r, "direct_response.status", 503);
	assert_int_equal(json_integer_value(told(r, "timeout_ms")), 1000);
	text_at(cluster(b, "agentd_probe_grpc"), "upstream_bind_config.source_address.address",
	    "127.0.0.6");
	assert_null(route(b, "/app-health/d/livez")); /* a filter answers */
	text_at(tcp, "health_checks.0.no_traffic_interval", "1s");
	assert_int_equal(
	    json_array_size(at(b, "static_resources.clusters")), 8); /* one for d and e */
	assert_int_equal(
	    json_array_size(at(b, "stats_config.stats_matcher.inclusion_list.patterns")), 14);
	json_decref(b);
	put(f->pod.env, "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", "true");
	b = rendered_with(
	    f, "ISTIO_KUBE_APP_PROBERS", "{\"/app-health/a/livez\": {\"grpc\": {\"port\": 80}}}");
	text_at(told(route(b, "/app-health/a/livez"), "host"), "", "127.0.0.1");
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
	b = rendered_with(f, "ISTIO_DUAL_STACK", "true");
	node_set_addresses(f->node, both, 2);
	json_decref(b);
	b = render(f);
	text_at(listener(b, "0.0.0.0_15021"), OTHER_ADDRESS, "::");
	json_decref(b);
	node_set_addresses(f->node, both, 1);
	b = render(f);
	assert_null(at(listener(b, "0.0.0.0_15021"), "additional_addresses"));
	json_decref(b);
}

/* Its addresses are not known yet; a bind to a family that the kernel lacks is fatal. */
static void test_families_of_a_first_envoy(void **state)
{
	static const char *const names[] = {"0.0.0.0_15020", "0.0.0.0_15021", "0.0.0.0_15090"};
	struct fixture *f = *state;
	struct node_context old = node_context, six = node_context;
	json_t *b;

	put(f->pod.env, "ISTIO_DUAL_STACK", "true");
	assert_non_null(make(f));
	b = render(f);
	for (unsigned i = 0; i < 3; i++)
		text_at(listener(b, names[i]), OTHER_ADDRESS, "::");
	json_decref(b);
	old.both_families = false;
	assert_non_null(make_in(f, &old));
	b = render(f);
	for (unsigned i = 0; i < 3; i++)
		assert_null(at(listener(b, names[i]), "additional_addresses"));
	json_decref(b);
	six.ipv6 = true;
	assert_non_null(make_in(f, &six));
	b = render(f);
	text_at(listener(b, "::_15021"), OTHER_ADDRESS, "0.0.0.0");
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

/* istio-agent.md 8.4: who scrapes them has a certificate of the mesh. */
static void test_secure_ports(void **state)
{
	struct fixture *f = *state;
	json_t *b, *l, *tls;

	put(f->pod.env, "ENVOY_SECURE_METRICS_PORT", "15091");
	b = rendered_with(f, "ENVOY_SECURE_MERGED_METRICS_PORT", "15092");
	l = listener(b, "0.0.0.0_15091");
	tls = at(l, "filter_chains.0.transport_socket.typed_config");
	text_at(l, "filter_chains.0.filter_chain_match.transport_protocol", "tls");
	text_at(l, "listener_filters.0.name", "envoy.filters.listener.tls_inspector");
	assert_true(json_is_true(at(tls, "require_client_certificate")));
	text_at(tls, "common_tls_context.tls_certificate_sds_secret_configs.0.name", "default");
	text_at(tls, "common_tls_context.validation_context_sds_secret_config.name", "ROOTCA");
	text_at(tls,
	    "common_tls_context.validation_context_sds_secret_config.sds_config.api_config_source."
	    "grpc_services.0.envoy_grpc.cluster_name",
	    "sds-grpc");
	assert_int_equal(json_array_size(routes_of(b, "0.0.0.0_15091")), 1);
	text_at(routes_of(b, "0.0.0.0_15092"), "1.match.path", "/metrics");
	text_at(routes_of(b, "0.0.0.0_15092"), "1.route.cluster", "agent");
	number_at(b, "node.metadata.ENVOY_SECURE_METRICS_PORT", 15091);
	number_at(b, "node.metadata.ENVOY_SECURE_MERGED_METRICS_PORT", 15092);
	json_decref(b);
	refused(f, "ENVOY_SECURE_MERGED_METRICS_PORT", "15021", "are both 15021");
}

/* What Envoy itself listens on does not hold a drain up. */
static void test_own_ports(void **state)
{
	struct fixture *f = *state;
	json_t *b;

	put(f->pod.env, "ENVOY_SECURE_METRICS_PORT", "15091");
	b = rendered_with(f, "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "true");
	number_at(told(route(b, "/drain/wait"), "own"), "4", 15091);
	json_decref(b);
}

static void test_local_metrics(void **state)
{
	static const char *const both[] = {"10.0.0.7", "fd00::7"};
	struct fixture *f = *state;
	json_t *b;

	put(f->pod.env, "ISTIO_DUAL_STACK", "true");
	b = rendered_with(f, "METRICS_LOCALHOST_ACCESS_ONLY", "true");
	text_at(listener(b, "127.0.0.1_15090"), "address.socket_address.address", "127.0.0.1");
	assert_null(listener(b, "0.0.0.0_15090"));
	/* not known yet: the pod may have no ::1 */
	assert_null(at(listener(b, "127.0.0.1_15090"), "additional_addresses"));
	json_decref(b);
	node_set_addresses(f->node, both, 2);
	b = render(f);
	text_at(listener(b, "127.0.0.1_15090"), OTHER_ADDRESS, "::1");
	json_decref(b);
}

/* A field that is no text. */
static void test_compression(void **state)
{
	struct fixture *f = *state;
	json_t *b = rendered_with(f, "PROXY_CONFIG", "{\"statsCompression\": true}");

	assert_int_equal(
	    json_array_size(at(listener(b, "0.0.0.0_15090"), MANAGER "http_filters")), 4);
	json_decref(b);
	b = rendered_with(f, "PROXY_CONFIG", "{\"statsCompression\": false}");
	assert_int_equal(
	    json_array_size(at(listener(b, "0.0.0.0_15090"), MANAGER "http_filters")), 1);
	json_decref(b);
}

static void test_proxy_protocol(void **state)
{
	struct fixture *f = *state;
	json_t *b = rendered_with(f, "ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL", "true");
	json_t *filter = at(listener(b, "0.0.0.0_15021"), "listener_filters.0");

	text_at(filter, "name", "envoy.filters.listener.proxy_protocol");
	assert_true(json_is_true(at(filter, "typed_config.allow_requests_without_proxy_protocol")));
	assert_null(at(listener(b, "0.0.0.0_15020"), "listener_filters"));
	json_decref(b);
}

static json_t *flag(json_t *b, const char *key)
{
	return json_object_get(at(b, "layered_runtime.layers.0.static_layer"), key);
}

/* "" takes a flag of Istio's away; "true" and "false" are switches. */
static void test_runtime(void **state)
{
	static const char path[] = "envoy.reloadable_features.http_reject_path_with_fragment";
	struct fixture *f = *state;
	json_t *b = rendered_with(f, "PROXY_CONFIG",
	    "runtimeValues: {envoy.reloadable_features.http_reject_path_with_fragment: '', "
	    "a.b: 'true', c: '7', re2.max_program_size.error_level: '9'}");

	assert_null(flag(b, path));
	assert_true(json_is_true(flag(b, "a.b")));
	assert_string_equal(json_string_value(flag(b, "c")), "7");
	assert_string_equal(json_string_value(flag(b, "re2.max_program_size.error_level")), "9");
	json_decref(b);
	refused(f, "PROXY_CONFIG", "runtimeValues: [a]", "a map");
	refused(f, "PROXY_CONFIG", "runtimeValues: {a: \xc3\xa9}", "printable ASCII");
}

static void expect_limit(struct fixture *f, json_int_t limit)
{
	json_t *b;

	assert_non_null(make(f));
	b = render(f);
	number_at(b,
	    "overload_manager.resource_monitors.0.typed_config.max_active_downstream_connections",
	    limit);
	json_decref(b);
}

/* istio-agent.md 8.4: three places, in this order. */
static void test_connections(void **state)
{
	struct fixture *f = *state;

	expect_limit(f, 2147483647);
	put(f->pod.env, "PROXY_CONFIG",
	    "runtimeValues: {overload.global_downstream_max_connections: '100'}");
	expect_limit(f, 100);
	put(f->pod.env, "ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS", "200");
	expect_limit(f, 200);
	put(f->pod.env, "PROXY_CONFIG",
	    "connectionSettings: {globalDownstreamConnectionLimit: 300}");
	expect_limit(f, 300);
	refused(f, "PROXY_CONFIG", "connectionSettings: {globalDownstreamConnectionLimit: 0}",
	    "1 to 2147483647");
	refused(f, "ISTIO_META_GLOBAL_DOWNSTREAM_MAX_CONNECTIONS", "-1", "1 to 2147483647");
}

static void test_load_stats(void **state)
{
	struct fixture *f = *state;
	json_t *b = rendered_with(f, "ISTIO_META_LOAD_STATS_CONFIG_JSON",
	    "{\"api_type\": \"GRPC\", \"transport_api_version\": \"V3\"}");

	text_at(b, "cluster_manager.load_stats_config.api_type", "GRPC");
	assert_string_equal(meta_text(f, "LOAD_STATS_CONFIG_JSON"),
	    "{\"api_type\": \"GRPC\", \"transport_api_version\": \"V3\"}");
	json_decref(b);
	refused(f, "ISTIO_META_LOAD_STATS_CONFIG_JSON", "{}, \"node\": {}", "a JSON object");
}

static void test_internal_listeners(void **state)
{
	struct fixture *f = *state;
	json_t *b;

	assert_non_null(make(f));
	b = render(f);
	text_at(b, "bootstrap_extensions.0.name", "envoy.bootstrap.internal_listener");
	number_at(b, "bootstrap_extensions.0.typed_config.buffer_size_kb", 64);
	json_decref(b);
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
	    TEST(status_port),
	    TEST(the_script_reaches_nothing),
	    TEST(drain_values),
	    TEST(scrape_targets),
	    TEST(probers),
	    TEST(ports),
	    TEST(families),
	    TEST(families_of_a_first_envoy),
	    TEST(stats),
	    TEST(secure_ports),
	    TEST(own_ports),
	    TEST(local_metrics),
	    TEST(compression),
	    TEST(proxy_protocol),
	    TEST(runtime),
	    TEST(connections),
	    TEST(load_stats),
	    TEST(internal_listeners),
	    TEST(same_bytes),
	    TEST(hostile_text),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
