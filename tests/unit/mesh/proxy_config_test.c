/* proxy_config_test.c - labels, annotations and ProxyConfig: what wins over what, in which types.
 *
 * LINK: tests/unit/mesh/node_rig.c
 */
#include "common/mem.h"
#include "node_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_labels(void **state)
{
	struct fixture *f = *state;

	put(f->pod.labels, "app", "real");
	put(f->pod.labels, "pod-template-hash", "abc");
	accepted(f, "ISTIO_METAJSON_LABELS", "{\"app\": \"claimed\", \"v\": \"1\"}");
	assert_string_equal(json_string_value(json_object_get(meta(f, "LABELS"), "app")), "real");
	assert_string_equal(json_string_value(json_object_get(meta(f, "LABELS"), "v")), "1");
	assert_null(json_object_get(meta(f, "LABELS"), "pod-template-hash"));
	assert_string_equal(
	    json_string_value(json_object_get(meta(f, "STATIC_LABELS"), "app")), "claimed");
	refused(f, "ISTIO_METAJSON_LABELS", "{\"app\": 1}", "app");
	refused(f, "ISTIO_METAJSON_LABELS", "{\"a b\": \"1\"}", "key");
	refused(f, "ISTIO_METAJSON_ANNOTATIONS", "[]", "JSON object");
	assert_non_null(json_object_get(f->pod.labels, "pod-template-hash")); /* the pod's own */
}

static const json_t *config_field(const struct fixture *f, const char *name)
{
	return json_object_get(meta(f, "PROXY_CONFIG"), name);
}

/* istio-agent.md 8.7 */
static void test_proxy_config_precedence(void **state)
{
	struct fixture *f = *state;

	put(f->pod.env, "PROXY_CONFIG",
	    "{\"concurrency\": 1, \"drainDuration\": \"10s\", \"statusPort\": 15030,"
	    " \"proxyMetadata\": {\"A\": \"1\", \"B\": \"1\"}}");
	put(f->pod.annotations, "proxy.istio.io/config",
	    "concurrency: 2\nproxy_metadata:\n  B: 'true'\nholdApplicationUntilProxyStarts: "
	    "true\n");
	put(f->pod.annotations, "status.sidecar.istio.io/port", "15031");
	assert_non_null(make(f));
	assert_int_equal(settings(f)->concurrency, 2);
	assert_int_equal(settings(f)->drain_ms, 10000);
	assert_int_equal(settings(f)->agent_port, 15031);
	put(f->pod.annotations, "status.sidecar.istio.io/port", "00");
	assert_non_null(make(f));
	assert_int_equal(settings(f)->agent_port, 0);
	put(f->pod.annotations, "status.sidecar.istio.io/port", "x");
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, "statusPort: \"x\" refused"));
	put(f->pod.annotations, "status.sidecar.istio.io/port", "15031");
	assert_non_null(make(f));
	assert_string_equal(
	    json_string_value(json_object_get(config_field(f, "proxyMetadata"), "A")), "1");
	assert_string_equal(
	    json_string_value(json_object_get(config_field(f, "proxyMetadata"), "B")), "true");
	assert_null(config_field(f, "proxy_metadata"));
	/* proto JSON wants a boolean as one */
	assert_true(json_is_true(config_field(f, "holdApplicationUntilProxyStarts")));
	assert_string_equal(
	    json_string_value(config_field(f, "binaryPath")), "/usr/local/bin/envoy");
}

static void test_bad_proxy_config(void **state)
{
	struct fixture *f = *state;

	refused(f, "PROXY_CONFIG", "a: [", "line ");
	refused(f, "PROXY_CONFIG", "just text", "map");
	refused(f, "PROXY_CONFIG", "a: &x 1\nb: *x", "line");
	refused(f, "PROXY_CONFIG", "drainDuration: 1s\ndrain_duration: 2s", "twice");
	refused(f, "PROXY_CONFIG", "concurrency: [1]", "PROXY_CONFIG.concurrency: \"[1]\"");
	put(f->pod.annotations, "proxy.istio.io/config", "- a");
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, "annotation proxy.istio.io/config"));
}

static void config_is(struct fixture *f, const char *path, const char *json)
{
	json_t *wanted = json ? json_loads(json, JSON_DECODE_ANY, NULL) : NULL;
	const json_t *v = at((json_t *)meta(f, "PROXY_CONFIG"), path);

	if (wanted ? !v || !json_equal(v, wanted) : v != NULL)
		fail_msg("%s is not %s", path, json ? json : "left out");
	json_decref(wanted);
}

/* What comes of each type; a path that is left out has NULL. */
static void test_types(void **state)
{
	static const char *const cases[][3] = {
	    {"holdApplicationUntilProxyStarts: True", "holdApplicationUntilProxyStarts", "true"},
	    {"holdApplicationUntilProxyStarts: yes", "holdApplicationUntilProxyStarts", "true"},
	    {"holdApplicationUntilProxyStarts: on", "holdApplicationUntilProxyStarts", "true"},
	    {"statsCompression: off", "statsCompression", "false"},
	    {"tracing:\n  zipkin:\n  sampling: 1\n", "tracing", "{\"sampling\": 1}"},
	    {"proxyHeaders: {server: null}", "proxyHeaders", "{}"},
	    {"gatewayTopology: {numTrustedProxies: ~}", "gatewayTopology", "{}"},
	    {"tracing: {sampling: 0.1}", "tracing.sampling", "0.1"},
	    {"tracing: {sampling: '0.1'}", "tracing.sampling", "0.1"},
	    {"concurrency: '2'", "concurrency", "2"},
	    {"proxy_admin_port: 15999", "proxyAdminPort", "15999"},
	    {"statusPort: 0x4000", "statusPort", "16384"},
	    {"statNameLength: 5.0", "statNameLength", "5"},
	    {"fileFlushMinSizeKb: 64", "fileFlushMinSizeKb", "64"},
	    {"gateway_topology: {num_trusted_proxies: 3}", "gatewayTopology.numTrustedProxies",
		"3"},
	    {"proxyHeaders: {preserve_http1_header_case: true}",
		"proxyHeaders.preserveHttp1HeaderCase", "true"},
	    {"drainDuration: 1m2s", "drainDuration", "\"1m2s\""},
	    {"interceptionMode: 2", "interceptionMode", "\"NONE\""},
	    {"tracing: {customTags: {a: {literal: {value: 'true'}}}}",
		"tracing.customTags.a.literal.value", "\"true\""},
	    {"proxyMetadata: {A: '1', B: }", "proxyMetadata", "{\"A\": \"1\", \"B\": \"\"}"},
	    {"extraStatTags: [a, 'b']", "extraStatTags", "[\"a\", \"b\"]"},
	    {"serviceCluster: ''", "serviceCluster", "\"istio-proxy\""},
	    {"ofTomorrow: {a_b: yes, n: 0.5, t: '1'}", "ofTomorrow",
		"{\"a_b\": true, \"n\": 0.5, \"t\": \"1\"}"},
	    {"ofTomorrow: ~", "ofTomorrow", NULL},
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		accepted(f, "PROXY_CONFIG", cases[i][0]);
		config_is(f, cases[i][1], cases[i][2]);
		put(f->pod.annotations, "proxy.istio.io/config", cases[i][0]);
		assert_non_null(make(f));
		config_is(f, cases[i][1], cases[i][2]);
		json_object_del(f->pod.annotations, "proxy.istio.io/config");
	}
}

/* By the path of the field, whichever way it comes. */
static void test_what_is_of_another_type(void **state)
{
	static const char *const cases[][3] = {
	    {"holdApplicationUntilProxyStarts: 'true'", "holdApplicationUntilProxyStarts",
		"true, false"},
	    {"statsCompression: 1", "statsCompression", "true, false"},
	    {"concurrency: two", "concurrency", "a whole number"},
	    {"concurrency: 1.5", "concurrency", "a whole number"},
	    {"concurrency: 2147483648", "concurrency", "a whole number"},
	    {"statusPort: true", "statusPort", "a whole number"},
	    {"gatewayTopology: {numTrustedProxies: -1}", "gatewayTopology.numTrustedProxies",
		"0 to 4294967295"},
	    {"tracing: {sampling: much}", "tracing.sampling", "a number"},
	    {"tracing: {sampling: .nan}", "tracing.sampling", "a number"},
	    {"tracing: yes", "tracing", "a map of fields"},
	    {"drainDuration: 45", "drainDuration", "a duration"},
	    {"drainDuration: 45 s", "drainDuration", "a duration"},
	    {"serviceCluster: 1", "serviceCluster", "a text"},
	    {"tracing: {tlsSettings: {mode: simple}}", "tracing.tlsSettings.mode", "SIMPLE"},
	    {"tracing: {tlsSettings: {mode: 4}}", "tracing.tlsSettings.mode", "SIMPLE"},
	    {"proxyMetadata: {A: true}", "proxyMetadata.A", "a text"},
	    {"runtimeValues: {a.b: 1}", "runtimeValues.a.b", "a text"},
	    {"extraStatTags: a", "extraStatTags", "a list"},
	    {"extraStatTags: [a, 1]", "extraStatTags[1]", "a text"},
	    {"tracing: {customTags: {a: {header: {name: 5}}}}", "tracing.customTags.a.header.name",
		"a text"},
	    {"tracing: {max_path_tag_length: x}", "tracing.maxPathTagLength", "a whole number"},
	    {"gatewayTopology: {numTrustedProxies: 1, num_trusted_proxies: 1}",
		"gatewayTopology.numTrustedProxies", "twice"},
	};
	static const char *const keys[] = {"PROXY_CONFIG", "annotation proxy.istio.io/config"};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (unsigned k = 0; k < 2; k++) {
			json_t *map = k ? f->pod.annotations : f->pod.env;
			const char *key = k ? "proxy.istio.io/config" : keys[0];
			auto_free char *path = mem_printf("%s.%s", keys[k], cases[i][1]);

			put(map, key, cases[i][0]);
			if (make(f))
				fail_msg("%s was taken", cases[i][0]);
			if (!strstr(f->e.msg, path) || !strstr(f->e.msg, cases[i][2]))
				fail_msg("%s: %s", cases[i][0], f->e.msg);
			json_object_del(map, key);
		}
}

/* One field of two names in proto JSON: both would make istiod refuse the stream. */
static void test_tracing_name_replaces_service_cluster(void **state)
{
	struct fixture *f = *state;

	accepted(f, "PROXY_CONFIG", "tracingServiceName: CANONICAL_NAME_ONLY");
	assert_null(config_field(f, "serviceCluster"));
	assert_string_equal(
	    json_string_value(json_object_get(node_json(f->node), "cluster")), "istio-proxy.demo");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(labels),
	    TEST(proxy_config_precedence),
	    TEST(bad_proxy_config),
	    TEST(types),
	    TEST(what_is_of_another_type),
	    TEST(tracing_name_replaces_service_cluster),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
