/* bootstrap.c - Envoy's bootstrap as one JSON document, section by section in Envoy's order.
 *
 * Written so that upstream Envoy takes it too: nothing of Istio's own extensions
 * (istio-agent.md 8.9).  Paths are relative to "/" and Istio's, as the pod's directory is mounted
 * at both of Istio's places.  Settings that are not listed have Envoy's defaults.
 */
#include "bootstrap.h"
#include "common/mem.h"
#include "node.h"
#include "pieces.h"
#include "stats.h"
#include "status.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char xds_path[] = "./etc/istio/proxy/XDS";
static const char sds_path[] = "./var/run/secrets/workload-spiffe-uds/socket";

#define TYPE PIECES_TYPE
#define HTTP_OPTIONS "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

enum { LIMITLESS = 2147483647 };

static json_t *runtime(const struct node *n)
{
	json_t *layer = json_pack("{s:s, s:b, s:b, s:b, s:b}", "re2.max_program_size.error_level",
	    "32768",
	    "envoy.deprecated_features:envoy.config.listener.v3.Listener.hidden_envoy_deprecated_"
	    "use_original_dst",
	    true, "envoy.reloadable_features.http_reject_path_with_fragment", false,
	    "envoy.reloadable_features.fixed_heap_use_allocated", true,
	    "envoy.reloadable_features.coalesce_lb_rebuilds_on_batch_update", false);

	status_add_limits(n, layer);
	return json_pack("{s:[{s:s, s:o}, {s:s, s:{}}]}", "layers", "name", "global config",
	    "static_layer", layer, "name", "admin", "admin_layer");
}

static json_t *admin(const struct node *n)
{
	return json_pack("{s:[{s:s, s:{s:s, s:s}}], s:s, s:o}", "access_log", "name",
	    "envoy.access_loggers.file", "typed_config", "@type",
	    TYPE("extensions.access_loggers.file.v3.FileAccessLog"), "path", "/dev/null",
	    "profile_path", "/var/lib/istio/data/envoy.prof", "address",
	    pieces_address(pieces_loopback(n), node_settings(n)->admin_port));
}

static json_t *from_ads(void)
{
	return json_pack(
	    "{s:{}, s:s, s:s}", "ads", "initial_fetch_timeout", "0s", "resource_api_version", "V3");
}

static json_t *dynamic_resources(const struct node *n)
{
	const char *flavour = node_settings(n)->delta_xds ? "DELTA_GRPC" : "GRPC";

	return json_pack("{s:o, s:o, s:{s:s, s:b, s:s, s:[{s:{s:s}}]}}", "lds_config", from_ads(),
	    "cds_config", from_ads(), "ads_config", "api_type", flavour,
	    "set_node_on_first_message_only", true, "transport_api_version", "V3", "grpc_services",
	    "envoy_grpc", "cluster_name", "xds-grpc");
}

/* HTTP/2 over a unix socket to agentd.  `requests`: of one connection, 0: any. */
static json_t *agentd_cluster(const char *name, const char *path, int requests)
{
	json_t *c = pieces_cluster(name, 1000, json_pack("{s:{s:s}}", "pipe", "path", path));
	json_t *http = json_pack("{s:s, s:{s:{}}}", "@type",
	    TYPE("extensions.upstreams.http.v3.HttpProtocolOptions"), "explicit_http_config",
	    "http2_protocol_options");

	if (requests)
		json_object_set_new(http, "common_http_protocol_options",
		    json_pack("{s:i}", "max_requests_per_connection", requests));
	json_object_set_new(
	    c, "typed_extension_protocol_options", json_pack("{s:o}", HTTP_OPTIONS, http));
	return c;
}

/* Each ADS stream comes on a connection of its own (istio-agent.md 0.1). */
static json_t *xds_cluster(void)
{
	static const char *const priorities[] = {"DEFAULT", "HIGH"};
	json_t *c = agentd_cluster("xds-grpc", xds_path, 1), *thresholds = json_array();

	for (unsigned i = 0; i < 2; i++)
		json_array_append_new(thresholds,
		    json_pack("{s:s, s:i, s:i, s:i}", "priority", priorities[i], "max_connections",
			100000, "max_pending_requests", 100000, "max_requests", 100000));
	json_object_set_new(c, "circuit_breakers", json_pack("{s:o}", "thresholds", thresholds));
	return c;
}

static json_t *clusters(const struct node *n)
{
	const struct node_settings *s = node_settings(n);
	json_t *all = json_array();

	json_array_append_new(all, pieces_cluster("prometheus_stats", PIECES_CONNECT_MS,
				       pieces_address(pieces_loopback(n), s->admin_port)));
	if (s->agent_port)
		json_array_append_new(all, pieces_cluster("agent", PIECES_CONNECT_MS,
					       pieces_address(pieces_loopback(n), s->agent_port)));
	json_array_append_new(all, agentd_cluster("sds-grpc", sds_path, 0));
	json_array_append_new(all, xds_cluster());
	status_add_clusters(n, all);
	return all;
}

/* Everything else on these ports is Envoy's 404: its admin has pages that no one outside may see.
 */
static json_t *listeners(const struct node *n)
{
	const struct node_settings *s = node_settings(n);
	json_t *all = json_array();

	if (s->prometheus_port)
		json_array_append_new(
		    all, pieces_listener(n, s->prometheus_port,
			     pieces_http("stats",
				 json_pack("[{s:{s:s}, s:{s:s}}]", "match", "path",
				     "/stats/prometheus", "route", "cluster", "prometheus_stats"),
				 status_compressors(n))));
	status_add_listeners(n, all);
	return all;
}

static json_t *overload_manager(void)
{
	return json_pack("{s:[{s:s, s:{s:s, s:i}}]}", "resource_monitors", "name",
	    "envoy.resource_monitors.global_downstream_max_connections", "typed_config", "@type",
	    TYPE("extensions.resource_monitors.downstream_connections.v3."
		 "DownstreamConnectionsConfig"),
	    "max_active_downstream_connections", LIMITLESS);
}

char *bootstrap_render(const struct node *n, size_t *len)
{
	json_t *all = json_pack("{s:O, s:o, s:o, s:o, s:{s:o, s:o}, s:{s:b}, s:o}", "node",
	    (json_t *)node_json(n), "layered_runtime", runtime(n), "admin", admin(n),
	    "dynamic_resources", dynamic_resources(n), "static_resources", "clusters", clusters(n),
	    "listeners", listeners(n), "deferred_stat_options", "enable_deferred_creation_stats",
	    true, "overload_manager", overload_manager());
	char *text;

	stats_add(n, all);
	text = json_dumps(all, JSON_INDENT(1));
	json_decref(all);
	if (!text)
		abort(); /* every part is valid JSON; else memory is gone */
	*len = strlen(text);
	return text;
}
