/* status.c - routes with their metadata for status.lua, and the clusters that it asks.
 *
 * A request is matched by its raw path -> guarded (loopback, pace) -> answered by the script, or
 * passed on to the app by it. A route that only the script answers has a direct response of its
 * own, 503: it is seen if the script fails.
 */
#include "status.h"
#include "common/mem.h"
#include "mesh/node.h"
#include "pieces.h"
#include "status.lua.h"
#include <stdbool.h>
#include <string.h>

enum { CONNECTIONS_MAX = 64, SCRAPES_PER_S = 20, PROBE_CONNECT_MS = 10000, GRPC_TIMEOUT_MS = 1000 };

static const char lua[] = "envoy.filters.http.lua", rbac[] = "envoy.filters.http.rbac",
		  pace[] = "envoy.filters.http.local_ratelimit";

/* --- routes --- */

static json_t *path_is(const char *path)
{
	return json_pack("{s:s}", "path", path);
}

/* `what`: a function of status.lua, with the values that it reads. */
static json_t *served(json_t *match, const char *what, json_t *values)
{
	json_object_set_new(values, "serve", json_string(what));
	return json_pack(
	    "{s:o, s:{s:{s:o}}}", "match", match, "metadata", "filter_metadata", lua, values);
}

static json_t *answered(json_t *route)
{
	json_object_set_new(route, "direct_response", json_pack("{s:i}", "status", 503));
	return route;
}

static void guard(json_t *route, const char *filter, const char *type, json_t *config)
{
	json_t *guards = json_object_get(route, "typed_per_filter_config");
	auto_free char *url = mem_printf(PIECES_TYPE("%s"), type);

	if (!guards) {
		guards = json_object();
		json_object_set_new(route, "typed_per_filter_config", guards);
	}
	json_object_set_new(config, "@type", json_string(url));
	json_object_set_new(guards, filter, config);
}

/* By the direct peer: a header names any address, and 127.0.0.6 is how Envoy passes strangers
 * through. */
static json_t *from_loopback(json_t *route)
{
	guard(route, rbac, "extensions.filters.http.rbac.v3.RBACPerRoute",
	    json_pack("{s:{s:{s:s, s:{s:{s:[{s:b}], s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}]}}}}}",
		"rbac", "rules", "action", "ALLOW", "policies", "loopback", "permissions", "any",
		true, "principals", "direct_remote_ip", "address_prefix", "127.0.0.1", "prefix_len",
		32, "direct_remote_ip", "address_prefix", "::1", "prefix_len", 128));
	return route;
}

static json_t *ready_route(void)
{
	return answered(served(path_is("/healthz/ready"), "ready", json_object()));
}

static char *numbered(const char *what, size_t i)
{
	return mem_printf("agentd_%s_%zu", what, i);
}

static json_t *scrape_targets(const struct node *n)
{
	json_t *all = json_array(), *target;
	size_t i;

	json_array_foreach (node_settings(n)->scrapes, i, target) {
		auto_free char *cluster = numbered("scrape", i);

		json_array_append_new(
		    all, json_pack("{s:s, s:O, s:o}", "cluster", cluster, "path",
			     json_object_get(target, "path"), "host",
			     json_sprintf("localhost:%d",
				 (int)json_integer_value(json_object_get(target, "port")))));
	}
	return all;
}

/* The request itself goes on to the last of the pages: the app's, or Envoy's own. */
static json_t *metrics_route(const struct node *n)
{
	const struct node_settings *s = node_settings(n);
	size_t count = json_array_size(s->scrapes);
	auto_free char *last =
	    count ? numbered("scrape", count - 1) : mem_strdup("prometheus_stats");
	json_t *route = served(
	    json_pack("{s:{s:s}}", "safe_regex", "regex", "/(metrics|stats/prometheus)"), "metrics",
	    json_pack("{s:b, s:o}", "envoy", s->merge_envoy_stats, "targets", scrape_targets(n)));

	json_object_set_new(route, "route",
	    json_pack("{s:s, s:s, s:s}", "cluster", last, "timeout", "0s", "idle_timeout", "0s"));
	guard(route, pace, "extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
	    json_pack("{s:s, s:{s:i, s:i, s:s}, s:{s:{s:i}}, s:{s:{s:i}}}", "stat_prefix",
		"scrapes", "token_bucket", "max_tokens", SCRAPES_PER_S, "tokens_per_fill",
		SCRAPES_PER_S, "fill_interval", "1s", "filter_enabled", "default_value",
		"numerator", 100, "filter_enforced", "default_value", "numerator", 100));
	return s->metrics_local_only ? from_loopback(route) : route;
}

/* Connections to these ports end no sooner than Envoy; nobody waits for them. */
static json_t *own_ports(const struct node_settings *s)
{
	unsigned ports[NODE_PORTS];
	json_t *all = json_array();

	node_own_ports(s, ports);
	for (unsigned i = 0; i < NODE_PORTS; i++)
		if (ports[i])
			json_array_append_new(all, json_integer(ports[i]));
	return all;
}

static json_t *drain_wait_route(const struct node *n)
{
	const struct node_settings *s = node_settings(n);
	json_t *values = json_pack("{s:I}", "after_ms",
	    (json_int_t)(s->exit_on_zero ? s->minimum_drain_ms : s->termination_drain_ms));

	if (s->exit_on_zero)
		json_object_set_new(values, "own", own_ports(s));
	return answered(served(path_is("/drain/wait"), "drain_wait", values));
}

static json_t *command_route(const char *path, const char *what)
{
	return from_loopback(answered(served(path_is(path), what, json_object())));
}

/* --- the app's probers --- */

static const char *text_of(const json_t *prober, const char *field)
{
	return json_string_value(json_object_get(prober, field));
}

static int number_of(const json_t *prober, const char *field)
{
	return (int)json_integer_value(json_object_get(prober, field));
}

static bool is_kind(const json_t *prober, const char *kind)
{
	return !strcmp(text_of(prober, "kind"), kind);
}

static char *probe_cluster(const json_t *prober)
{
	if (!is_kind(prober, "tcp"))
		return mem_printf("agentd_probe_%s", text_of(prober, "kind"));
	return mem_printf(
	    "agentd_probe_tcp_%d_%d", number_of(prober, "port"), number_of(prober, "timeout_s"));
}

/* Where the mesh hands inbound traffic to the loopback, apps listen there only. */
static json_t *probe_values(const struct node *n, const json_t *prober)
{
	json_t *values = json_pack("{s:i}", "port", number_of(prober, "port"));

	if (node_settings(n)->probe_loopback)
		json_object_set_new(
		    values, "host", json_string(node_is_ipv6(n) ? "[::1]" : "127.0.0.1"));
	return values;
}

static json_t *grpc_route(const struct node *n, const json_t *prober)
{
	json_t *values = probe_values(n, prober);
	int s = number_of(prober, "timeout_s");

	json_object_set(values, "service", json_object_get(prober, "service"));
	json_object_set_new(values, "timeout_ms", json_integer(s ? s * 1000 : GRPC_TIMEOUT_MS));
	return answered(served(path_is(text_of(prober, "route")), "grpc", values));
}

/* timeoutSeconds 0 is no limit, as in pilot-agent: hooks have none. */
static json_t *http_route(const struct node *n, const json_t *prober)
{
	auto_free char *cluster = probe_cluster(prober);
	json_t *values = probe_values(n, prober), *route;

	json_object_set(values, "path", json_object_get(prober, "path"));
	route = served(path_is(text_of(prober, "route")), "http", values);
	json_object_set_new(route, "route",
	    json_pack("{s:s, s:o, s:s}", "cluster", cluster, "timeout",
		json_sprintf("%ds", number_of(prober, "timeout_s")), "idle_timeout", "0s"));
	return route;
}

static void add_prober_routes(const struct node *n, json_t *routes)
{
	json_t *prober;
	size_t i;

	json_array_foreach (node_settings(n)->probers, i, prober)
		if (is_kind(prober, "grpc"))
			json_array_append_new(routes, grpc_route(n, prober));
		else if (!is_kind(prober, "tcp"))
			json_array_append_new(routes, http_route(n, prober));
}

/* A filter that answers before any route: is the one endpoint of the cluster well? */
static void add_tcp_filters(const struct node *n, json_t *filters)
{
	json_t *prober;
	size_t i;

	json_array_foreach (node_settings(n)->probers, i, prober) {
		auto_free char *cluster = probe_cluster(prober);

		if (!is_kind(prober, "tcp"))
			continue;
		json_array_append_new(
		    filters, pieces_extension("envoy.filters.http.health_check",
				 "extensions.filters.http.health_check.v3.HealthCheck",
				 json_pack("{s:b, s:[{s:s, s:{s:s}}], s:{s:{s:i}}}",
				     "pass_through_mode", false, "headers", "name", ":path",
				     "string_match", "exact", text_of(prober, "route"),
				     "cluster_min_healthy_percentages", cluster, "value", 100)));
	}
}

/* --- filters --- */

json_t *status_compressors(const struct node *n)
{
	static const char *const libraries[][2] = {
	    {"brotli", "Brotli"}, {"zstd", "Zstd"}, {"gzip", "Gzip"}};
	json_t *all = json_array();

	for (unsigned i = 0; i < 3 && node_settings(n)->stats_compression; i++) {
		const char *name = libraries[i][0];
		auto_free char *type =
		    mem_printf("extensions.compression.%s.compressor.v3.%s", name, libraries[i][1]);
		auto_free char *filter = mem_printf("envoy.filters.http.compressor.%s", name);
		auto_free char *stats = mem_printf("stats_%s", name);
		json_t *config = json_pack("{s:o, s:{s:{s:[s, s, s, s]}}}", "compressor_library",
		    pieces_extension(stats, type, json_object()), "response_direction_config",
		    "common_config", "content_type", "text/plain",
		    "application/vnd.google.protobuf", "application/openmetrics-text",
		    "application/openmetrics-protobuf");

		json_array_append_new(
		    all, pieces_extension(
			     filter, "extensions.filters.http.compressor.v3.Compressor", config));
	}
	return all;
}

/* It changes paths; the route stays that of the path that was asked. */
static json_t *script(void)
{
	return pieces_extension(lua, "extensions.filters.http.lua.v3.Lua",
	    json_pack("{s:{s:s}, s:b}", "default_source_code", "inline_string", status_lua,
		"clear_route_cache", false));
}

/* An app may compress what it was not asked to; nothing of it is kept. */
static json_t *decompressor(void)
{
	json_t *gzip = pieces_extension(
	    "gzip", "extensions.compression.gzip.decompressor.v3.Gzip", json_object());

	return pieces_extension("envoy.filters.http.decompressor",
	    "extensions.filters.http.decompressor.v3.Decompressor",
	    json_pack("{s:o, s:{s:b}}", "decompressor_library", gzip, "request_direction_config",
		"advertise_accept_encoding", false));
}

static json_t *filters(const struct node *n)
{
	json_t *all = status_compressors(n);

	json_array_append_new(
	    all, pieces_extension(rbac, "extensions.filters.http.rbac.v3.RBAC", json_object()));
	json_array_append_new(
	    all, pieces_extension(pace, "extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
		     json_pack("{s:s}", "stat_prefix", "status")));
	add_tcp_filters(n, all);
	json_array_append_new(all, script());
	json_array_append_new(all, decompressor());
	return all;
}

/* --- listeners --- */

/* What the app hears is what was asked, and nothing of Envoy's; a call that failed is 500, as
 * pilot-agent says. */
static json_t *status_http(const struct node *n)
{
	json_t *routes = json_pack("[o, o, o, o, o]", ready_route(), metrics_route(n),
	    command_route("/quitquitquit", "quit"), command_route("/drain", "drain"),
	    from_loopback(drain_wait_route(n)));
	json_t *http, *router;

	add_prober_routes(n, routes);
	http = pieces_http("agentd_status", routes, filters(n));
	router = pieces_named(json_object_get(http, "http_filters"), "envoy.filters.http.router");
	json_object_set_new(
	    json_object_get(router, "typed_config"), "suppress_envoy_headers", json_true());
	json_object_set_new(http, "codec_type", json_string("HTTP1"));
	json_object_set_new(http, "generate_request_id", json_false());
	json_object_set_new(http, "request_headers_timeout", json_string("10s"));
	json_object_set_new(http, "request_timeout", json_string("10s")); /* all of it */
	json_object_set_new(
	    http, "common_http_protocol_options", json_pack("{s:s}", "idle_timeout", "90s"));
	json_object_set_new(http, "local_reply_config",
	    json_pack("{s:[{s:{s:{s:[s, s, s, s, s, s, s, s, s]}}, s:i}]}", "mappers", "filter",
		"response_flag_filter", "flags", "UF", "UH", "UO", "UT", "LR", "UR", "UC", "UPE",
		"LH", "status_code", 500));
	return http;
}

/* Load balancers that ask for it may say for whom they ask. */
static json_t *ready_listener(const struct node *n)
{
	const struct node_settings *s = node_settings(n);
	json_t *l = pieces_listener(n, s->status_port,
	    pieces_http("agent", json_pack("[o]", ready_route()), json_pack("[o]", script())));

	if (s->proxy_protocol)
		json_object_set_new(l, "listener_filters",
		    json_pack("[o]",
			pieces_extension("envoy.filters.listener.proxy_protocol",
			    "extensions.filters.listener.proxy_protocol.v3.ProxyProtocol",
			    json_pack("{s:b}", "allow_requests_without_proxy_protocol", true))));
	return l;
}

void status_add_listeners(const struct node *n, json_t *listeners)
{
	const struct node_settings *s = node_settings(n);

	if (s->status_port)
		json_array_append_new(listeners, ready_listener(n));
	if (s->agent_port)
		json_array_append_new(listeners, pieces_listener(n, s->agent_port, status_http(n)));
}

void status_add_limits(const struct node *n, json_t *layer)
{
	auto_free char *name = pieces_listener_name(n, node_settings(n)->agent_port);
	auto_free char *key =
	    mem_printf("envoy.resource_limits.listener.%s.connection_limit", name);

	if (node_settings(n)->agent_port)
		json_object_set_new(layer, key, json_integer(CONNECTIONS_MAX));
}

void status_add_stats(const struct node *n, json_t *patterns)
{
	const struct node_settings *s = node_settings(n);
	json_t *prober;
	bool dials = false;
	size_t i;

	json_array_foreach (s->probers, i, prober)
		dials = dials || is_kind(prober, "tcp");
	if (s->exit_on_zero)
		json_array_append_new(
		    patterns, json_pack("{s:s}", "suffix", "downstream_cx_active"));
	if (dials)
		json_array_append_new(patterns, json_pack("{s:{s:s}}", "safe_regex", "regex",
						    "cluster\\.agentd_probe_tcp_[0-9_]+;\\."
						    "membership_(total|healthy|degraded)"));
}

/* --- clusters --- */

/* `protocol` NULL: as TLS agrees.  The app is dialled from where Istio's rules let through what
 * Envoy passes on; once for each request. */
static json_t *at_asked_address(const char *name, const char *protocol)
{
	json_t *options = json_pack("{s:s, s:{s:i}}", "@type",
	    PIECES_TYPE("extensions.upstreams.http.v3.HttpProtocolOptions"),
	    "common_http_protocol_options", "max_requests_per_connection", 1);
	auto_free char *stat = mem_printf("%s;", name);

	if (protocol)
		json_object_set_new(options, "explicit_http_config", json_pack("{s:{}}", protocol));
	else
		json_object_set_new(options, "auto_config", json_object());
	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:{s:{s:s, s:[{s:s}]}}, s:{s:{s:s, s:i}, "
			 "s:[{s:{s:s, s:i}}]}, s:{s:o}}",
	    "name", name, "alt_stat_name", stat, "type", "ORIGINAL_DST", "lb_policy",
	    "CLUSTER_PROVIDED", "connect_timeout", "10s", "original_dst_lb_config", "metadata_key",
	    "key", "agentd.status", "path", "key", "address", "upstream_bind_config",
	    "source_address", "address", "127.0.0.6", "port_value", 0, "extra_source_addresses",
	    "address", "address", "::6", "port_value", 0, "typed_extension_protocol_options",
	    "envoy.extensions.upstreams.http.v3.HttpProtocolOptions", options);
}

/* A call of the script has no metadata; its headers are the script's alone. */
static json_t *by_header(json_t *c)
{
	json_object_set_new(
	    c, "original_dst_lb_config", json_pack("{s:b}", "use_http_header", true));
	return c;
}

/* Whatever certificate it has, as the kubelet does. */
static json_t *with_tls(json_t *c)
{
	json_object_set_new(c, "transport_socket",
	    pieces_extension("envoy.transport_sockets.tls",
		"extensions.transport_sockets.tls.v3.UpstreamTlsContext", json_object()));
	return c;
}

/* Envoy dials each second, as a filter cannot. */
static json_t *dialled(const struct node *n, const char *name, const json_t *prober)
{
	int s = number_of(prober, "timeout_s");
	json_t *c = pieces_cluster(name, PROBE_CONNECT_MS,
	    pieces_address(pieces_loopback(n), (unsigned)number_of(prober, "port")));

	json_object_set_new(c, "health_checks",
	    json_pack("[{s:o, s:s, s:s, s:i, s:i, s:b, s:{}}]", "timeout",
		json_sprintf("%ds", s ? s : 1), "interval", "1s", "no_traffic_interval", "1s",
		"unhealthy_threshold", 1, "healthy_threshold", 1, "reuse_connection", false,
		"tcp_health_check"));
	return c;
}

static json_t *cluster_of(const struct node *n, const char *name, const json_t *prober)
{
	if (is_kind(prober, "tcp"))
		return dialled(n, name, prober);
	if (is_kind(prober, "grpc"))
		return by_header(at_asked_address(name, "http2_protocol_options"));
	if (is_kind(prober, "https"))
		return with_tls(at_asked_address(name, NULL));
	return at_asked_address(name, "http_protocol_options");
}

void status_add_clusters(const struct node *n, json_t *clusters)
{
	const struct node_settings *s = node_settings(n);
	json_t *v;
	size_t i;

	if (!s->agent_port)
		return;
	json_array_foreach (s->scrapes, i, v) {
		auto_free char *name = numbered("scrape", i);

		json_array_append_new(clusters,
		    pieces_cluster(name, PIECES_CONNECT_MS,
			pieces_address(pieces_loopback(n), (unsigned)number_of(v, "port"))));
	}
	json_array_foreach (s->probers, i, v) {
		auto_free char *name = probe_cluster(v);

		if (!pieces_named(clusters, name))
			json_array_append_new(clusters, cluster_of(n, name, v));
	}
}
