/* proxy_config_test.c - labels, annotations and ProxyConfig: what wins over what, in which types.
 *
 * LINK: tests/unit/mesh/node_rig.c
 */
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
	refused(f, "PROXY_CONFIG", "concurrency: [1]", "not one value");
	put(f->pod.annotations, "proxy.istio.io/config", "- a");
	assert_null(make(f));
	assert_non_null(strstr(f->e.msg, "annotation proxy.istio.io/config"));
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
	    TEST(tracing_name_replaces_service_cluster),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
