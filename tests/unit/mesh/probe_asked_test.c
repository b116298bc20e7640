/* probe_asked_test.c - a machine's readinessProbe: what comes of it, and what is refused.
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

static const struct probe_asked *probe(struct fixture *f, const char *text)
{
	auto_free char *config = mem_printf("readinessProbe: %s", text);

	f->pod.machine = true;
	accepted(f, "PROXY_CONFIG", config);
	assert_true(settings(f)->probe.given);
	assert_false(lists(f, "unsupported", "PROXY_CONFIG.readinessProbe"));
	return &settings(f)->probe;
}

static void prober_is(const struct fixture *f, const char *expected)
{
	auto_free char *text =
	    json_dumps(json_array_get(settings(f)->probers, 0), JSON_COMPACT | JSON_SORT_KEYS);

	assert_int_equal(json_array_size(settings(f)->probers), 1);
	assert_string_equal(text, expected);
}

/* bare-metal-identity.md 5 */
static void test_defaults(void **state)
{
	struct fixture *f = *state;
	const struct probe_asked *p = probe(f, "{httpGet: {port: 8080}}");

	assert_int_equal(p->delay_s, 0);
	assert_int_equal(p->timeout_s, 1);
	assert_int_equal(p->period_s, 10);
	assert_int_equal(p->successes, 1);
	assert_int_equal(p->failures, 1);
	assert_string_equal(p->headers, "Host: localhost\r\nUser-Agent: istio-probe/1.0\r\n");
	prober_is(f, "{\"kind\":\"http\",\"path\":\"/\",\"port\":8080,"
		     "\"route\":\"/app-health/machine/readyz\",\"timeout_s\":1}");
	p = probe(f, "{periodSeconds: 0, timeoutSeconds: 0, failureThreshold: 0, "
		     "successThreshold: 0, tcpSocket: {port: 80}}");
	assert_int_equal(p->period_s, 10);
	assert_int_equal(p->timeout_s, 1);
	assert_int_equal(p->failures, 1);
}

static void test_every_way(void **state)
{
	struct fixture *f = *state;
	const struct probe_asked *p = probe(f,
	    "{initialDelaySeconds: 5, timeoutSeconds: 3, periodSeconds: 7, "
	    "successThreshold: 2, failureThreshold: 4, httpGet: {path: /x, port: 8443, scheme: "
	    "https, httpHeaders: [{name: host, value: a.b}, {name: X-A, value: 'b c'}]}}");

	assert_int_equal(p->delay_s, 5);
	assert_int_equal(p->timeout_s, 3);
	assert_int_equal(p->period_s, 7);
	assert_int_equal(p->successes, 2);
	assert_int_equal(p->failures, 4);
	assert_string_equal(p->headers, "User-Agent: istio-probe/1.0\r\nhost: a.b\r\nX-A: b c\r\n");
	prober_is(f, "{\"kind\":\"https\",\"path\":\"/x\",\"port\":8443,"
		     "\"route\":\"/app-health/machine/readyz\",\"timeout_s\":3}");
	probe(f, "{tcpSocket: {port: 3306}}");
	prober_is(f, "{\"kind\":\"tcp\",\"port\":3306,"
		     "\"route\":\"/app-health/machine/readyz\",\"timeout_s\":1}");
	probe(f, "{grpc: {port: 9000, service: s}}");
	prober_is(f, "{\"kind\":\"grpc\",\"port\":9000,"
		     "\"route\":\"/app-health/machine/readyz\",\"service\":\"s\",\"timeout_s\":1}");
}

static void test_what_is_refused(void **state)
{
	static const char *const bad[][2] = {
	    {"x", "a map of fields"},
	    {"{}", "exactly one of"},
	    {"{httpGet: {port: 80}, grpc: {port: 81}}", "exactly one of"},
	    {"{exec: {command: [/bin/true]}}", "httpGet"},
	    {"{exec: {command: [x]}, httpGet: {port: 80}}", "httpGet"},
	    {"{httpGet: x}", "a map"},
	    {"{httpGet: {}}", "1 to 65535"},
	    {"{httpGet: {port: 0}}", "1 to 65535"},
	    {"{httpGet: {port: 65536}}", "1 to 65535"},
	    {"{httpGet: {port: -1}}", "a whole number"},
	    {"{httpGet: {port: http}}", "a whole number"},
	    {"{httpGet: {port: 15000}}", "but 15000"},
	    {"{tcpSocket: {port: 15001}}", "but 15000"},
	    {"{grpc: {port: 15053}}", "but 15000"},
	    {"{httpGet: {port: 80, host: metadata.internal}}", "the machine's own address"},
	    {"{tcpSocket: {port: 80, host: 169.254.169.254}}", "the machine's own address"},
	    {"{httpGet: {port: 80, path: 'a b'}}", "printable"},
	    {"{httpGet: {port: 80, scheme: ftp}}", "HTTP, HTTPS"},
	    {"{httpGet: {port: 80, httpHeaders: x}}", "a list"},
	    {"{httpGet: {port: 80, httpHeaders: [x]}}", "httpHeaders[0]"},
	    {"{httpGet: {port: 80, httpHeaders: [{name: 'a:b', value: c}]}}", "printable ASCII"},
	    {"{httpGet: {port: 80, httpHeaders: [{name: a, value: \"b\\u00e4\"}]}}",
		"printable ASCII"},
	    {"{httpGet: {port: 80, httpHeaders: [{name: Content-Length, value: '9'}]}}", "frames"},
	    {"{httpGet: {port: 80, httpHeaders: [{name: X-Envoy-Original-Dst-Host, value: a}]}}",
		"frames"},
	    {"{grpc: {port: 80, service: 'a b'}}", "printable"},
	    {"{grpc: {port: 80, host: a}}", "the machine's own address"},
	    {"{grpc: {port: 80, path: a}}", "no such field"},
	    {"{httpGet: {port: 80}, other: 1}", "no such field"},
	    {"{httpGet: {port: 80}, periodSeconds: 3601}", "0 to 3600"},
	    {"{httpGet: {port: 80}, timeoutSeconds: 61}", "0 to 60"},
	    {"{httpGet: {port: 80}, timeoutSeconds: 1.5}", "a whole number"},
	    {"{httpGet: {port: 80}, failureThreshold: -1}", "0 to 100"},
	    {"{httpGet: {port: 80}, successThreshold: [1]}", "a whole number"},
	};
	struct fixture *f = *state;

	f->pod.machine = true;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		auto_free char *config = mem_printf("readinessProbe: %s", bad[i][0]);

		if (with(f, "PROXY_CONFIG", config))
			fail_msg("%s was taken", bad[i][0]);
		if (!strstr(f->e.msg, "readinessProbe") || !strstr(f->e.msg, bad[i][1]))
			fail_msg("%s: %s", bad[i][0], f->e.msg);
	}
	refused(f, "PROXY_CONFIG", "{statusPort: 0, readinessProbe: {httpGet: {port: 80}}}",
	    "statusPort");
	refused(f, "PROXY_CONFIG", "{statusPort: 8080, readinessProbe: {httpGet: {port: 8080}}}",
	    "Envoy's own");
}

static void test_too_many_headers(void **state)
{
	struct fixture *f = *state;
	auto_free char *value = mem_printf("%0256d", 0), *list = mem_strdup("");

	f->pod.machine = true;
	for (int i = 0; i < 17; i++) {
		auto_free char *before = list;

		list = mem_printf("%s{name: a, value: '%s'},", before, i < 9 ? value : "");
		if (i == 8 || i == 16) {
			auto_free char *config = mem_printf(
			    "readinessProbe: {httpGet: {port: 80, httpHeaders: [%s]}}", list);

			assert_null(with(f, "PROXY_CONFIG", config));
			assert_non_null(strstr(f->e.msg, i == 8 ? "2048 bytes" : "at most 16"));
		}
	}
}

/* Its app's own probers stay. */
static void test_beside_others(void **state)
{
	struct fixture *f = *state;

	put(f->pod.env, "ISTIO_KUBE_APP_PROBERS",
	    "{\"/app-health/web/readyz\": {\"tcpSocket\": {\"port\": 80}}}");
	probe(f, "{httpGet: {port: 80}}");
	assert_int_equal(json_array_size(settings(f)->probers), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(defaults),
	    TEST(every_way),
	    TEST(what_is_refused),
	    TEST(too_many_headers),
	    TEST(beside_others),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
