/* collectors_test.c - tracers, statsd, metrics and access log services; that Envoy takes them is
 * shown end to end.
 *
 * LINK: tests/unit/mesh/node_rig.c
 */
#include "tests/unit/mesh/node_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define ENDPOINT "load_assignment.endpoints.0.lb_endpoints.0.endpoint.address.socket_address."
#define TLS "transport_socket.typed_config."
#define CONTEXT TLS "common_tls_context."
#define TRUST CONTEXT "combined_validation_context."

static void test_nothing_asked(void **state)
{
	struct fixture *f = *state;
	json_t *b = rendered_with(f, "PROXY_CONFIG",
	    "{tracing: {sampling: 10}, envoyMetricsService: {address: ''}, statsdUdpAddress: ''}");

	assert_null(at(b, "tracing"));
	assert_null(at(b, "stats_sinks"));
	assert_int_equal(json_array_size(at(b, "static_resources.clusters")), 4);
	json_decref(b);
}

static void test_zipkin(void **state)
{
	struct fixture *f = *state;
	json_t *b = rendered_with(
	    f, "PROXY_CONFIG", "tracing: {zipkin: {address: 'zipkin.istio-system:9411'}}");
	json_t *c = cluster(b, "zipkin");

	text_at(c, "type", "STRICT_DNS");
	text_at(c, "alt_stat_name", "zipkin;");
	text_at(c, "dns_lookup_family", "V4_ONLY");
	text_at(c, "dns_refresh_rate", "30s");
	text_at(c, ENDPOINT "address", "zipkin.istio-system");
	number_at(c, ENDPOINT "port_value", 9411);
	assert_null(at(c, "transport_socket"));
	text_at(b, "tracing.http.name", "envoy.tracers.zipkin");
	text_at(b, "tracing.http.typed_config.collector_endpoint", "/api/v2/spans");
	text_at(b, "tracing.http.typed_config.collector_endpoint_version", "HTTP_JSON");
	assert_true(json_is_true(at(b, "tracing.http.typed_config.trace_id_128bit")));
	assert_true(json_is_false(at(b, "tracing.http.typed_config.shared_span_context")));
	json_decref(b);
}

static void test_datadog(void **state)
{
	struct fixture *f = *state;
	struct node_context known = node_context;
	json_t *b;

	known.host_ip = "10.0.0.9"; /* the node's */
	put(f->pod.labels, "app", "web");
	put(f->pod.env, "PROXY_CONFIG", "tracing: {datadog: {address: '$(HOST_IP):8126'}}");
	b = rendered_with(f, "HOST_IP", "fd00::1");
	text_at(cluster(b, "datadog_agent"), ENDPOINT "address", "fd00::1");
	text_at(b, "tracing.http.typed_config.service_name", "web.demo");
	text_at(b, "tracing.http.typed_config.collector_cluster", "datadog_agent");
	json_decref(b);
	assert_non_null(make_in(f, &known));
	b = render(f);
	text_at(cluster(b, "datadog_agent"), ENDPOINT "address", "10.0.0.9");
	json_decref(b);
	assert_non_null(make(f)); /* nobody knows it: the pod does without */
	b = render(f);
	text_at(cluster(b, "datadog_agent"), ENDPOINT "address", "$(HOST_IP)");
	json_decref(b);
}

static void test_services(void **state)
{
	struct fixture *f = *state;
	json_t *b = rendered_with(f, "PROXY_CONFIG",
	    "{envoyMetricsService: {address: '[fd00::9]:15000', tcpKeepalive: {probes: 3, time: "
	    "10s, interval: 1m}}, envoyAccessLogService: {address: 'als:9000'}, "
	    "statsdUdpAddress: '10.1.2.3:8125'}");
	json_t *c = cluster(b, "envoy_metrics_service");

	text_at(c, ENDPOINT "address", "fd00::9");
	number_at(c, "upstream_connection_options.tcp_keepalive.keepalive_probes", 3);
	number_at(c, "upstream_connection_options.tcp_keepalive.keepalive_time", 10);
	number_at(c, "upstream_connection_options.tcp_keepalive.keepalive_interval", 60);
	assert_int_equal(json_object_size(at(c, "typed_extension_protocol_options")), 1);
	text_at(b, "stats_sinks.0.typed_config.grpc_service.envoy_grpc.cluster_name",
	    "envoy_metrics_service");
	text_at(b, "stats_sinks.1.name", "envoy.stat_sinks.statsd");
	text_at(b, "stats_sinks.1.typed_config.address.socket_address.address", "10.1.2.3");
	c = cluster(b, "envoy_accesslog_service");
	text_at(c, ENDPOINT "address", "als");
	assert_null(at(c, "upstream_connection_options"));
	json_decref(b);
}

static json_t *service_with_tls(struct fixture *f, const char *config, const char *name)
{
	json_t *b = rendered_with(f, "PROXY_CONFIG", config);
	json_t *c = json_incref(cluster(b, name));

	json_decref(b);
	return c;
}

/* Certificates are agentd's to give, also those in files: Envoy opens them, in the pod. */
static void test_tls(void **state)
{
	struct fixture *f = *state;
	json_t *c = service_with_tls(f,
	    "envoyAccessLogService: {address: 'als:1', tlsSettings: {mode: ISTIO_MUTUAL, "
	    "subjectAltNames: [spiffe://a]}}",
	    "envoy_accesslog_service");

	text_at(c, CONTEXT "tls_certificate_sds_secret_configs.0.name", "default");
	text_at(c, TRUST "validation_context_sds_secret_config.name", "ROOTCA");
	text_at(
	    c, TRUST "default_validation_context.match_typed_subject_alt_names.1.san_type", "URI");
	text_at(c, TRUST "default_validation_context.match_typed_subject_alt_names.1.matcher.exact",
	    "spiffe://a");
	text_at(c, CONTEXT "alpn_protocols.0", "istio");
	text_at(c, TLS "sni", "envoy_accesslog_service");
	json_decref(c);
	c = service_with_tls(f,
	    "envoyMetricsService: {address: 'm:1', tlsSettings: {mode: MUTUAL, sni: s, "
	    "clientCertificate: /c/a.pem, privateKey: /c/k.pem, caCertificates: /c/r.pem}}",
	    "envoy_metrics_service");
	text_at(
	    c, CONTEXT "tls_certificate_sds_secret_configs.0.name", "file-cert:/c/a.pem~/c/k.pem");
	text_at(c, TRUST "validation_context_sds_secret_config.name", "file-root:/c/r.pem");
	text_at(c, CONTEXT "alpn_protocols.0", "h2");
	text_at(c, TLS "sni", "s");
	json_decref(c);
	c = service_with_tls(
	    f, "tracing: {zipkin: {address: 'z:1'}, tlsSettings: {mode: SIMPLE}}", "zipkin");
	text_at(c, TRUST "validation_context_sds_secret_config.name", "file-root:system");
	assert_null(at(c, CONTEXT "alpn_protocols"));
	assert_null(at(c, CONTEXT "tls_certificate_sds_secret_configs"));
	assert_null(at(c, TLS "sni"));
	json_decref(c);
}

static void test_families(void **state)
{
	static const char *const six[] = {"fd00::7"}, *const both[] = {"10.0.0.7", "fd00::7"};
	struct fixture *f = *state;
	json_t *b;

	put(f->pod.env, "PROXY_CONFIG", "tracing: {zipkin: {address: 'z:1'}}");
	put(f->pod.env, "ISTIO_DUAL_STACK", "true");
	assert_non_null(make(f));
	node_set_addresses(f->node, six, 1);
	b = render(f);
	text_at(cluster(b, "zipkin"), "dns_lookup_family", "V6_ONLY");
	json_decref(b);
	node_set_addresses(f->node, both, 2);
	b = render(f);
	text_at(cluster(b, "zipkin"), "dns_lookup_family", "ALL");
	json_decref(b);
}

static void test_what_is_refused(void **state)
{
	static const struct {
		const char *config, *allowed;
	} bad[] = {
	    {"tracing: {lightstep: {address: 'a:1', accessToken: t}}", "\"lightstep\" refused"},
	    {"tracing: {openCensusAgent: {address: 'a:1'}}", "\"openCensusAgent\" refused"},
	    {"tracing: {stackdriver: {debug: true}}", "\"stackdriver\" refused"},
	    {"tracing: {zipkin: {address: zipkin}}", "HOST:PORT"},
	    {"tracing: {zipkin: {address: 'zipkin:0'}}", "HOST:PORT"},
	    {"tracing: {zipkin: {address: 'zipkin:65536'}}", "HOST:PORT"},
	    {"tracing: {zipkin: {address: 'zipkin:9411/x'}}", "HOST:PORT"},
	    {"tracing: {zipkin: {address: ':9411'}}", "HOST:PORT"},
	    {"tracing: {zipkin: {address: 'fd00::1:9411'}}", "HOST:PORT"},
	    {"tracing: {zipkin: {address: '[fd00::1:9411'}}", "HOST:PORT"},
	    {"tracing: {zipkin: {address: 'a\", \"b\": \"c:9'}}", "HOST:PORT"},
	    {"statsdUdpAddress: 'statsd:8125'", "IP:PORT"},
	    {"statsdUdpAddress: '$(HOST_IP):8125'", "IP:PORT"},
	    {"envoyMetricsService: {address: 'a:1', tlsSettings: {mode: TLS}}", "ISTIO_MUTUAL"},
	    {"envoyMetricsService: {address: 'a:1', tlsSettings: {mode: MUTUAL}}",
		"clientCertificate"},
	    {"envoyMetricsService: {address: 'a:1', tlsSettings: {mode: SIMPLE, caCertificates: "
	     "r.pem}}",
		"an absolute path"},
	    {"envoyMetricsService: {address: 'a:1', tlsSettings: {mode: SIMPLE, caCertificates: "
	     "/a/../b}}",
		"an absolute path"},
	    {"envoyMetricsService: {address: 'a:1', tlsSettings: {mode: SIMPLE, caCertificates: "
	     "/a~/b}}",
		"an absolute path"},
	    {"envoyMetricsService: {address: 'a:1', tlsSettings: {mode: SIMPLE, credentialName: "
	     "c}}",
		"files, or ISTIO_MUTUAL"},
	    {"envoyMetricsService: {address: 'a:1', tlsSettings: {mode: SIMPLE, subjectAltNames: "
	     "['a b']}}",
		"printable ASCII"},
	    {"envoyAccessLogService: {address: 'a:1', tcpKeepalive: {probes: 32768}}",
		"0 to 32767"},
	    {"envoyAccessLogService: {address: 'a:1', tcpKeepalive: {time: 30000h}}",
		"0s to 32767s"},
	};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		refused(f, "PROXY_CONFIG", bad[i].config, bad[i].allowed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(nothing_asked),
	    TEST(zipkin),
	    TEST(datadog),
	    TEST(services),
	    TEST(tls),
	    TEST(families),
	    TEST(what_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
