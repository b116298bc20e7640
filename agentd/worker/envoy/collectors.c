/* collectors.c - one cluster for each service, and what sends to it. */
#include "collectors.h"
#include "common/mem.h"
#include "mesh/node.h"
#include "pieces.h"
#include <string.h>

static const struct collector {
	const char *name, *cluster;
	bool grpc;
	const char *sni; /* of Istio's own TLS, where none is said */
} collectors[] = {
    {"zipkin", "zipkin", false, "tracer"},
    {"datadog", "datadog_agent", false, "tracer"},
    {"metrics", "envoy_metrics_service", true, "envoy_metrics_service"},
    {"logs", "envoy_accesslog_service", true, "envoy_accesslog_service"},
};

static const char *text_of(const json_t *o, const char *field)
{
	return json_string_value(json_object_get(o, field));
}

static json_t *address_of(const json_t *service)
{
	return pieces_address(text_of(service, "host"),
	    (unsigned)json_integer_value(json_object_get(service, "port")));
}

static const char *lookup_family(const struct node *n)
{
	if (node_settings(n)->dual_stack && node_has_family(n, true) && node_has_family(n, false))
		return "ALL";
	return node_is_ipv6(n) ? "V6_ONLY" : "V4_ONLY";
}

/* A name may be of either kind. */
static json_t *alternatives(const json_t *sans)
{
	static const char *const types[] = {"DNS", "URI"};
	json_t *all = json_array(), *v;
	size_t i;

	json_array_foreach (sans, i, v)
		for (unsigned k = 0; k < 2; k++)
			json_array_append_new(all, json_pack("{s:s, s:{s:O}}", "san_type", types[k],
						       "matcher", "exact", v));
	return all;
}

static json_t *tls(const struct collector *c, const json_t *asked)
{
	bool in_mesh = json_is_true(json_object_get(asked, "in_mesh"));
	const char *certificate = text_of(asked, "certificate"), *sni = text_of(asked, "sni");
	json_t *common = json_pack("{s:{s:{}, s:o}}", "combined_validation_context",
	    "default_validation_context", "validation_context_sds_secret_config",
	    pieces_secret(text_of(asked, "root")));
	json_t *config = json_pack("{s:o}", "common_tls_context", common);
	json_t *sans = json_object_get(asked, "sans");

	if (sans)
		json_object_set_new(
		    json_object_get(json_object_get(common, "combined_validation_context"),
			"default_validation_context"),
		    "match_typed_subject_alt_names", alternatives(sans));
	if (certificate)
		json_object_set_new(common, "tls_certificate_sds_secret_configs",
		    json_pack("[o]", pieces_secret(certificate)));
	if (c->grpc)
		json_object_set_new(common, "alpn_protocols",
		    in_mesh ? json_pack("[s, s]", "istio", "h2") : json_pack("[s]", "h2"));
	if (!sni && in_mesh)
		sni = c->sni;
	if (sni)
		json_object_set_new(config, "sni", json_string(sni));
	return pieces_extension("envoy.transport_sockets.tls",
	    "extensions.transport_sockets.tls.v3.UpstreamTlsContext", config);
}

static json_t *cluster(const struct node *n, const struct collector *c, const json_t *service)
{
	json_t *all = pieces_cluster(c->cluster, 1000, address_of(service));
	json_t *keepalive = json_object_get(service, "keepalive");

	json_object_set_new(all, "type", json_string("STRICT_DNS"));
	json_object_set_new(all, "respect_dns_ttl", json_true());
	json_object_set_new(all, "dns_lookup_family", json_string(lookup_family(n)));
	if (!strcmp(c->name, "zipkin"))
		json_object_set_new(all, "dns_refresh_rate", json_string("30s"));
	if (c->grpc)
		pieces_speak_http2(all, 0);
	if (keepalive)
		json_object_set_new(all, "upstream_connection_options",
		    json_pack("{s:O}", "tcp_keepalive", keepalive));
	if (json_object_get(service, "tls"))
		json_object_set_new(
		    all, "transport_socket", tls(c, json_object_get(service, "tls")));
	return all;
}

static void set_tracer(json_t *bootstrap, const char *name, const char *type, json_t *config)
{
	json_object_set_new(
	    bootstrap, "tracing", json_pack("{s:o}", "http", pieces_extension(name, type, config)));
}

static void add_tracer(const struct node *n, const json_t *asked, json_t *bootstrap)
{
	if (json_object_get(asked, "zipkin"))
		set_tracer(bootstrap, "envoy.tracers.zipkin", "config.trace.v3.ZipkinConfig",
		    json_pack("{s:s, s:s, s:s, s:b, s:b}", "collector_cluster", "zipkin",
			"collector_endpoint", "/api/v2/spans", "collector_endpoint_version",
			"HTTP_JSON", "trace_id_128bit", true, "shared_span_context", false));
	if (json_object_get(asked, "datadog"))
		set_tracer(bootstrap, "envoy.tracers.datadog", "config.trace.v3.DatadogConfig",
		    json_pack("{s:s, s:O}", "collector_cluster", "datadog_agent", "service_name",
			json_object_get(node_json(n), "cluster")));
}

static void add_sinks(const json_t *asked, json_t *bootstrap)
{
	json_t *sinks = json_array(), *statsd = json_object_get(asked, "statsd");

	if (json_object_get(asked, "metrics"))
		json_array_append_new(
		    sinks, pieces_extension("envoy.stat_sinks.metrics_service",
			       "config.metrics.v3.MetricsServiceConfig",
			       json_pack("{s:s, s:{s:{s:s}}}", "transport_api_version", "V3",
				   "grpc_service", "envoy_grpc", "cluster_name",
				   "envoy_metrics_service")));
	if (statsd)
		json_array_append_new(sinks,
		    pieces_extension("envoy.stat_sinks.statsd", "config.metrics.v3.StatsdSink",
			json_pack("{s:o}", "address", address_of(statsd))));
	if (json_array_size(sinks))
		json_object_set(bootstrap, "stats_sinks", sinks);
	json_decref(sinks);
}

void collectors_add(const struct node *n, json_t *bootstrap)
{
	const json_t *asked = node_settings(n)->collectors;
	json_t *clusters =
	    json_object_get(json_object_get(bootstrap, "static_resources"), "clusters");

	for (unsigned i = 0; i < sizeof(collectors) / sizeof(*collectors); i++) {
		const json_t *service = json_object_get(asked, collectors[i].name);

		if (service)
			json_array_append_new(clusters, cluster(n, &collectors[i], service));
	}
	add_tracer(n, asked, bootstrap);
	add_sinks(asked, bootstrap);
}
