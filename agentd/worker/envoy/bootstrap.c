/* bootstrap.c - Envoy's bootstrap as one JSON document, section by section in Envoy's order.
 *
 * Written so that upstream Envoy takes it too: nothing of Istio's own extensions
 * (istio-agent.md 8.9).  Paths are relative to "/" and Istio's, as the pod's directory is mounted
 * at both of Istio's places.  Settings that are not listed have Envoy's defaults.
 */
#include "bootstrap.h"
#include "collectors.h"
#include "common/mem.h"
#include "mesh/node.h"
#include "mesh/override.h"
#include "pieces.h"
#include "runtime.h"
#include "stats.h"
#include "status.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char xds_path[] = "./etc/istio/proxy/XDS";
static const char sds_path[] = "./var/run/secrets/workload-spiffe-uds/socket";

#define TYPE PIECES_TYPE

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

/* Envoy's own pause after a refused stream would grow to 30 s.  Agentd paces what istiod sees. */
static json_t *dynamic_resources(const struct node *n)
{
	const char *flavour = node_settings(n)->delta_xds ? "DELTA_GRPC" : "GRPC";

	return json_pack("{s:o, s:o, s:{s:s, s:b, s:s, s:[{s:{s:s, s:{s:{s:s, s:s}}}}]}}",
	    "lds_config", from_ads(), "cds_config", from_ads(), "ads_config", "api_type", flavour,
	    "set_node_on_first_message_only", true, "transport_api_version", "V3", "grpc_services",
	    "envoy_grpc", "cluster_name", "xds-grpc", "retry_policy", "retry_back_off",
	    "base_interval", "0.5s", "max_interval", "5s");
}

/* HTTP/2 over a unix socket to agentd.  `requests`: of one connection, 0: any. */
static json_t *agentd_cluster(const char *name, const char *path, int requests)
{
	json_t *c = pieces_cluster(name, 1000, json_pack("{s:{s:s}}", "pipe", "path", path));

	pieces_speak_http2(c, requests);
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

/* Of the pod itself, where its owner wants nobody else to see it.  A pod that is not known yet may
 * have no ::1, and a bind to a missing address is Envoy's end. */
static json_t *only_local(const struct node *n, json_t *listener, unsigned port)
{
	const char *other = node_is_ipv6(n) ? "127.0.0.1" : "::1";

	json_object_set_new(listener, "name", json_sprintf("%s_%u", pieces_loopback(n), port));
	json_object_set_new(listener, "address", pieces_address(pieces_loopback(n), port));
	if (!node_has_addresses(n))
		json_object_del(listener, "additional_addresses");
	if (json_object_get(listener, "additional_addresses"))
		json_object_set_new(listener, "additional_addresses",
		    json_pack("[{s:o}]", "address", pieces_address(other, port)));
	return listener;
}

static json_t *metrics_listener(const struct node *n, unsigned port)
{
	json_t *routes = json_pack("[o]", pieces_route("/stats/prometheus", "prometheus_stats"));
	json_t *l = pieces_listener(n, port, pieces_http("stats", routes, status_compressors(n)));

	return node_settings(n)->metrics_local_only ? only_local(n, l, port) : l;
}

/* For clients with a certificate of the mesh. */
static json_t *with_mutual_tls(json_t *listener)
{
	json_t *chain = json_array_get(json_object_get(listener, "filter_chains"), 0);
	json_t *tls = json_pack("{s:b, s:{s:[o], s:o}}", "require_client_certificate", true,
	    "common_tls_context", "tls_certificate_sds_secret_configs", pieces_secret("default"),
	    "validation_context_sds_secret_config", pieces_secret("ROOTCA"));

	json_object_set_new(listener, "listener_filters",
	    json_pack("[o]",
		pieces_extension("envoy.filters.listener.tls_inspector",
		    "extensions.filters.listener.tls_inspector.v3.TlsInspector", json_object())));
	json_object_set_new(
	    chain, "filter_chain_match", json_pack("{s:s}", "transport_protocol", "tls"));
	json_object_set_new(chain, "transport_socket",
	    pieces_extension("envoy.transport_sockets.tls",
		"extensions.transport_sockets.tls.v3.DownstreamTlsContext", tls));
	return listener;
}

/* `merged`: with the app's metrics, which the status port puts together. */
static json_t *secure_listener(const struct node *n, unsigned port, bool merged)
{
	json_t *routes = json_pack("[o]", pieces_route("/stats/prometheus", "prometheus_stats"));

	if (merged)
		json_array_append_new(routes, pieces_route("/metrics", "agent"));
	return with_mutual_tls(
	    pieces_listener(n, port, pieces_http("stats", routes, status_compressors(n))));
}

/* Everything else on these ports is Envoy's 404: its admin has pages that no one outside may see.
 */
static json_t *listeners(const struct node *n)
{
	const struct node_settings *s = node_settings(n);
	json_t *all = json_array();

	if (s->prometheus_port)
		json_array_append_new(all, metrics_listener(n, s->prometheus_port));
	if (s->secure_port)
		json_array_append_new(all, secure_listener(n, s->secure_port, false));
	if (s->secure_merged_port)
		json_array_append_new(
		    all, secure_listener(n, s->secure_merged_port, s->agent_port));
	status_add_listeners(n, all);
	return all;
}

static json_t *overload_manager(const struct node *n)
{
	return json_pack("{s:[{s:s, s:{s:s, s:I}}]}", "resource_monitors", "name",
	    "envoy.resource_monitors.global_downstream_max_connections", "typed_config", "@type",
	    TYPE("extensions.resource_monitors.downstream_connections.v3."
		 "DownstreamConnectionsConfig"),
	    "max_active_downstream_connections", (json_int_t)node_settings(n)->connections_max);
}

/* Listeners inside Envoy, which istiod may send. */
static json_t *extensions(void)
{
	return json_pack("[o]", pieces_extension("envoy.bootstrap.internal_listener",
				    "extensions.bootstrap.internal_listener.v3.InternalListener",
				    json_pack("{s:i}", "buffer_size_kb", 64)));
}

static json_t *document(const struct node *n)
{
	const struct node_settings *s = node_settings(n);
	json_t *all = json_pack("{s:O, s:o, s:o, s:o, s:o, s:{s:o, s:o}, s:{s:b}, s:o}", "node",
	    (json_t *)node_json(n), "layered_runtime", runtime_layers(n), "bootstrap_extensions",
	    extensions(), "admin", admin(n), "dynamic_resources", dynamic_resources(n),
	    "static_resources", "clusters", clusters(n), "listeners", listeners(n),
	    "deferred_stat_options", "enable_deferred_creation_stats", true, "overload_manager",
	    overload_manager(n));

	stats_add(n, all);
	collectors_add(n, all);
	if (s->load_stats)
		json_object_set_new(all, "cluster_manager",
		    json_pack("{s:b, s:O}", "enable_deferred_cluster_creation", true,
			"load_stats_config", s->load_stats));
	if (s->override)
		override_merge(all, s->override);
	return all;
}

char *bootstrap_render(const struct node *n, size_t *len)
{
	json_t *all = document(n);
	char *text = json_dumps(all, JSON_INDENT(1));

	json_decref(all);
	if (!text)
		abort(); /* every part is valid JSON; else memory is gone */
	*len = strlen(text);
	return text;
}
