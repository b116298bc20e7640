/* bootstrap_test.c - when Envoy's configuration is written, and when it must not be.
 *
 * LINK: tests/unit/worker/pod/row_rig.c
 */
#include "common/mem.h"
#include "row_rig.h"
#include "worker/envoy/bootstrap.h"
#include "worker/istiod/istiod.h"
#include "worker/link/link.h"
#include "worker/pod/redirect.h"
#include "worker/pod/rows.h"
#include "worker/pods/pod.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct {
	bool holds, same_addresses;
	int written;
} world;

/* --- in place of the neighbours --- */

bool pod_redirect_holds(const struct pod_redirect *r)
{
	(void)r;
	return world.holds;
}

char *bootstrap_render(const struct node *n, size_t *len)
{
	(void)n;
	*len = 2;
	return mem_strdup("{}");
}

void link_write(
    struct link *p, const struct uuid *pod, enum link_file file, const void *data, size_t size)
{
	(void)p;
	assert_int_equal(pod->bytes[0], 1);
	assert_int_equal(file, LINK_FILE_BOOTSTRAP);
	assert_memory_equal(data, "{}", size);
	world.written++;
}

bool node_set_addresses(struct node *n, const char *const *ips, size_t count)
{
	(void)n;
	assert_string_equal(ips[count - 1], "10.0.0.1");
	return !world.same_addresses;
}

const char *node_id(const struct node *n)
{
	(void)n;
	return "sidecar~10.0.0.1";
}

const json_t *node_leftovers(const struct node *n)
{
	static json_t *o;

	(void)n;
	json_decref(o);
	return o = json_pack("{s:[s]}", "ignored", "X");
}

const struct istiod_options *istiod_options(const struct istiod *i)
{
	static const struct istiod_options options = {.name = "istiod"};

	(void)i;
	return &options;
}

/* --- the tests --- */

static const struct agent_shared shared;
static const struct plane plane;
static struct pod pod = {.uid = {{1}}};
static struct pod_context context = {.shared = &shared, .plane = &plane, .pod = &pod};
static const struct pod_service *const row = &pod_bootstrap_service;
static const char *const ips[] = {"10.0.0.1"};
static void *b;

static int setup(void **state)
{
	(void)state;
	memset(&world, 0, sizeof(world));
	b = row_start(row, &context);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &b);
	return 0;
}

static void written_with_the_directory(void **state)
{
	(void)state;
	row->redirected(b); /* too early: there is nowhere to write */
	row->addresses(b, ips, 1);
	assert_int_equal(world.written, 0);
	row->directory(b);
	assert_int_equal(world.written, 1);
}

static void a_held_pod_waits_for_its_rules(void **state)
{
	(void)state;
	world.holds = true;
	row->directory(b);
	row->addresses(b, ips, 1);
	row->redirected(b); /* refused: it stays held */
	assert_int_equal(world.written, 0);
	world.holds = false;
	row->redirected(b);
	assert_int_equal(world.written, 1);
}

static void written_again_for_other_addresses(void **state)
{
	(void)state;
	row->directory(b);
	row->addresses(b, ips, 1);
	assert_int_equal(world.written, 2);
	world.same_addresses = true;
	row->addresses(b, ips, 1);
	assert_int_equal(world.written, 2);
}

static void dumped(void **state)
{
	json_t *o = json_object();
	auto_free char *text = NULL;

	(void)state;
	row->dump(b, o);
	text = json_dumps(o, JSON_COMPACT);
	assert_string_equal(text, "{\"node_id\":\"sidecar~10.0.0.1\",\"control_plane\":\"istiod\","
				  "\"ignored\":[\"X\"]}");
	json_decref(o);
	json_decref((json_t *)node_leftovers(NULL));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(written_with_the_directory),
	    TEST(a_held_pod_waits_for_its_rules),
	    TEST(written_again_for_other_addresses),
	    TEST(dumped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
