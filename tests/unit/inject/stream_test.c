/* stream_test.c - files of manifests: which documents are done, and that all others stay as they
 * are.
 *
 * LINK: tests/unit/inject/work_rig.c
 */
#include "common/mem.h"
#include "inject/stream.h"
#include "work_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char *stream(enum inject_action action, const char *text)
{
	size_t n;

	work.action = action;
	return inject_stream(&work, text, strlen(text), &n, &e);
}

static void stays(const char *text)
{
	auto_free char *out = stream(INJECT_ADD, text);

	if (!out)
		fail_msg("%s", e.msg);
	assert_string_equal(out, text);
}

#define POD "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: a\n"
#define OTHER "apiVersion: v1\nkind: ConfigMap\ndata: {a: &x 1, b: *x, c: 0777 } # so\n"

static void what_has_no_pods_stays_byte_for_byte(void **state)
{
	(void)state;
	stays("");
	stays("\n\n# only\n");
	stays(OTHER);
	stays("%YAML 1.1\n---\n" OTHER "...\n");
	stays("\xef\xbb\xbf---\n" OTHER "---\n---\n# x\n---\r\n" OTHER);
	stays("--- {a: b}\n--- # c\na: b");
	stays("{\"kind\": \"Pod\",   \"apiVersion\": \"v2\"}");
	stays("[1, 2]\n");
	stays("kind: Deployment\napiVersion: other.example/v1\n");
	stays("apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret, data: {a: "
	      "0777}}\n");
	assert_int_equal(json_array_size(work.said), 0);
}

static void a_pod_that_is_not_wanted_stays(void **state)
{
	(void)state;
	stays(POD "  hostNetwork: yes # so\n");
	assert_int_equal(json_array_size(work.said), 1);
	assert_non_null(json_object_get(json_array_get(work.said, 0), "skipped"));
}

/* What is around it stays, and what is not added to. */
static void a_pod_is_done_and_taken_back(void **state)
{
	static const char text[] = "# one\n" OTHER "--- # two\n# three\n" POD
				   "    command: ['0777', \"yes\", 0x1F]\n---\n" OTHER;
	auto_free char *out = stream(INJECT_ADD, text), *again, *back;
	const char *start = "# one\n" OTHER "--- # two\n# three\napiVersion: v1\nkind: Pod\n"
			    "metadata: {name: p, ",
		   *end = "---\n" OTHER;

	(void)state;
	assert_true(out && strlen(out) > strlen(end));
	assert_memory_equal(out, start, strlen(start));
	assert_string_equal(out + strlen(out) - strlen(end), end);
	assert_non_null(strstr(out, "    command: ['0777', \"yes\", 0x1F]\n"));
	again = stream(INJECT_ADD, out);
	assert_string_equal(again, out);
	back = stream(INJECT_TAKE_BACK, out);
	assert_string_equal(back, text);
}

static void what_stands_beside_a_separator_gets_its_line(void **state)
{
	auto_free char *out = stream(
	    INJECT_ADD, "--- {apiVersion: v1, kind: Pod, spec: {containers: [{name: a}]}}\n");

	(void)state;
	assert_non_null(out);
	assert_memory_equal(out, "---\n{apiVersion: v1", 19);
}

static void json_stays_json(void **state)
{
	auto_free char *out = stream(INJECT_ADD,
	    "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"\\ud83d\\ude00\"},"
	    "\"spec\":{\"containers\":[{\"name\":\"a\"}]}}");
	json_t *v;

	(void)state;
	assert_non_null(out);
	v = json_loads(out, JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(v);
	assert_int_equal(strcspn(out, "\n"), strlen(out) - 1);
	json_decref(v);
}

static void refused(const char *text, const char *why)
{
	if (stream(INJECT_ADD, text))
		fail_msg("%s was taken", text);
	if (!strstr(e.msg, why))
		fail_msg("%s: %s", text, e.msg);
}

static void an_error_says_where(void **state)
{
	(void)state;
	refused(OTHER "---\na: [\n", "line 6: did not find");
	refused(OTHER "---\n" POD "  x: &a 1\n", "line 11: anchors and aliases");
	refused(POD "  x: !!str 1\n", "tags are not supported");
	refused("kind: Pod\napiVersion: v1\n", "document at line 1: Pod \"\": spec: must be a map");
	refused("kind: Job\napiVersion: batch/v1\n", "spec.template: must be a map");
	refused("{\"kind\":\"Pod\",\"kind\":\"Pod\",\"apiVersion\":\"v1\"}", "duplicate key");
}

static char *repeated(const char *head, const char *what, size_t n, const char *tail)
{
	size_t one = strlen(what), at = strlen(head);
	char *text = mem_zalloc(at + n * one + strlen(tail) + 1);

	memcpy(text, head, at);
	for (; n; n--, at += one)
		memcpy(text + at, what, one);
	memcpy(text + at, tail, strlen(tail) + 1);
	return text;
}

/* libyaml's work for a token grows with the depth: none of these is read to its end. */
static void what_is_too_deep_is_refused_at_once(void **state)
{
	static const char *const heads[] = {"", "a: ", "{\"apiVersion\": \"v1\", \"x\": ",
	    "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"spec\": ", POD "  x: "};

	(void)state;
	for (unsigned i = 0; i < sizeof(heads) / sizeof(*heads); i++) {
		auto_free char *lists = repeated(heads[i], "[", 1000000, "");
		auto_free char *maps = repeated(heads[i], "{\"a\":", 1000000, "");

		refused(lists, "nested too deeply");
		refused(maps, "nested too deeply");
	}
}

static void what_is_no_text_is_refused_with_its_line(void **state)
{
	size_t n;

	(void)state;
	refused(POD "  x: \"\xff\"\n", "line 7: invalid leading UTF-8 octet");
	refused(POD "  x: \x01\n", "line 7: control characters are not allowed");
	refused(POD "  x: \"\\ud83d\"\n", "line 7: found invalid Unicode character");
	refused(POD "  x: \"\\0\"\n", "line 7: control character");
	refused("{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"x\":\"\\ud83d\"}", "invalid Unicode");
	refused("{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"x\":\"\\u0000\"}", "control character");
	refused("{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"spec\":{", "did not find expected node");
	refused(POD "  x: [1", "line 8: did not find");
	refused(POD "  x: 1\n  x: 2\n", "line 8: duplicate key");
	assert_null(inject_stream(&work, POD "\0", sizeof(POD), &n, &e));
	assert_non_null(strstr(e.msg, "line 7: control characters"));
}

#define NUMBERS                                                                                    \
	"  a: 9223372036854775807\n  b: -9223372036854775808\n  c: 18446744073709551615\n"         \
	"  d: 0x7fffffffffffffff\n  e: 1.0\n  f: 1e3\n  g: 0.1\n"

static void numbers_stay_as_they_are_written(void **state)
{
	auto_free char *out = stream(INJECT_ADD, POD NUMBERS), *json;

	(void)state;
	assert_non_null(out);
	assert_non_null(strstr(out, NUMBERS));
	json = stream(INJECT_ADD, "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"spec\": {\"a\": "
				  "9223372036854775807, \"containers\": [{\"name\": \"a\"}]}}");
	assert_non_null(strstr(json, "\"a\":9223372036854775807"));
	free(json);
	json = stream(INJECT_ADD, "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"spec\": {\"a\": "
				  "18446744073709551615, \"containers\": [{\"name\": \"a\"}]}}");
	assert_non_null(strstr(json, "\"a\": 18446744073709551615"));
	free(json);
	json = stream(INJECT_ADD,
	    "{\"apiVersion\": \"v1\", \"kind\": \"Pod\", \"spec\": {\"containers\": "
	    "[{\"name\": \"a\", \"resources\": {\"requests\": {\"cpu\": 0.1}}}]}}");
	assert_non_null(strstr(json, "\"cpu\":0.1}"));
}

static void numbers_of_json_come_back_as_they_were(void **state)
{
	static const char pod[] =
	    "{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\"},"
	    "\"spec\":{\"containers\":[{\"name\":\"a\"}],\"x\":1.1}}\n";
	auto_free char *out = stream(INJECT_ADD, pod);
	auto_free char *back = out ? stream(INJECT_TAKE_BACK, out) : NULL;

	(void)state;
	assert_string_equal(back, pod);
}

static void a_million_documents(void **state)
{
	size_t n = getenv("AGENTD_SOAK") ? 1000000 : 20000;
	auto_free char *text = repeated("", "a: b\n---\n", n, POD "---\n" OTHER);
	auto_free char *out = stream(INJECT_ADD, text), *back;

	(void)state;
	assert_non_null(out);
	assert_memory_equal(out, text, 9 * n);
	assert_int_equal(json_array_size(work.said), 1);
	back = stream(INJECT_TAKE_BACK, out);
	assert_string_equal(back, text);
}

static void a_check_changes_nothing_and_goes_on(void **state)
{
	static const char text[] = POD "  runtimeClassName: kata\n---\n" POD;
	auto_free char *out = stream(INJECT_CHECK, text);
	json_t *first = json_array_get(work.said, 0);

	(void)state;
	assert_string_equal(out, text);
	assert_int_equal(json_array_size(work.said), 2);
	assert_non_null(
	    strstr(json_string_value(json_object_get(first, "refused")), "kata is a sandbox"));
	assert_null(json_object_get(json_array_get(work.said, 1), "refused"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(what_has_no_pods_stays_byte_for_byte),
	    TEST(a_pod_that_is_not_wanted_stays),
	    TEST(a_pod_is_done_and_taken_back),
	    TEST(what_stands_beside_a_separator_gets_its_line),
	    TEST(json_stays_json),
	    TEST(numbers_of_json_come_back_as_they_were),
	    TEST(an_error_says_where),
	    TEST(what_is_too_deep_is_refused_at_once),
	    TEST(what_is_no_text_is_refused_with_its_line),
	    TEST(numbers_stay_as_they_are_written),
	    TEST(a_million_documents),
	    TEST(a_check_changes_nothing_and_goes_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
