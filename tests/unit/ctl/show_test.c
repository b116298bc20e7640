/* show_test.c - YAML.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/show.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"
#include "common/mem.h"
#include "ctl/show.h"

static int print_it(const struct ctl *c)
{
	json_t *v = json_loads(c->words[0], 0, NULL);

	assert_non_null(v);
	ctl_print_yaml(v);
	json_decref(v);
	return CTL_OK;
}

static void a_tree_shows_every_kind_of_value(void **state)
{
	static const char json[] =
	    "{\"s\": \"text\", \"n\": 3, \"b\": true, \"z\": null, \"none\": [], \"nobody\": {},"
	    " \"o\": {\"k\": \"v\"}, \"l\": [1, {\"k\": \"w\"}, [2]]}";
	const struct printed *p = run_asked(print_it, (struct ctl){.words = {json}});

	(void)state;
	assert_string_equal(p->out, "s: text\n"
				    "\"n\": 3\n"
				    "b: true\n"
				    "z: null\n"
				    "none: []\n"
				    "nobody: {}\n"
				    "o:\n"
				    "  k: v\n"
				    "l:\n"
				    "  - 1\n"
				    "  -\n"
				    "    k: w\n"
				    "  -\n"
				    "    - 2\n");
}

/* Whatever could be read as something else is quoted. */
static void yaml_says_what_the_answer_says(void **state)
{
	static const char *const quoted[] = {"", "yes", "NULL", "12", "1e3", "-x", "a: b", "a #b",
	    "a ", "{", "*a", "2026-11-23", "a\\\"b", "a:", "~"};
	static const char *const plain[] = {"text", "not ready, yet", "/run/agentd", "a.b-c/d@e"};

	(void)state;
	for (size_t i = 0; i < sizeof(quoted) / sizeof(*quoted); i++) {
		auto_free char *json = mem_printf("{\"k\": \"%s\"}", quoted[i]);
		auto_free char *yaml = mem_printf("k: \"%s\"\n", quoted[i]);

		assert_string_equal(run_asked(print_it, (struct ctl){.words = {json}})->out, yaml);
	}
	for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++) {
		auto_free char *json = mem_printf("{\"%s\": \"%s\"}", plain[i], plain[i]);
		auto_free char *yaml = mem_printf("%s: %s\n", plain[i], plain[i]);

		assert_string_equal(run_asked(print_it, (struct ctl){.words = {json}})->out, yaml);
	}
}

static int print_text(const struct ctl *c)
{
	ctl_print_text(c, c->words[0], strlen(c->words[0]));
	return CTL_OK;
}

static int print_answer(const struct ctl *c)
{
	json_t *v = json_loads(c->words[0], 0, NULL);

	assert_non_null(v);
	ctl_print_answer(c, v);
	json_decref(v);
	return CTL_OK;
}

/* Without a tree, and yet as with one. */
static void a_text_is_printed_as_its_tree(void **state)
{
	static const char *const texts[] = {"{}",
	    "{ \"s\" : \"text\", \"n\":3,\"b\": true, \"z\":null, \"none\": [ ], \"nobody\":{}}",
	    "{\"o\": {\"k\": \"v\"}, \"l\": [1, {\"k\": \"w\", \"m\": 1}, [2, [3]], \"x\"]}",
	    "{\"a\": \"\\\"\\u001b[2J\x7f\xc2\x9b\xf0\x9f\x98\x80\", \"\xc3\xa9\": \"\\u0041\"}"};

	(void)state;
	for (size_t i = 0; i < 2 * sizeof(texts) / sizeof(*texts); i++) {
		const struct ctl c = {.words = {texts[i / 2]}, .yaml = i % 2, .json = true};
		auto_free char *tree = mem_strdup(run_asked(print_answer, c)->out);

		if (i == 1) /* a tree that is empty has no YAML */
			assert_string_equal(run_asked(print_text, c)->out, " {}\n");
		else if (i != 6)
			assert_string_equal(run_asked(print_text, c)->out, tree);
		else /* an escape stays as it was written */
			assert_string_equal(run_asked(print_text, c)->out,
			    "{\n  \"a\": \"\\\"\\u001b[2J\\u007f\\u009b\\ud83d\\ude00\",\n"
			    "  \"\\u00e9\": \"\\u0041\"\n}\n");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(yaml_says_what_the_answer_says),
	    cmocka_unit_test(a_tree_shows_every_kind_of_value),
	    cmocka_unit_test(a_text_is_printed_as_its_tree),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
