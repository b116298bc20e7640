/* manifest_dir_test.c - files come, change and go; a bad one harms nobody.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c
 */
#include "common/err.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "worker/pods/manifest_dir.h"
#include "worker/pods/pod.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define UID1 "6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b11"
#define UID2 "6f1c2a54-0f0e-4a6b-9a8e-0d8f6f8d2b22"
#define FILE1 UID1 ".yaml"
#define FILE2 UID2 ".yaml"
#define POD1 "uid: " UID1 "\nname: web-0\nnamespace: demo\nservice_account: web\n"
#define POD2 "uid: " UID2 "\nname: cli-0\nnamespace: demo\nservice_account: cli\n"

enum { GRACE_MS = 2000 };

struct world {
	struct loop *loop;
	struct link *link;
	struct pod_registry *pods;
	struct manifest_dir *dir;
	int added, changed, removed, settled;
};

static void on_added(void *ctx, struct pod *p)
{
	((struct world *)ctx)->added++;
	pod_set_ready(p, NULL);
}

static void on_changed(void *ctx, struct pod *p)
{
	(void)p;
	((struct world *)ctx)->changed++;
}

static void on_removed(void *ctx, struct pod *p)
{
	(void)p;
	((struct world *)ctx)->removed++;
}

static void on_settled(void *ctx)
{
	((struct world *)ctx)->settled++;
}

static int setup(void **state)
{
	static const struct pod_observer observer = {
	    on_added, on_changed, NULL, on_removed, on_settled};
	static struct world w;

	w = (struct world){.loop = fake_loop(), .link = fake_link()};
	w.pods = pod_registry_new(&observer, &w);
	w.dir = manifest_dir_new(w.loop, w.link, w.pods);
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	manifest_dir_free(&w->dir);
	manifest_dir_free(&w->dir);
	pod_registry_free(&w->pods);
	link_free(&w->link); /* fails if a follow was left */
	assert_int_equal(fake_loop_live(w->loop), 0);
	fake_loop_end(&w->loop);
	return 0;
}

static struct pod *find(const struct world *w, const char *text)
{
	struct uuid uid;

	assert_true(uuid_parse(&uid, text));
	return pod_find(w->pods, &uid);
}

/* Exactly these files are refused, in this order. */
static void refused(const struct world *w, const char *first, const char *second)
{
	json_t *all = manifest_dir_refused(w->dir);
	const char *files[] = {first, second};
	size_t n = first ? second ? 2 : 1 : 0;

	assert_int_equal(json_array_size(all), n);
	for (size_t i = 0; i < n; i++)
		assert_string_equal(
		    json_string_value(json_object_get(json_array_get(all, i), "file")), files[i]);
	json_decref(all);
}

static void why(const struct world *w, const char *expected)
{
	json_t *all = manifest_dir_refused(w->dir);
	const char *text = json_string_value(json_object_get(json_array_get(all, 0), "why"));

	assert_non_null(text);
	if (!strstr(text, expected))
		fail_msg("\"%s\" does not say \"%s\"", text, expected);
	json_decref(all);
}

static void test_add(void **state)
{
	struct world *w = *state;
	struct pod *p;

	fake_link_manifest(w->link, FILE1,
	    POD1 "env:\n  ISTIO_META_X: '1'\n  PROXY_CONFIG: |\n    concurrency: 2\n"
		 "labels: {app: web}\nannotations: {a: b}\nproxy_uid: 2000\nproxy_gid: 2001\n"
		 "redirect: {mode: none}\n");
	assert_int_equal(w->settled, 0);
	fake_link_synced(w->link);
	assert_int_equal(w->settled, 1);
	p = find(w, UID1);
	assert_non_null(p);
	assert_string_equal(p->spec.label, "demo/web-0");
	assert_string_equal(p->spec.sa, "web");
	assert_string_equal(p->source->name, "manifest");
	assert_int_equal(p->spec.proxy_uid, 2000);
	assert_int_equal(p->spec.proxy_gid, 2001);
	assert_string_equal(
	    json_string_value(json_object_get(p->spec.env, "PROXY_CONFIG")), "concurrency: 2\n");
	assert_string_equal(json_string_value(json_object_get(p->spec.labels, "app")), "web");
	assert_string_equal(json_string_value(json_object_get(p->spec.annotations, "a")), "b");
	assert_true(p->ready);
	refused(w, NULL, NULL);
}

static void test_change_and_remove(void **state)
{
	struct world *w = *state;

	fake_link_manifest(w->link, FILE1, POD1);
	fake_link_manifest(w->link, FILE2, POD2);
	assert_int_equal(find(w, UID1)->spec.proxy_uid, 1337);
	fake_link_manifest(w->link, FILE1, POD1); /* touched only */
	assert_int_equal(w->changed, 0);
	fake_link_manifest(w->link, FILE1, POD1 "labels: {v: '2'}\n");
	assert_int_equal(w->changed, 1);
	fake_link_manifest(w->link, FILE1, NULL);
	fake_loop_advance(w->loop, GRACE_MS - 1);
	assert_non_null(find(w, UID1));
	fake_loop_advance(w->loop, 1);
	assert_null(find(w, UID1));
	assert_non_null(find(w, UID2));
	assert_int_equal(w->removed, 1);
	fake_link_manifest(w->link, FILE1, NULL);
	assert_int_equal(fake_loop_live(w->loop), 0); /* there is nothing to remove */
	fake_loop_advance(w->loop, GRACE_MS);
	assert_int_equal(w->removed, 1);
	fake_link_manifest(w->link, FILE1, POD1);
	assert_int_equal(w->added, 3);
}

/* As vim writes: the old file is renamed away, then the new one appears. */
/* Until its manifest changes. */
static void test_a_pod_that_was_there_runs(void **state)
{
	struct world *w = *state;

	fake_link_running(w->link, FILE1, POD1);
	fake_link_manifest(w->link, FILE2, POD2);
	assert_true(find(w, UID1)->spec.running);
	assert_false(find(w, UID2)->spec.running);
	fake_link_synced(w->link);
	fake_link_manifest(w->link, FILE1, POD1);
	assert_int_equal(w->changed, 0);
	assert_true(find(w, UID1)->spec.running);
	fake_link_manifest(w->link, FILE1, POD1 "env: {A: b}\n");
	assert_int_equal(w->changed, 1);
	assert_false(find(w, UID1)->spec.running);
}

static void test_renamed_away_and_written_keeps_the_pod(void **state)
{
	struct world *w = *state;

	fake_link_manifest(w->link, FILE1, POD1);
	for (int i = 1; i <= 2; i++) {
		fake_link_manifest(w->link, FILE1, NULL);
		fake_link_manifest(w->link, FILE1, NULL); /* told again */
		fake_loop_advance(w->loop, GRACE_MS - 1);
		fake_link_manifest(w->link, FILE1, i == 1 ? POD1 : POD1 "labels: {v: '2'}\n");
		fake_loop_advance(w->loop, 10 * GRACE_MS);
		assert_non_null(find(w, UID1));
		assert_int_equal(w->changed, i - 1);
	}
	assert_int_equal(w->added, 1);
	assert_int_equal(w->removed, 0);
}

static void test_gone_and_back_as_a_bad_one_keeps_the_pod(void **state)
{
	struct world *w = *state;
	struct err e = {EACCES, "not root's"};

	fake_link_manifest(w->link, FILE1, POD1);
	fake_link_manifest(w->link, FILE1, NULL);
	fake_link_manifest(w->link, FILE1, "uid: [");
	fake_loop_advance(w->loop, 10 * GRACE_MS);
	refused(w, FILE1, NULL);
	fake_link_manifest(w->link, FILE1, NULL);
	refused(w, NULL, NULL);
	fake_link_push(w->link, LINK_FOLLOW_MANIFESTS, NULL, 0,
	    &(struct link_content){.name = FILE1, .e = &e});
	fake_loop_advance(w->loop, 10 * GRACE_MS);
	refused(w, FILE1, NULL);
	assert_non_null(find(w, UID1));
	assert_int_equal(w->removed, 0);
}

/* The teardown sees that no timer is left. */
static void test_the_end_stops_removals(void **state)
{
	struct world *w = *state;

	fake_link_manifest(w->link, FILE1, POD1);
	fake_link_manifest(w->link, FILE2, POD2);
	fake_link_manifest(w->link, FILE1, NULL);
	fake_link_manifest(w->link, FILE2, NULL);
	assert_int_equal(fake_loop_live(w->loop), 2);
	manifest_dir_free(&w->dir);
	fake_loop_advance(w->loop, GRACE_MS);
	assert_non_null(find(w, UID1));
	assert_int_equal(w->removed, 0);
}

/* The issue: refused with file, line and reason; the others are not touched. */
static void test_bad_manifest_harms_nobody(void **state)
{
	struct world *w = *state;

	fake_link_manifest(w->link, FILE1, POD1);
	fake_link_manifest(w->link, FILE2, "uid: " UID2 "\nname: cli-0\nnamespace: De mo\n");
	assert_non_null(find(w, UID1));
	assert_null(find(w, UID2));
	refused(w, FILE2, NULL);
	why(w, "pods.d/" FILE2 ": line 3: namespace: must be a DNS label");
	fake_link_manifest(w->link, FILE2, POD2); /* repaired */
	assert_non_null(find(w, UID2));
	refused(w, NULL, NULL);
	assert_int_equal(w->added, 2);
	assert_int_equal(w->changed + w->removed, 0);
}

/* A refused change leaves the pod as it was. */
static void test_bad_change_keeps_the_pod(void **state)
{
	static const char *const bad[] = {"", "uid: [", "uid: " UID1 "\n",
	    "uid: " UID2 "\nname: web-0\nnamespace: demo\nservice_account: web\n",
	    "uid: " UID1 "\nname: web-0\nnamespace: demo\nservice_account: admin\n",
	    "uid: " UID1 "\nname: web-0\nnamespace: prod\nservice_account: web\n",
	    "uid: " UID1 "\nname: web-1\nnamespace: demo\nservice_account: web\n",
	    POD1 "no_such_key: 1\n"};
	struct world *w = *state;
	struct err e = {EACCES, "not root's"};

	fake_link_manifest(w->link, FILE1, POD1 "labels: {v: '1'}\n");
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct pod *p;

		fake_link_manifest(w->link, FILE1, bad[i]);
		refused(w, FILE1, NULL);
		p = find(w, UID1);
		assert_non_null(p);
		assert_string_equal(p->spec.sa, "web");
		assert_string_equal(json_string_value(json_object_get(p->spec.labels, "v")), "1");
	}
	fake_link_push(w->link, LINK_FOLLOW_MANIFESTS, NULL, 0,
	    &(struct link_content){.name = FILE1, .e = &e});
	why(w, "pods.d/" FILE1 ": not root's");
	assert_non_null(find(w, UID1));
	assert_int_equal(w->changed + w->removed, 0);
	assert_true(find(w, UID1)->ready);
	fake_link_manifest(w->link, FILE1, NULL); /* going is no change that can be refused */
	fake_loop_advance(w->loop, GRACE_MS);
	assert_null(find(w, UID1));
	refused(w, NULL, NULL);
}

static void test_refused_are_listed_by_file(void **state)
{
	struct world *w = *state;

	fake_link_manifest(w->link, "z.yaml", POD1);
	fake_link_manifest(w->link, "a\xff.yaml", POD1);
	fake_link_manifest(w->link, "z.yaml", POD1);
	refused(w, "a?.yaml", "z.yaml");
	why(w, "line 1: uid: must be the file's name");
	fake_link_manifest(w->link, "z.yaml", NULL);
	refused(w, "a?.yaml", NULL);
}

static void parse_fails(const char *text, const char *expected)
{
	struct pod_spec spec;
	struct err e = {0};

	if (!manifest_parse(&spec, FILE1, text, strlen(text), &e))
		fail_msg("taken: %s", text);
	if (!strstr(e.msg, expected) || !strstr(e.msg, "pods.d/" FILE1 ": "))
		fail_msg("\"%s\" does not say \"%s\"", e.msg, expected);
	assert_null(spec.env);
	assert_null(spec.labels);
	assert_null(spec.annotations);
}

static void test_parser_refuses(void **state)
{
	(void)state;
	parse_fails("", "uid: is missing");
	parse_fails("- a\n", "not a map");
	parse_fails("text", "not a map");
	parse_fails(POD1 "---\n" POD1, "line ");
	parse_fails(POD1 "name: web-0\n", "line 5");
	parse_fails(POD1 "env: &x {}\nlabels: *x\n", "line 5");
	parse_fails("name: web-0\nnamespace: demo\nservice_account: web\n", "uid: is missing");
	parse_fails("uid: " UID1 "\nname: web-0\nnamespace: demo\n", "service_account: is missing");
	parse_fails("uid: " UID2 "\n", "line 1: uid: must be the file's name");
	parse_fails("uid: 6F1C2A54-0f0e-4a6b-9a8e-0d8f6f8d2b11\n", "line 1: uid");
	parse_fails("uid: [a]\n", "line 1: uid");
	parse_fails("uid: " UID1 "\nname: ../etc\n", "line 2: name");
	parse_fails("uid: " UID1 "\nname: {a: b}\n", "line 2: name");
	parse_fails(POD1 "env: text\n", "line 5: env: must be a map");
	parse_fails(POD1 "env: {A: {b: c}}\n", "line 5: env: values must be text");
	parse_fails(POD1 "labels: {A: [c]}\n", "line 5: labels: values must be text");
	parse_fails(POD1 "annotations: [a]\n", "line 5: annotations: must be a map");
	parse_fails(POD1 "redirect: none\n", "line 5: redirect: ");
	parse_fails(POD1 "redirect: {mode: [ebpf]}\n", "redirect");
	parse_fails(POD1 "proxy_uid: 0\n", "line 5: proxy_uid: must be 1 to");
	parse_fails(POD1 "proxy_gid: 0\n", "line 5: proxy_gid: must be 1 to");
	parse_fails(POD1 "proxy_uid: 4294967295\n", "proxy_uid: must be 1 to");
	parse_fails(POD1 "proxy_uid: 4294968633\n", "proxy_uid: must be 1 to"); /* 1337 + 2^32 */
	parse_fails(POD1 "proxy_uid: -1\n", "must be a number");
	parse_fails(POD1 "proxy_uid: 0x539\n", "must be a number");
	parse_fails(POD1 "proxy_uid: 99999999999999999999\n", "must be a number");
	parse_fails(POD1 "token: abc\n", "line 5: token: no such key");
	parse_fails(POD1 "\"a\\tb\": 1\n", "line 5: control character");
	parse_fails(POD1 "\"a\\u00e4\": 1\n", "line 5: a??: no such key");
	/* what was read before the bad key is given back */
	parse_fails(POD1 "env: {A: b}\nlabels: {A: b}\nannotations: {A: b}\nbad: 1\n", "bad");
}

/* bare-metal-identity.md 4; five parts, and what is no name, are refused. */
static void test_locality(void **state)
{
	static const char *const good[] = {"eu", "eu/a", "eu-1/a.b/c_d"};
	static const char *const bad[] = {
	    "a/b/c/d", "a/b/c/d/e", "/", "a/", "/a", "a//b", "a b", "''", "[a]", "a~b"};
	struct pod_spec spec;
	struct err e;

	(void)state;
	for (unsigned i = 0; i < sizeof(good) / sizeof(*good); i++) {
		char text[200];

		(void)snprintf(text, sizeof(text), POD1 "locality: %s\n", good[i]);
		assert_int_equal(manifest_parse(&spec, FILE1, text, strlen(text), &e), 0);
		assert_string_equal(spec.locality, good[i]);
		assert_true(spec.machine);
		manifest_clear(&spec);
	}
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		char text[200];

		(void)snprintf(text, sizeof(text), POD1 "locality: %s\n", bad[i]);
		parse_fails(text, "locality: must be REGION");
	}
	char text[600] = POD1 "locality: ";
	memset(text + strlen(text), 'a', 300);
	parse_fails(text, "at most 253");
}

static void test_parser_bounds(void **state)
{
	char text[8192] = POD1 "env:\n";
	struct pod_spec spec;
	struct err e;

	(void)state;
	for (int i = 0; i < 256; i++)
		(void)snprintf(text + strlen(text), 32, "  K%d: v\n", i);
	assert_int_equal(manifest_parse(&spec, FILE1, text, strlen(text), &e), 0);
	assert_int_equal(json_object_size(spec.env), 256);
	manifest_clear(&spec);
	assert_null(spec.env);
	strcat(text, "  K256: v\n");
	parse_fails(text, "more than 256 entries");
	assert_int_equal(
	    manifest_parse(&spec, FILE1, POD1 "proxy_uid: 4294967294\n", sizeof(POD1) + 21, &e), 0);
	assert_int_equal(spec.proxy_uid, 4294967294u);
	manifest_clear(&spec);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(add),
	    TEST(change_and_remove),
	    TEST(a_pod_that_was_there_runs),
	    TEST(renamed_away_and_written_keeps_the_pod),
	    TEST(gone_and_back_as_a_bad_one_keeps_the_pod),
	    TEST(the_end_stops_removals),
	    TEST(bad_manifest_harms_nobody),
	    TEST(bad_change_keeps_the_pod),
	    TEST(refused_are_listed_by_file),
	    cmocka_unit_test(test_parser_refuses),
	    cmocka_unit_test(test_locality),
	    cmocka_unit_test(test_parser_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
