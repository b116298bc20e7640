/* pieces.c - the forms that repeat in a bootstrap. */
#include "pieces.h"
#include "common/mem.h"
#include "mesh/node.h"
#include <string.h>

const char *pieces_loopback(const struct node *n)
{
	return node_is_ipv6(n) ? "::1" : "127.0.0.1";
}

json_t *pieces_address(const char *ip, unsigned port)
{
	return json_pack(
	    "{s:{s:s, s:i}}", "socket_address", "address", ip, "port_value", (int)port);
}

json_t *pieces_cluster(const char *name, int connect_ms, json_t *address)
{
	auto_free char *stat = mem_printf("%s;", name);
	auto_free char *timeout = mem_printf("%d.%03ds", connect_ms / 1000, connect_ms % 1000);

	return json_pack("{s:s, s:s, s:s, s:s, s:s, s:{s:s, s:[{s:[{s:{s:o}}]}]}}", "name", name,
	    "alt_stat_name", stat, "type", "STATIC", "connect_timeout", timeout, "lb_policy",
	    "ROUND_ROBIN", "load_assignment", "cluster_name", name, "endpoints", "lb_endpoints",
	    "endpoint", "address", address);
}

void pieces_speak_http2(json_t *cluster, int requests)
{
	json_t *options = json_pack("{s:s, s:{s:{}}}", "@type",
	    PIECES_TYPE("extensions.upstreams.http.v3.HttpProtocolOptions"), "explicit_http_config",
	    "http2_protocol_options");

	if (requests)
		json_object_set_new(options, "common_http_protocol_options",
		    json_pack("{s:i}", "max_requests_per_connection", requests));
	json_object_set_new(cluster, "typed_extension_protocol_options",
	    json_pack("{s:o}", "envoy.extensions.upstreams.http.v3.HttpProtocolOptions", options));
}

json_t *pieces_secret(const char *name)
{
	json_t *from = json_pack("{s:s, s:{s:s, s:s, s:b, s:[{s:{s:s}}]}}", "resource_api_version",
	    "V3", "api_config_source", "api_type", "GRPC", "transport_api_version", "V3",
	    "set_node_on_first_message_only", true, "grpc_services", "envoy_grpc", "cluster_name",
	    "sds-grpc");

	if (!strchr(name, ':'))
		json_object_set_new(from, "initial_fetch_timeout", json_string("0s"));
	return json_pack("{s:s, s:o}", "name", name, "sds_config", from);
}

json_t *pieces_route(const char *path, const char *cluster)
{
	return json_pack("{s:{s:s}, s:{s:s}}", "match", "path", path, "route", "cluster", cluster);
}

json_t *pieces_named(json_t *list, const char *name)
{
	size_t i;
	json_t *v;

	json_array_foreach (list, i, v)
		if (!strcmp(json_string_value(json_object_get(v, "name")), name))
			return v;
	return NULL;
}

json_t *pieces_extension(const char *name, const char *type, json_t *config)
{
	auto_free char *url = mem_printf(PIECES_TYPE("%s"), type);

	json_object_set_new(config, "@type", json_string(url));
	return json_pack("{s:s, s:o}", "name", name, "typed_config", config);
}

json_t *pieces_http(const char *stat_prefix, json_t *routes, json_t *filters)
{
	json_t *all = filters ? filters : json_array();
	json_t *hosts = json_pack("{s:[{s:s, s:[s], s:o}]}", "virtual_hosts", "name", "backend",
	    "domains", "*", "routes", routes);

	json_array_append_new(all, pieces_extension("envoy.filters.http.router",
				       "extensions.filters.http.router.v3.Router", json_object()));
	return json_pack("{s:s, s:s, s:o, s:o}", "codec_type", "AUTO", "stat_prefix", stat_prefix,
	    "route_config", hosts, "http_filters", all);
}

char *pieces_listener_name(const struct node *n, unsigned port)
{
	return mem_printf("%s_%u", node_is_ipv6(n) ? "::" : "0.0.0.0", port);
}

json_t *pieces_listener(const struct node *n, unsigned port, json_t *http)
{
	bool v6 = node_is_ipv6(n);
	const char *wildcard = v6 ? "::" : "0.0.0.0", *other = v6 ? "0.0.0.0" : "::";
	auto_free char *name = pieces_listener_name(n, port);
	json_t *manager = pieces_extension("envoy.filters.network.http_connection_manager",
	    "extensions.filters.network.http_connection_manager.v3.HttpConnectionManager", http);
	json_t *l = json_pack("{s:s, s:o, s:b, s:b, s:[{s:[o]}]}", "name", name, "address",
	    pieces_address(wildcard, port), "ignore_global_conn_limit", true,
	    "bypass_overload_manager", true, "filter_chains", "filters", manager);

	if (node_settings(n)->dual_stack && node_has_family(n, !v6))
		json_object_set_new(l, "additional_addresses",
		    json_pack("[{s:o}]", "address", pieces_address(other, port)));
	return l;
}
