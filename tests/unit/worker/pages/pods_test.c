/* pods_test.c - pages and metrics of every pod, over a table of services of this test's: which
 * service is shown where, and what is said of a pod that has none.
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/unit/worker/metrics_rig.c
 */
#include "base/metrics.h"
#include "common/mem.h"
#include "rpc/rpc.h"
#include "tests/fake/loop.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/kubelet/kubelet.h"
#include "worker/link/heartbeat.h"
#include "worker/pages/pages_internal.h"
#include "worker/pod/redirect.h"
#include "worker/pod/rows.h"
#include "worker/pods/manifest_dir.h"
#include "worker/pods/pod.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define UID_A "01000000-0000-0000-0000-000000000000"
#define UID_B "02000000-0000-0000-0000-000000000000"

/* --- in place of the neighbours --- */

int64_t heartbeat_silent_s(const struct heartbeat *h)
{
	(void)h;
	return 0;
}

uint64_t heartbeat_memory(const struct heartbeat *h)
{
	(void)h;
	return 0;
}

unsigned heartbeat_restarts(const struct heartbeat *h)
{
	(void)h;
	return 0;
}

uint32_t heartbeat_dropped(const struct heartbeat *h)
{
	(void)h;
	return 3;
}

json_t *kubelet_dump_volume(const struct kubelet *k, const struct uuid *pod)
{
	(void)k;
	return pod->bytes[0] == 1 ? json_string("mounted") : NULL;
}

json_t *kubelet_dump_waiting(const struct kubelet *k)
{
	(void)k;
	return json_array();
}

void kubelet_measure(const struct kubelet *k)
{
	(void)k;
}

json_t *manifest_dir_refused(const struct manifest_dir *d)
{
	(void)d;
	return json_array();
}

char *pod_redirects_above(const struct pod_redirects *a)
{
	(void)a;
	return NULL;
}

const struct node_settings *node_settings(const struct node *n)
{
	static const struct node_settings settings;

	(void)n;
	return &settings;
}

void node_free(struct node **n)
{
	*n = NULL;
}

/* --- the table --- */

static enum served is_served;

static void dump(void *s, json_t *o)
{
	(void)s;
	json_object_set_new(o, "service", json_string("dumped"));
}

static void show(void *s, json_t *o, const char *name)
{
	(void)s;
	json_object_set_new(o, "shown", json_string(name ? name : "in full"));
}

static void measure(void *s, const char *labels)
{
	(void)s;
	metric_set(metric_gauge("own", "Of a pod."), labels, 5);
}

static unsigned count(void *s)
{
	(void)s;
	return 3;
}

static enum served served(void *s, struct err *why)
{
	(void)s;
	if (is_served == SERVED_YES)
		return SERVED_YES;
	err_set(why, ERR_UNAVAILABLE, "istiod: no");
	return is_served;
}

static const struct pod_service dumped = {.name = "dumped",
    .size = sizeof(struct pod_context *),
    .served = served,
    .dump = dump,
    .measure = measure,
    .gauge = "sum",
    .gauge_help = "Of all.",
    .count = count};
static const struct pod_service redirect = {
    .name = "redirect", .size = sizeof(struct pod_context *), .page = "redirect", .show = show};
static const struct pod_service xds = {
    .name = "xds", .size = sizeof(struct pod_context *), .page = "xds", .show = show};

/* In place of rows.c's. */
const struct pod_service *const pod_rows[] = {&dumped, &redirect, &xds, NULL};

/* --- the registry --- */

static void on_pod(void *ctx, struct pod *p)
{
	(void)ctx;
	(void)p;
}

static struct plane plane;
static struct agent_shared shared = {.planes = &plane};
static struct pages_of of = {.shared = &shared};

static struct pod *served_one, *refused_one;

static int setup(void **state)
{
	static struct pod_source source = {.name = "test"};
	static const struct pod_observer observer = {on_pod, on_pod, on_pod, on_pod, NULL};
	struct pod_spec served = {.uid = {{1}}, .ns = "demo", .name = "a", .sa = "web"};
	struct pod_spec refused = {.uid = {{2}}, .ns = "demo", .name = "b", .sa = "web"};
	struct err e;

	(void)state;
	of.pods = pod_registry_new(&observer, NULL);
	pod_source_add(of.pods, &source);
	assert_int_equal(pod_add(of.pods, &source, &served, &e), 0);
	assert_int_equal(pod_add(of.pods, &source, &refused, &e), 0);
	served_one = pod_first(of.pods);
	refused_one = served_one->next;
	served_one->services = pod_services_start(&shared, pod_rows, served_one, NULL, NULL);
	err_set(&e, ERR_INVALID, "refused");
	pod_set_ready(refused_one, &e);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	pod_services_stop(&served_one->services);
	pod_services_stop(&refused_one->services);
	pod_registry_free(&of.pods);
	return 0;
}

static void is(json_t *o, const char *expected)
{
	auto_free char *text = json_dumps(o, JSON_COMPACT | JSON_SORT_KEYS);

	assert_string_equal(text, expected);
	json_decref(o);
}

/* --- the tests --- */

static void a_page_has_what_its_services_show(void **state)
{
	(void)state;
	is(pages_services(&of, "redirect", false, NULL),
	    "{\"redirect\":["
	    "{\"pod\":\"demo/a\",\"shown\":\"in full\",\"uid\":\"" UID_A "\"},"
	    "{\"pod\":\"demo/b\",\"uid\":\"" UID_B "\",\"why_not\":\"refused\"}]}");
	is(pages_services(&of, "redirect", false, "web.example"),
	    "{\"redirect\":["
	    "{\"pod\":\"demo/a\",\"shown\":\"web.example\",\"uid\":\"" UID_A "\"},"
	    "{\"pod\":\"demo/b\",\"uid\":\"" UID_B "\",\"why_not\":\"refused\"}]}");
	is(pages_services(&of, "xds", true, NULL),
	    "{\"xds\":[{\"pod\":\"demo/a\",\"shown\":\"in full\"},"
	    "{\"pod\":\"demo/b\"}]}");
}

static void pods_have_what_their_services_dump(void **state)
{
	(void)state;
	is(pages_pods(&of),
	    "{\"pods\":["
	    "{\"name\":\"a\",\"namespace\":\"demo\",\"problems\":{},\"ready\":"
	    "false,\"served\":\"yes\",\"service\":\"dumped\","
	    "\"service_account\":\"web\",\"source\":\"test\",\"uid\":\"" UID_A "\","
	    "\"volume\":\"mounted\",\"why_not\":\"starting\",\"why_unserved\":\"\"},"
	    "{\"name\":\"b\",\"namespace\":\"demo\",\"ready\":false,"
	    "\"served\":\"no\",\"service_account\":\"web\",\"source\":\"test\","
	    "\"uid\":\"" UID_B "\",\"why_not\":\"refused\",\"why_unserved\":\"refused\"}],"
	    "\"refused_manifests\":[],\"waiting_volumes\":[]}");
}

/* Before, during and after; a pod that was refused at its start has no services that could say it.
 */
static void who_is_not_served_is_named(void **state)
{
#define REFUSED_AT_START                                                                           \
	"{\"name\":\"b\",\"namespace\":\"demo\",\"served\":\"no\",\"why\":\"refused\"}]"
	(void)state;
	is(pages_unserved(&of), "[" REFUSED_AT_START);
	is_served = SERVED_UNASKED;
	is(pages_unserved(&of), "[" REFUSED_AT_START);
	is_served = SERVED_HELD;
	is(pages_unserved(&of), "[{\"name\":\"a\",\"namespace\":\"demo\",\"served\":\"held\","
				"\"why\":\"istiod: no\"}," REFUSED_AT_START);
	is_served = SERVED_YES;
	is(pages_unserved(&of), "[" REFUSED_AT_START);
}

static void metrics_have_each_pods_own_and_sums(void **state)
{
	(void)state;
	shared.loop = fake_loop();
	shared.rpc = rpc_new(shared.loop);
	refused_one->services = pod_services_start(&shared, pod_rows, refused_one, NULL, NULL);
	pages_measure(&of);
	assert_metric("\nagentd_pods_unserved{served=\"held\"} 0\n");
	assert_metric("\nagentd_pods_unserved{served=\"no\"} 0\n");
	is_served = SERVED_HELD;
	pages_measure(&of);
	assert_metric("\nagentd_pods_unserved{served=\"held\"} 2\n");
	is_served = SERVED_NO;
	pages_measure(&of);
	is_served = SERVED_YES;
	assert_metric("\nagentd_pods_unserved{served=\"held\"} 0\n");
	assert_metric("\nagentd_pods_unserved{served=\"no\"} 2\n");
	assert_metric("\nagentd_pods{state=\"ready\"} 0\n");
	assert_metric("\nagentd_pods{state=\"not_ready\"} 2\n");
	assert_metric("\nown{pod=\"a\",namespace=\"demo\"} 5\n");
	assert_metric("\nown{pod=\"b\",namespace=\"demo\"} 5\n");
	assert_metric("\n# HELP sum Of all.\n");
	assert_metric("\nsum 6\n");
	metrics_clear();
	rpc_free(&shared.rpc);
	fake_loop_end(&shared.loop);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(a_page_has_what_its_services_show),
	    TEST(pods_have_what_their_services_dump),
	    TEST(who_is_not_served_is_named),
	    TEST(metrics_have_each_pods_own_and_sums),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
