/* yaml_test.c - what a document becomes, and everything that is refused, with its line. */
#include "base/yaml.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/mem.h"

static struct yaml_doc *y;
static struct err e;

static int teardown(void **state)
{
	(void)state;
	yaml_doc_free(&y);
	return y ? -1 : 0;
}

static json_t *parse_bytes(const char *text, size_t len)
{
	/* Exactly `len` bytes on the heap: ASan sees a read beyond them. */
	char *copy = mem_dup(text, len);

	yaml_doc_free(&y);
	memset(&e, 0, sizeof(e));
	y = yaml_doc_parse(copy, len, &e);
	free(copy);
	return y ? yaml_doc_root(y) : NULL;
}

static json_t *parse(const char *text)
{
	json_t *root = parse_bytes(text, strlen(text));

	if (!root)
		fail_msg("refused: %s", e.msg);
	return root;
}

static void check_json(const char *text, const char *json)
{
	json_t *wanted = json_loads(json, JSON_DECODE_ANY, NULL);

	assert_non_null(wanted);
	if (!json_equal(parse(text), wanted))
		fail_msg("%s is not %s", text, json);
	json_decref(wanted);
}

static void check_refused_bytes(const char *text, size_t len, const char *why)
{
	if (parse_bytes(text, len))
		fail_msg("accepted: %s", text);
	assert_int_equal(e.code, ERR_INVALID);
	if (strncmp(e.msg, why, strlen(why)) != 0)
		fail_msg("\"%s\" instead of \"%s\"", e.msg, why);
}

static void check_refused(const char *text, const char *why)
{
	check_refused_bytes(text, strlen(text), why);
}

static void test_shapes(void **state)
{
	(void)state;
	check_json("a: 1\nb: [x, y]\nc: {d: e}\n",
	    "{\"a\":\"1\",\"b\":[\"x\",\"y\"],\"c\":{\"d\":\"e\"}}");
	check_json("- a\n- - b\n  - c\n- {}\n- []\n", "[\"a\",[\"b\",\"c\"],{},[]]");
	check_json("just text", "\"just text\"");
	check_json("a: |\n  x\n  y\nb: >-\n  x\n  y\n", "{\"a\":\"x\\ny\\n\",\"b\":\"x y\"}");
	check_json("\xef\xbb\xbf"
		   "a: \xc3\xa9\n",
	    "{\"a\":\"\xc3\xa9\"}");                             /* byte order mark */
	check_json("{\"a\": \"tab\\t\"}", "{\"a\":\"tab\\t\"}"); /* JSON is YAML */
}

/* ecosystem.md 1.2: octal must stay what it is; so must everything that YAML 1.1 would guess. */
static void test_scalars_stay_strings(void **state)
{
	static const char *const scalars[] = {"0777", "true", "no", "1e3", "~", "null", "0x1F",
	    "1.50", "2026-11-21", ".inf", "12:30:45", "1_000"};

	(void)state;
	for (size_t i = 0; i < sizeof(scalars) / sizeof(*scalars); i++) {
		char text[64];
		snprintf(text, sizeof(text), "a: %s\n", scalars[i]);
		json_t *a = json_object_get(parse(text), "a");
		assert_string_equal(json_string_value(a), scalars[i]);
	}
	check_json("a:\nb: ''\n", "{\"a\":\"\",\"b\":\"\"}");
	check_json("<<: {a: b}\n", "{\"<<\":{\"a\":\"b\"}}"); /* no merging */
}

static void typed_is(const char *text, const char *json)
{
	json_t *wanted = json_loads(json, JSON_DECODE_ANY, NULL);
	json_t *v = yaml_typed(text, strlen(text), &e);

	if (!v || !json_equal(v, wanted))
		fail_msg("%s is not %s", text, json);
	json_decref(v);
	json_decref(wanted);
}

/* As Go's YAML reads them; what is quoted is a text. */
static void test_typed(void **state)
{
	(void)state;
	typed_is(
	    "[True, yes, on, y, False, no, OFF]", "[true, true, true, true, false, false, false]");
	typed_is("{a: , b: ~, c: null, d: Null}", "{\"a\":null,\"b\":null,\"c\":null,\"d\":null}");
	typed_is("[1, 0777, 0x1F, 1_000, 0.1, 1e3, -5]", "[1, 511, 31, 1000, 0.1, 1000.0, -5]");
	typed_is("['true', \"1\", '']", "[\"true\", \"1\", \"\"]");
	typed_is("[12:30:45, 2026-11-21, .inf, tRUE]",
	    "[\"12:30:45\", \"2026-11-21\", \".inf\", \"tRUE\"]");
	typed_is("a: |\n  yes\n", "{\"a\":\"yes\\n\"}");
	typed_is("# nothing\n", "{}");
	typed_is("~", "null");
	assert_null(yaml_typed("a: &x 1", 7, &e));
	assert_string_equal(e.msg, "line 1: anchors are not allowed");
}

static void test_nothing_but_comments(void **state)
{
	(void)state;
	check_json("", "{}");
	check_json("# all settings have defaults\n", "{}");
	assert_int_equal(yaml_doc_line(y, yaml_doc_root(y)), 0);
}

static void test_lines(void **state)
{
	json_t *root = parse("# comment\na: x\nb:\n  - y\n  - c: |\n      text\n");
	json_t *b = json_object_get(root, "b");
	json_t *elsewhere = json_string("x");

	(void)state;
	assert_int_equal(yaml_doc_line(y, root), 2);
	assert_int_equal(yaml_doc_line(y, json_object_get(root, "a")), 2);
	assert_int_equal(yaml_doc_line(y, b), 4);
	assert_int_equal(yaml_doc_line(y, json_array_get(b, 0)), 4);
	assert_int_equal(yaml_doc_line(y, json_array_get(b, 1)), 5);
	assert_int_equal(yaml_doc_line(y, json_object_get(json_array_get(b, 1), "c")), 5);
	assert_int_equal(yaml_doc_line(y, elsewhere), 0);
	assert_int_equal(yaml_doc_line(y, NULL), 0);
	json_decref(elsewhere);
}

static void test_refused(void **state)
{
	(void)state;
	check_refused("a: &x 1\nb: 2\n", "line 1: anchors are not allowed");
	check_refused("a: 1\nb: *x\n", "line 2: aliases are not allowed");
	check_refused("a: [1]\nb: &x [1]\n", "line 2: anchors are not allowed");
	check_refused("&x {a: b}\n", "line 1: anchors are not allowed");
	check_refused("a: !!int 3\n", "line 1: tags are not allowed");
	check_refused("a: ! x\n", "line 1: tags are not allowed");
	check_refused("!!map {a: b}\n", "line 1: tags are not allowed");
	check_refused("\n- !x [a]\n", "line 2: tags are not allowed");
	check_refused("!!str a: b\n", "line 1: tags are not allowed");
	check_refused("a\n---\nb\n", "line 2: a second document is not allowed");
	check_refused("a\n...\n---\n", "line 3: a second document is not allowed");
	check_refused("a: 1\nenv: x\nb: 2\nenv: y\n", "line 4: duplicate key \"env\"");
	check_refused("a: {b: 1, c: {}, b: {}}\n", "line 1: duplicate key \"b\"");
	check_refused("? [a]\n: b\n", "line 1: a key must be a scalar");
	check_refused("a: 1\n? {b: c}\n: d\n", "line 2: a key must be a scalar");
	check_refused("{[a]: b}\n", "line 1: a key must be a scalar");
	check_refused("a: [\n\n", "line 3: ");
	check_refused("a: b\n  c: d\n", "line 2: ");
	check_refused("a: \"x\n", "line 2: ");
	check_refused("\ta: b\n", "line 1: ");
}

static void test_bytes_that_are_refused(void **state)
{
	(void)state;
	check_refused("a: \"x\\0y\"\n", "line 1: control character");
	check_refused("a: 1\nb: \"\\x1b[2J\"\n", "line 2: control character");
	check_refused("\"\\x7f\"", "line 1: control character");
	check_refused("\"\\r\"", "line 1: control character");
	check_refused("\"\\N\"", "line 1: control character"); /* U+0085 */
	check_refused("\"k\\n\": v\n", "line 1: control character");
	check_refused("\"\\ud800\"", "line 1: ");
	check_refused_bytes("a: x\0y\n", 7, "line 1: ");
	check_refused("a: 1\n\nb: \x1b\n", "line 3: ");
	check_refused("a: 1\nb: \xff\n", "line 2: ");
	check_refused("a: \xc3\x28\n", "line 1: ");
	check_refused("\xc0\xaf", "line 1: ");
	check_refused("\xed\xa0\x80", "line 1: ");
	check_refused_bytes("\xff\xfe"
			    "a\0:\0 \0b\0",
	    10, "line 1: "); /* UTF-16 */
	/* What a message repeats of the document is printable. */
	check_refused("\xc3\xa9: 1\n\xc3\xa9: 2\n", "line 2: duplicate key \"\?\?\"");
}

/* `n` times `what`. */
static char *repeat(const char *what, size_t n)
{
	size_t len = strlen(what);
	char *text = mem_zalloc(n * len + 1);

	for (size_t i = 0; i < n; i++)
		memcpy(text + i * len, what, len);
	return text;
}

static void test_depth(void **state)
{
	char text[200];

	(void)state;
	for (int depth = 30; depth <= 35; depth++) {
		memset(text, '[', sizeof(text));
		memset(text + depth, ']', (size_t)depth);
		bool accepted = parse_bytes(text, (size_t)depth * 2);
		assert_int_equal(accepted, depth <= 32);
	}
	assert_string_equal(e.msg, "line 1: nested too deeply");
	auto_free char *maps = repeat("{a: ", 33);
	check_refused(maps, "line 1: nested too deeply");
}

static void test_number_of_values(void **state)
{
	auto_free char *most = repeat("- a\n", 4095);
	auto_free char *more = repeat("- a\n", 4096);

	(void)state;
	assert_int_equal(json_array_size(parse(most)), 4095); /* and the array itself */
	check_refused(more, "line 4096: more than 4096 values");
}

static void test_size(void **state)
{
	enum { MIB = 1024 * 1024 };
	char *text = mem_zalloc(MIB + 1);

	(void)state;
	memset(text, '#', MIB + 1);
	assert_non_null(parse_bytes(text, MIB));
	check_refused_bytes(text, MIB + 1, "line 1: more than 1 MiB");
	memset(text, 'x', MIB);
	assert_int_equal(json_string_length(parse_bytes(text, MIB)), MIB);
	free(text);
}

/* The worst a MiB can do costs little: each document here is one that some parser is slow on. */
static void test_bombs_are_cheap(void **state)
{
	static const char *const bombs[] = {"[", "{", "- ", "? ", "a: ", "- - ", "[]", "{}", "\"",
	    "'", "&a ", "*a ", "!", "%", "|", ">\n ", "\n", " ", "\t", "---\n", "...\n", "a\n",
	    "a:\n", "[a", "{a: [", ",", ":", "#\n", "\\", "\xc3\xa9", "k: v\n", "- [a, b]\n",
	    "? a\n", "!!a!b "};
	struct timespec before;
	struct timespec after;

	(void)state;
	for (size_t i = 0; i < sizeof(bombs) / sizeof(*bombs); i++) {
		auto_free char *text = repeat(bombs[i], 1024 * 1024 / strlen(bombs[i]));
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
		parse_bytes(text, strlen(text));
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
		double took = (double)(after.tv_sec - before.tv_sec) +
			      (double)(after.tv_nsec - before.tv_nsec) / 1e9;
		if (took > 2)
			fail_msg("\"%s\" took %.1f s", bombs[i], took);
	}
}

int main(void)
{
#define YAML_TEST(f) cmocka_unit_test_teardown(f, teardown)
	const struct CMUnitTest tests[] = {
	    YAML_TEST(test_shapes),
	    YAML_TEST(test_scalars_stay_strings),
	    YAML_TEST(test_typed),
	    YAML_TEST(test_nothing_but_comments),
	    YAML_TEST(test_lines),
	    YAML_TEST(test_refused),
	    YAML_TEST(test_bytes_that_are_refused),
	    YAML_TEST(test_depth),
	    YAML_TEST(test_number_of_values),
	    YAML_TEST(test_size),
	    YAML_TEST(test_bombs_are_cheap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
