/* registration_test.c - what istiod says of a machine's registration, and what is shown of it.
 *
 * LINK: tests/unit/worker/pod/row_rig.c
 */
#include "common/err.h"
#include "row_rig.h"
#include "worker/ads/xds_proxy.h"
#include "worker/pod/rows.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct pod_context context;
static const struct pod_service *const row = &pod_registration_service;
static void *s;
static struct node_settings settings;
static json_t *metadata, *node;
static struct xds_listener istiod;
static bool connected, elsewhere;
static unsigned told;

/* --- in place of the neighbours --- */

void xds_proxy_listen(struct xds_proxy *x, const struct xds_listener *l)
{
	(void)x;
	istiod = *l;
}

bool xds_proxy_connected(const struct xds_proxy *x)
{
	(void)x;
	return connected;
}

const struct node_settings *node_settings(const struct node *n)
{
	(void)n;
	return &settings;
}

const json_t *node_json(const struct node *n)
{
	(void)n;
	return node;
}

bool node_is_elsewhere(const struct node *n)
{
	(void)n;
	return elsewhere;
}

void pod_tell_progress(struct pod_context *c)
{
	assert_ptr_equal(c, &context);
	told++;
}

/* --- the tests --- */

static int setup(void **state)
{
	(void)state;
	settings = (struct node_settings){.registers = true};
	metadata = json_pack(
	    "{s:s, s:s}", "AUTO_REGISTER_GROUP", "web", "INSTANCE_IPS", "10.0.0.9,fd00::9");
	node = json_pack("{s:o}", "metadata", metadata);
	istiod = (struct xds_listener){0};
	told = 0;
	connected = false;
	context = (struct pod_context){.ads = (struct xds_proxy *)&context};
	s = row_start(row, &context);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &s);
	json_decref(node);
	return 0;
}

static const char *problem(void)
{
	const struct err *why;

	return row->progress(s, &why) == POD_DEGRADED ? why->msg : "";
}

static void entry_is(const char *expected)
{
	json_t *o = json_object(), *r;

	row->dump(s, o);
	r = json_object_get(o, "registration");
	assert_string_equal(json_string_value(json_object_get(r, "entry")), expected);
	assert_int_equal(json_is_true(json_object_get(r, "elsewhere")), elsewhere);
	json_decref(o);
}

/* bare-metal-identity.md 4: its words, and what to do. */
static void test_refusals_are_told_in_istiods_words(void **state)
{
	static const char *const texts[][2] = {
	    {"istiod: FAILED_PRECONDITION: auto-registration WorkloadEntry of vm.demo failed: "
	     "cannot "
	     "find WorkloadGroup demo/web",
		": create the group in this namespace"},
	    {"istiod: UNKNOWN: proxy metadata indicates that it must correspond to an existing "
	     "WorkloadEntry, however WorkloadEntry demo/db is not found",
		"create the entry, or"},
	    {"istiod: UNKNOWN: registration of WorkloadEntry namespace mismatch: \"a\" vs \"b\"",
		"the group's namespace"},
	    {"istiod: UNKNOWN: registration of WorkloadEntry service account mismatch: \"a\" vs "
	     "\"b\"",
		"the group's template"},
	    {"istiod: UNKNOWN: registration of WorkloadEntry requires a verified identity",
		"agentctl certs"},
	    {"istiod: UNKNOWN: auto-registration WorkloadEntry of x failed: etcd", "log of istiod"},
	};

	(void)state;
	row->directory(s);
	for (unsigned i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		istiod.refused(istiod.ctx, texts[i][0]);
		assert_memory_equal(problem(), texts[i][0], strlen(texts[i][0]));
		assert_non_null(strstr(problem(), texts[i][1]));
		assert_int_equal(told, i + 1);
	}
	istiod.answered(istiod.ctx);
	assert_string_equal(problem(), "");
	assert_int_equal(told, 7);
	istiod.answered(istiod.ctx);
	assert_int_equal(told, 7);
}

static void test_other_refusals_are_not_its_business(void **state)
{
	(void)state;
	row->directory(s);
	istiod.refused(istiod.ctx, "istiod: UNAVAILABLE: connection refused");
	assert_string_equal(problem(), "");
	assert_int_equal(told, 0);
}

static void test_a_pod_that_does_not_register(void **state)
{
	json_t *o = json_object();

	(void)state;
	settings.registers = false;
	row->directory(s);
	assert_null(istiod.refused);
	row->dump(s, o);
	assert_int_equal(json_object_size(o), 0);
	json_decref(o);
}

/* As istiod makes the name: the last 253 bytes. */
static void test_the_name_of_the_entry(void **state)
{
	char group[253], expected[254];

	(void)state;
	entry_is("web-10.0.0.9");
	json_object_set_new(metadata, "NETWORK", json_string("net1"));
	entry_is("web-10.0.0.9-net1");
	json_object_set_new(metadata, "INSTANCE_IPS", json_string("fd00::9"));
	entry_is("web-fd00--9-net1");
	memset(group, 'g', 252);
	group[252] = '\0';
	json_object_set_new(metadata, "AUTO_REGISTER_GROUP", json_string(group));
	memset(expected, 'g', 253);
	strcpy(expected + 253 - strlen("-fd00--9-net1"), "-fd00--9-net1");
	entry_is(expected);
	json_object_del(metadata, "AUTO_REGISTER_GROUP");
	json_object_set_new(metadata, "WORKLOAD_ENTRY", json_string("db"));
	entry_is("db");
	elsewhere = true;
	entry_is("db");
	elsewhere = false;
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(refusals_are_told_in_istiods_words),
	    TEST(other_refusals_are_not_its_business),
	    TEST(a_pod_that_does_not_register),
	    TEST(the_name_of_the_entry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
