/* list_test.c - the selection by name, and the exit status.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/list.c agentd/ctl/show.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"
#include "ctl/list.h"
#include "ctl/show.h"

static void print_names(const json_t *answer)
{
	const json_t *thing;
	size_t i;

	printf("%zu:", json_array_size(json_object_get(answer, "things")));
	json_array_foreach (json_object_get(answer, "things"), i, thing)
		printf(" %s", ctl_string(thing, "pod"));
	printf("\n");
}

static bool is_refused(const json_t *answer)
{
	return json_is_true(json_object_get(answer, "refused"));
}

static struct ctl_list list = {
    .noun = "pods",
    .page = "/page",
    .key = "things",
    .is_named = ctl_list_is_pod,
    .has_problem = ctl_list_says_why_not,
    .answer_has_problem = is_refused,
    .print = print_names,
};

static int show(const struct ctl *c)
{
	return ctl_list(c, &list);
}

static const struct printed *run_list(const char *answer, const char *name)
{
	canned_answer(answer, CTL_UNREACHABLE);
	return run_asked(show, (struct ctl){.words = {name}});
}

#define A "{\"pod\":\"x/a\",\"uid\":\"1\"}"
#define B "{\"pod\":\"x/b\",\"uid\":\"2\"}"
#define B2 "{\"pod\":\"y/b\",\"uid\":\"3\",\"why_not\":\"broken\"}"
#define THINGS(list) "{\"things\":[" list "]}"

static void a_name_selects_all_that_have_it(void **state)
{
	static const struct {
		const char *name, *out;
		int status;
	} cases[] = {
	    {NULL, "4: x/a x/b y/b x/a\n", CTL_PROBLEM},
	    {"b", "2: x/b y/b\n", CTL_PROBLEM},
	    {"x/b", "1: x/b\n", CTL_OK},
	    {"2", "1: x/b\n", CTL_OK},
	    {"3", "1: y/b\n", CTL_PROBLEM},
	    {"a", "2: x/a x/a\n", CTL_OK},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct printed *p = run_list(THINGS(A "," B "," B2 "," A), cases[i].name);

		assert_string_equal(canned_request(), "GET /page");
		assert_string_equal(p->out, cases[i].out);
		assert_string_equal(p->err, "");
		assert_int_equal(p->status, cases[i].status);
	}
}

static void a_name_that_nothing_has_has_its_own_status(void **state)
{
	static const char *const names[] = {"c", "", "x", "x/", "/a"};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const struct printed *p = run_list(THINGS(A ",{\"pod\":\"p\"}"), names[i]);

		assert_int_equal(p->status, CTL_NOT_FOUND);
		assert_string_equal(p->out, "");
		assert_non_null(strstr(p->err, ": no such name (agentctl pods lists them)\n"));
	}
}

static void what_stands_beside_the_list_counts_without_a_name(void **state)
{
	static const char answer[] = "{\"refused\":true,\"things\":[" A "]}";

	(void)state;
	assert_int_equal(run_list(answer, NULL)->status, CTL_PROBLEM);
	assert_int_equal(run_list(answer, "a")->status, CTL_OK);
}

static void what_is_named_may_be_shown_otherwise(void **state)
{
	(void)state;
	list.print_one = ctl_print_yaml;
	assert_string_equal(run_list(THINGS(A "," B), NULL)->out, "2: x/a x/b\n");
	assert_string_equal(run_list(THINGS(B "," B2), "b")->out,
	    "pod: x/b\nuid: \"2\"\n\npod: y/b\nuid: \"3\"\nwhy_not: broken\n");
	list.print_one = NULL;
}

static void an_empty_list_needs_no_word(void **state)
{
	const struct printed *p = run_list(THINGS(""), NULL);

	(void)state;
	assert_int_equal(p->status, CTL_OK);
	assert_string_equal(p->err, "");
}

/* Nothing is not the same as no answer to the question. */
static void a_list_that_is_none_is_a_problem(void **state)
{
	const struct printed *p = run_list("{}", NULL);

	(void)state;
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_non_null(strstr(p->err, "no pods in the answer"));
	assert_int_equal(run_list("{\"things\":{}}", "a")->status, CTL_PROBLEM);
	assert_int_equal(run_list(NULL, NULL)->status, CTL_UNREACHABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_name_selects_all_that_have_it),
	    cmocka_unit_test(a_name_that_nothing_has_has_its_own_status),
	    cmocka_unit_test(what_stands_beside_the_list_counts_without_a_name),
	    cmocka_unit_test(what_is_named_may_be_shown_otherwise),
	    cmocka_unit_test(an_empty_list_needs_no_word),
	    cmocka_unit_test(a_list_that_is_none_is_a_problem),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
