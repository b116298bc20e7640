/* yaml_tree_test.c - what scalars mean, what is refused, and that only what changes is written
 * anew.
 * LINK: tests/unit/json_rig.c
 */
#include "base/yaml_tree.h"
#include "common/err.h"
#include "common/mem.h"
#include "tests/unit/json_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct err e;

static void scalars_mean_what_kubernetes_reads(void **state)
{
	static const char *const rows[][2] = {{"yes", "true"}, {"Off", "false"}, {"n", "false"},
	    {"~", "null"}, {"", "null"}, {"0777", "511"}, {"0o17", "15"}, {"0x1F", "31"},
	    {"0b101", "5"}, {"1_000", "1000"}, {"-3", "-3"}, {"+3", "3"}, {"08", "8.0"},
	    {"1.5", "1.5"}, {"1e3", "1000.0"}, {"99999999999999999999", "1e20"},
	    {"1.29.1", "\"1.29.1\""}, {"'yes'", "\"yes\""}, {"\"0777\"", "\"0777\""},
	    {"truex", "\"truex\""}, {"2000m", "\"2000m\""}, {"0x", "\"0x\""}, {"1:20", "\"1:20\""},
	    {".inf", "\".inf\""}, {"2026-01-02", "\"2026-01-02\""}, {"0x_", "\"0x_\""},
	    {"e3", "\"e3\""}};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		auto_free char *text = mem_printf("v: %s\n", rows[i][0]), *got = NULL;
		struct yaml_tree *t;

		t = yaml_tree_parse(text, strlen(text), &e);
		assert_non_null(t);
		got = json_dumps(json_object_get(yaml_tree_value(t), "v"), JSON_ENCODE_ANY);
		assert_string_equal(got, rows[i][1]);
		yaml_tree_free(&t);
	}
}

static void refused(const char *text, size_t len, const char *why)
{
	assert_null(yaml_tree_parse(text, len, &e));
	if (!strstr(e.msg, why))
		fail_msg("%s: %s", text, e.msg);
}

static void what_cannot_be_kept_is_refused(void **state)
{
	static const char *const rows[][2] = {{"a: &x 1\nb: *x\n", "line 1: anchors and aliases"},
	    {"a: 1\nb: *x\n", "line 2: anchors"}, {"a: !!str 1\n", "line 1: tags"},
	    {"a: 1\n<<: {b: 2}\n", "line 2: merge keys"}, {"a: 1\na: 2\n", "line 2: duplicate key"},
	    {"? [a]\n: 1\n", "line 1: a key must be a scalar"}, {"a: 1\n---\nb: 2\n", "a second"},
	    {"a: [\n", "line 2: did not find"}, {"a: \"\\0\"\n", "line 1: control character"},
	    {"a: \"\\ud800\"\n", "line 1: "}, {"a: \xff\n", ""}};
	auto_free char *deep = mem_zalloc(201);

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		refused(rows[i][0], strlen(rows[i][0]), rows[i][1]);
	memset(deep, '[', 100);
	memset(deep + 100, ']', 100);
	refused(deep, 200, "nested too deeply");
}

/* `value` is JSON with ' for ". */
static char *written(const char *text, const char *value)
{
	struct yaml_tree *t = yaml_tree_parse(text, strlen(text), &e);
	json_t *v = rig_json(value);
	char *out = NULL;
	size_t n;

	assert_non_null(t);
	if (yaml_tree_write(t, v, &out, &n, &e))
		out = NULL;
	json_decref(v);
	yaml_tree_free(&t);
	return out;
}

static void becomes(const char *text, const char *value, const char *wanted)
{
	auto_free char *out = written(text, value);

	if (!out)
		fail_msg("%s", e.msg);
	assert_string_equal(out, wanted);
}

static void only_what_changes_is_written_anew(void **state)
{
	(void)state;
	becomes("b: 'yes'\na: 0777\nc: {x: yes, y: \"1\"}\nt: |\n  one\n  two\n",
	    "{'b':'yes','a':511,'c':{'x':true,'y':'1'},'t':'one\\ntwo\\n','m':'true'}",
	    "b: 'yes'\na: 0777\nc: {x: yes, y: \"1\"}\nt: |\n  one\n  two\nm: \"true\"\n");
	becomes("a: 1\nb: 2\n", "{'b':2}", "b: 2\n");
	becomes("a: 1\r\nb: 2\r\n", "{'a':1,'b':3}", "a: 1\r\nb: 3\r\n");
	becomes("l:\n- name: a\n  v: 010\n- name: b\n",
	    "{'l':[{'name':'c'},{'name':'b','w':1},{'name':'a','v':8}]}",
	    "l:\n- name: c\n- name: b\n  w: 1\n- name: a\n  v: 010\n");
	becomes("l: [1, 1]\n", "{'l':[1,1,1]}", "l: [1, 1, 1]\n");
	becomes("a: {}\n", "{'a':{'x':{},'z':[]}}", "a:\n  x: {}\n  z: []\n");
	becomes("a: {b: 1}\n", "{'a':null}", "a: null\n");
	becomes("a: \xc3\xa9\n", "{'a':'\xc3\xa9','b':'\xe2\x82\xac'}",
	    "a: \xc3\xa9\nb: \xe2\x82\xac\n");
	becomes("'1': a\n", "{'1':'a','2':'b'}", "'1': a\n\"2\": b\n");
}

static void only_a_map_can_be_written(void **state)
{
	struct yaml_tree *t = yaml_tree_parse("- a\n", 4, &e);
	json_t *v = json_pack("{s:i}", "a", 1);
	char *out;
	size_t n;

	(void)state;
	assert_int_equal(yaml_tree_write(t, v, &out, &n, &e), -1);
	yaml_tree_free(&t);
	assert_null(written("a: 1\n", "{}"));
	json_decref(v);
}

static void a_look_at_one_key_reads_no_more(void **state)
{
	static const char *const rows[][2] = {{"kind: Pod\na: &x 1\nb: *x\n", "Pod"},
	    {"a: {kind: no}\nl: [kind, no]\nkind: 'Pod'\n", "Pod"},
	    {"*x : kind\nkind: Pod\n", "Pod"}, {"a: kind\nb: no\n", NULL}, {"- kind: Pod\n", NULL},
	    {"kind: [a]\n", NULL}, {"", NULL}, {"kind: Pod\nkind: No\n", "Pod"}};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct err why = {0};
		auto_free char *got = yaml_tree_peek(rows[i][0], strlen(rows[i][0]), "kind", &why);

		assert_int_equal(why.code, 0);
		if (rows[i][1])
			assert_string_equal(got, rows[i][1]);
		else
			assert_null(got);
	}
	assert_null(yaml_tree_peek("a: [", 4, "kind", &e));
	assert_int_equal(e.code, ERR_INVALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(scalars_mean_what_kubernetes_reads),
	    cmocka_unit_test(what_cannot_be_kept_is_refused),
	    cmocka_unit_test(only_what_changes_is_written_anew),
	    cmocka_unit_test(only_a_map_can_be_written),
	    cmocka_unit_test(a_look_at_one_key_reads_no_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
