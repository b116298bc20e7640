/* override_test.c - what a pod's owner adds to the bootstrap, and what stays ours.
 *
 * LINK: tests/unit/mesh/node_rig.c
 */
#include "common/mem.h"
#include "mesh/override.h"
#include "node_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KEY "ISTIO_BOOTSTRAP_OVERRIDE"

static json_t *overridden(struct fixture *f, const char *text)
{
	return rendered_with(f, KEY, text);
}

static void test_lists_are_appended(void **state)
{
	struct fixture *f = *state;
	json_t *b = overridden(f,
	    "{\"static_resources\": {\"clusters\": [{\"name\": \"mine\"}], \"listeners\": "
	    "[{\"name\": \"mine\", \"address\": {\"socket_address\": {\"port_value\": 9999}}}]},"
	    " \"stats_sinks\": [{\"name\": \"sink\"}]}");

	assert_int_equal(json_array_size(at(b, "static_resources.clusters")), 5);
	assert_non_null(cluster(b, "mine"));
	assert_non_null(cluster(b, "xds-grpc"));
	assert_non_null(listener(b, "mine"));
	assert_non_null(listener(b, "0.0.0.0_15020"));
	text_at(b, "stats_sinks.0.name", "sink");
	json_decref(b);
}

/* Both spellings of proto JSON; what is no message takes the place of what was there. */
static void test_messages_are_merged(void **state)
{
	struct fixture *f = *state;
	json_t *b;

	put(f->pod.env, "PROXY_CONFIG", "tracing: {zipkin: {address: 'z:1'}}");
	b = overridden(f,
	    "{\"statsConfig\": {\"useAllDefaultTags\": true, \"statsTags\": [{\"tagName\": "
	    "\"x\"}]}, \"stats_flush_interval\": \"9s\", \"watchdog\": null, "
	    "\"tracing\": {\"http\": {\"typedConfig\": {\"@type\": \"T\", \"a\": 1}}}}");
	assert_true(json_is_true(at(b, "stats_config.use_all_default_tags")));
	assert_int_equal(json_array_size(at(b, "stats_config.stats_tags")), 17);
	text_at(b, "stats_config.stats_tags.16.tagName", "x"); /* new: Envoy reads it itself */
	text_at(b, "stats_flush_interval", "9s");
	assert_null(at(b, "watchdog"));
	text_at(b, "tracing.http.name", "envoy.tracers.zipkin");
	assert_int_equal(json_object_size(at(b, "tracing.http.typed_config")), 2);
	json_decref(b);
}

/* Of a oneof the last counts; both would be a document that Envoy refuses. */
static void test_one_of(void **state)
{
	struct fixture *f = *state;
	json_t *b = overridden(f, "{\"stats_config\": {\"stats_matcher\": {\"rejectAll\": true}}}");

	assert_true(json_is_true(at(b, "stats_config.stats_matcher.reject_all")));
	assert_int_equal(json_object_size(at(b, "stats_config.stats_matcher")), 1);
	json_decref(b);
	b = overridden(f,
	    "{\"stats_config\": {\"stats_matcher\": {\"inclusion_list\": {\"patterns\": "
	    "[{\"prefix\": \"p\"}]}}}}");
	assert_int_equal(
	    json_array_size(at(b, "stats_config.stats_matcher.inclusion_list.patterns")), 14);
	json_decref(b);
}

static void test_host_ip(void **state)
{
	static const char text[] = "{\"static_resources\": {\"clusters\": [{\"name\": "
				   "\"$(HOST_IP)\", \"x\": \"$(HOST_IP):1\"}]}}";
	struct fixture *f = *state;
	json_t *b;

	put(f->pod.env, "HOST_IP", "10.0.0.1");
	b = overridden(f, text);
	text_at(cluster(b, "10.0.0.1"), "x", "10.0.0.1:1");
	json_decref(b);
	put(f->pod.env, "HOST_IP", "fd00::1");
	b = overridden(f, text);
	text_at(cluster(b, "[fd00::1]"), "x", "[fd00::1]:1");
	json_decref(b);
	json_object_del(f->pod.env, "HOST_IP");
	b = overridden(f, text);
	assert_non_null(cluster(b, "$(HOST_IP)"));
	json_decref(b);
}

#define CLUSTER(name) "{\"static_resources\": {\"clusters\": [{\"name\": \"" name "\"}]}}"
#define LISTENER(fields) "{\"static_resources\": {\"listeners\": [{" fields "}]}}"
#define PORT(n) "{\"socketAddress\": {\"portValue\": " n "}}"

static void test_what_is_reserved(void **state)
{
	static const struct {
		const char *text, *allowed;
	} bad[] = {
	    {"/etc/istio/custom-bootstrap/custom_bootstrap.json", "a JSON object"},
	    {"{} x", "a JSON object"},
	    {"{\"a\": 1, \"a\": 2}", "a JSON object"},
	    {"{\"node\": {\"id\": \"x\"}}", "\"node\" refused"},
	    {"{\"admin\": {}}", "\"admin\" refused"},
	    {"{\"dynamic_resources\": {}}", "\"dynamic_resources\" refused"},
	    {"{\"dynamicResources\": {}}", "\"dynamic_resources\" refused"},
	    {"{\"static_resources\": []}", "\"static_resources\" refused"},
	    {"{\"static_resources\": {\"clusters\": {}}}", "a list"},
	    {"{\"staticResources\": {\"listeners\": \"\"}}", "a list"},
	    {"{\"static_resources\": {\"clusters\": [1]}}", "objects"},
	    {CLUSTER("xds-grpc"), "\"xds-grpc\" refused"},
	    {CLUSTER("sds-grpc"), "\"sds-grpc\" refused"},
	    {CLUSTER("agentd_probe_http"), "\"agentd_probe_http\" refused"},
	    {LISTENER("\"name\": \"::_15021\""), "\"::_15021\" refused"},
	    {LISTENER("\"address\": " PORT("15020")), "on other ports"},
	    {LISTENER("\"address\": " PORT("\"15020\"")), "on other ports"},
	    {LISTENER("\"address\": " PORT("1.502e4")), "on other ports"},
	    {LISTENER("\"additionalAddresses\": [{\"address\": " PORT("15000") "}]"),
		"on other ports"},
	    {"{\"static_resources\": {\"clusters\": [{\"x\": [{\"pipe\": {\"path\": "
	     "\"./etc/istio/proxy/XDS\"}}]}]}}",
		"other pipes"},
	    {"{\"stats_sinks\": [{\"pipe\": {\"path\": "
	     "\"/var/run/secrets/workload-spiffe-uds/socket\"}}]}",
		"other pipes"},
	};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		refused(f, KEY, bad[i].text, bad[i].allowed);
	put(f->pod.env, "ENVOY_SECURE_METRICS_PORT", "16000");
	refused(f, KEY, LISTENER("\"address\": " PORT("16000")), "on other ports");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(lists_are_appended),
	    TEST(messages_are_merged),
	    TEST(one_of),
	    TEST(host_ip),
	    TEST(what_is_reserved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
