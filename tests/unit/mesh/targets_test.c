/* targets_test.c - what the injector declares of an app's probes and metrics, and what is refused
 * of it.
 *
 * LINK: tests/unit/mesh/node_rig.c
 */
#include "common/mem.h"
#include "mesh/targets.h"
#include "node_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PROBERS "ISTIO_KUBE_APP_PROBERS"
#define SCRAPES "ISTIO_PROMETHEUS_ANNOTATIONS"
#define READY "/app-health/web/readyz"

static void same(const json_t *got, const char *expected)
{
	json_t *wanted = json_loads(expected, 0, NULL);
	auto_free char *text = json_dumps(got, JSON_COMPACT | JSON_SORT_KEYS);

	assert_non_null(wanted);
	if (!json_equal(got, wanted))
		fail_msg("%s is not %s", text, expected);
	json_decref(wanted);
}

static void test_every_kind(void **state)
{
	struct fixture *f = *state;

	accepted(f, PROBERS,
	    "{\"" READY
	    "\": {\"httpGet\": {\"path\": \"/a?b=c\", \"port\": 80, \"host\": \"169.254.169.254\","
	    " \"httpHeaders\": [{\"name\": \"X\", \"value\": \"Y\"}]}, \"timeoutSeconds\": 2},"
	    "\"/app-health/web/livez\": {\"httpGet\": {\"path\": \"b\", \"port\": 8443, "
	    "\"scheme\": \"HTTPS\"}},"
	    "\"/app-health/web-2/startupz\": {\"grpc\": {\"port\": 9, \"service\": null}, "
	    "\"timeoutSeconds\": 60},"
	    "\"/app-health/web-3/startupz\": {\"grpc\": {\"port\": 9, \"service\": \"s\"}},"
	    "\"/app-lifecycle/web/prestopz\": {\"tcpSocket\": {\"port\": 65535}}}");
	same(settings(f)->probers,
	    "[{\"route\": \"" READY
	    "\", \"kind\": \"http\", \"port\": 80, \"path\": \"/a?b=c\", \"timeout_s\": 2},"
	    "{\"route\": \"/app-health/web/livez\", \"kind\": \"https\", \"port\": 8443, \"path\": "
	    "\"/b\", "
	    "\"timeout_s\": 0},"
	    "{\"route\": \"/app-health/web-2/startupz\", \"kind\": \"grpc\", \"port\": 9, "
	    "\"service\": \"\","
	    " \"timeout_s\": 60},"
	    "{\"route\": \"/app-health/web-3/startupz\", \"kind\": \"grpc\", \"port\": 9, "
	    "\"service\": \"s\","
	    " \"timeout_s\": 0},"
	    "{\"route\": \"/app-lifecycle/web/prestopz\", \"kind\": \"tcp\", \"port\": 65535, "
	    "\"timeout_s\": 0}]");
	accepted(f, PROBERS, "{}");
	same(settings(f)->probers, "[]");
}

static void test_keys_of_probers(void **state)
{
	static const char *const bad[] = {"", "/", "/app-health/web/ready", "/app-health//readyz",
	    "/app-health/a/b/readyz", "/app-health/../readyz/", "/app-health/web/prestopz/",
	    "//app-health/web/readyz", "/app-health/web/readyz?x", "/app-health/%2e/readyz",
	    "/app-health/a b/readyz", "/app-other/web/readyz", "/quitquitquit"};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		auto_free char *text =
		    mem_printf("{\"%s\": {\"tcpSocket\": {\"port\": 80}}}", bad[i]);

		refused(f, PROBERS, text, "/app-health/NAME/{livez,readyz,startupz}");
	}
}

static void test_what_a_prober_may_not_say(void **state)
{
	static const struct {
		const char *prober, *allowed;
	} bad[] = {
	    {"1", "exactly one of"},
	    {"{}", "exactly one of"},
	    {"{\"exec\": {}}", "exactly one of"},
	    {"{\"httpGet\": {\"port\": 80}, \"grpc\": {\"port\": 80}}", "exactly one of"},
	    {"{\"httpGet\": {}}", "1 to 65535"},
	    {"{\"httpGet\": {\"port\": \"http\"}}", "1 to 65535"},
	    {"{\"httpGet\": {\"port\": 0}}", "1 to 65535"},
	    {"{\"tcpSocket\": {\"port\": 65536}}", "1 to 65535"},
	    {"{\"grpc\": {\"port\": -1}}", "1 to 65535"},
	    {"{\"httpGet\": {\"port\": 80, \"scheme\": \"FTP\"}}", "HTTP, HTTPS"},
	    {"{\"httpGet\": {\"port\": 80, \"path\": \"/a\\r\\nX: y\"}}", "printable"},
	    {"{\"httpGet\": {\"port\": 80, \"path\": \"/a b\"}}", "printable"},
	    {"{\"httpGet\": {\"port\": 80, \"path\": 7}}", "printable"},
	    {"{\"grpc\": {\"port\": 80, \"service\": \"a\\n\"}}", "printable"},
	    {"{\"httpGet\": {\"port\": 80}, \"timeoutSeconds\": 61}", "0 to 60"},
	    {"{\"httpGet\": {\"port\": 80}, \"timeoutSeconds\": 1.5}", "0 to 60"},
	};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		auto_free char *text = mem_printf("{\"" READY "\": %s}", bad[i].prober);

		refused(f, PROBERS, text, bad[i].allowed);
		assert_non_null(strstr(f->e.msg, READY)); /* which of them */
	}
	refused(f, PROBERS, "[]", "a JSON object");
}

/* Envoy's and agentd's ports are none of the app's, whichever numbers a pod gives them. */
static void test_reserved_ports(void **state)
{
	static const unsigned reserved[] = {
	    15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090};
	struct fixture *f = *state;

	for (unsigned i = 0; i < sizeof(reserved) / sizeof(*reserved); i++) {
		auto_free char *probe =
		    mem_printf("{\"" READY "\": {\"tcpSocket\": {\"port\": %u}}}", reserved[i]);
		auto_free char *scrape = mem_printf("{\"port\": \"%u\"}", reserved[i]);

		refused(f, PROBERS, probe, "1 to 65535 but");
		refused(f, SCRAPES, scrape, "1 to 65535 but");
	}
	put(f->pod.env, "PROXY_CONFIG", "statusPort: 16020");
	refused(f, PROBERS, "{\"" READY "\": {\"tcpSocket\": {\"port\": 16020}}}", "Envoy's own");
	refused(f, SCRAPES, "{\"port\": \"16020\"}", "Envoy's own");
}

static void test_too_many(void **state)
{
	struct fixture *f = *state;
	json_t *many = json_object(), *targets = json_object(), *list = json_array();
	auto_free char *text = NULL, *scrapes = NULL;

	for (unsigned i = 0; i <= TARGETS_PROBERS_MAX; i++) {
		auto_free char *route = mem_printf("/app-health/c%u/readyz", i);
		json_object_set_new(many, route, json_pack("{s:{s:i}}", "tcpSocket", "port", 80));
	}
	for (unsigned i = 0; i <= TARGETS_SCRAPES_MAX; i++)
		json_array_append_new(list, json_pack("{s:s}", "port", "9090"));
	json_object_set_new(targets, "targets", list);
	text = json_dumps(many, 0);
	scrapes = json_dumps(targets, 0);
	refused(f, PROBERS, text, "more than 64");
	refused(f, SCRAPES, scrapes, "more than 8");
	json_decref(many);
	json_decref(targets);
}

static void test_scrapes(void **state)
{
	struct fixture *f = *state;

	accepted(f, SCRAPES, "{\"scrape\": \"true\", \"path\": \"\", \"port\": \"9090\"}");
	same(settings(f)->scrapes, "[{\"port\": 9090, \"path\": \"/metrics\"}]");
	accepted(f, SCRAPES, "{}");
	same(settings(f)->scrapes, "[{\"port\": 80, \"path\": \"/metrics\"}]");
	accepted(f, SCRAPES, "{\"scrape\": \"false\", \"port\": \"no port\"}");
	same(settings(f)->scrapes, "[]");
	accepted(f, SCRAPES,
	    "{\"port\": \"1\", \"targets\": [{\"port\": \"9090\", \"path\": \"/a\"}, {\"port\": "
	    "\"9091\"}]}");
	same(settings(f)->scrapes,
	    "[{\"port\": 9090, \"path\": \"/a\"}, {\"port\": 9091, \"path\": \"/metrics\"}]");
	refused(f, SCRAPES, "{\"port\": 9090}", "1 to 65535");
	refused(f, SCRAPES, "{\"port\": \"9090a\"}", "1 to 65535");
	refused(f, SCRAPES, "{\"port\": \"100000\"}", "1 to 65535");
	refused(f, SCRAPES, "{\"path\": \"metrics\"}", "begins with /");
	refused(f, SCRAPES, "{\"path\": \"/a\\r\\nb\"}", "printable");
	refused(f, SCRAPES, "{\"path\": [\"/\"]}", "begins with /");
	accepted(f, "PROXY_CONFIG", "");
	assert_null(settings(f)->scrapes);
}

/* The app would listen there, or Envoy: never both. */
static void test_the_status_port_is_no_ports_of_the_app(void **state)
{
	struct fixture *f = *state;

	refused(f, "ISTIO_META_POD_PORTS", "[{\"containerPort\":8080},{\"containerPort\":15020}]",
	    "statusPort");
	accepted(f, "ISTIO_META_POD_PORTS", "[{\"containerPort\":15020,\"protocol\":\"UDP\"}]");
	accepted(f, "ISTIO_META_POD_PORTS", "[{\"containerPort\":8080,\"protocol\":\"TCP\"}]");
	accepted(f, "ISTIO_META_POD_PORTS", "no JSON");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(every_kind),
	    TEST(keys_of_probers),
	    TEST(what_a_prober_may_not_say),
	    TEST(reserved_ports),
	    TEST(too_many),
	    TEST(scrapes),
	    TEST(the_status_port_is_no_ports_of_the_app),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
