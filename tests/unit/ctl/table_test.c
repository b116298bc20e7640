/* table_test.c - widths, long tables, the tree, the selection by name.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/table.c agentd/ctl/show.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"

static int print_small_table(const struct ctl *c)
{
	struct table *t = table_new(3);
	char cell[] = "yes";

	(void)c;
	table_row(t, "POD", "READY", "PROBLEM", NULL);
	table_row(t, "demo/web-0", cell, "", NULL);
	strcpy(cell, "no"); /* a row is a copy */
	table_row(t, "a", cell, "a long reason does not widen anything", NULL);
	table_print_free(&t);
	assert_null(t);
	return CTL_OK;
}

static void columns_are_as_wide_as_their_widest_cell(void **state)
{
	const struct printed *p = run_command(print_small_table, NULL, false);

	(void)state;
	assert_string_equal(p->out, "POD         READY  PROBLEM\n"
				    "demo/web-0  yes    \n"
				    "a           no     a long reason does not widen anything\n");
}

enum { ROWS = 2000 };

static int print_long_table(const struct ctl *c)
{
	struct table *t = table_new(2);
	char number[16];

	(void)c;
	for (int i = 0; i < ROWS; i++) {
		snprintf(number, sizeof(number), "%d", i);
		table_row(t, number, "x", NULL);
	}
	table_print_free(&t);
	return CTL_OK;
}

static void a_long_table_is_whole_and_in_order(void **state)
{
	const struct printed *p = run_command(print_long_table, NULL, false);

	(void)state;
	assert_int_equal(strlen(p->out), ROWS * strlen("1999  x\n"));
	assert_string_equal(line(p, 0), "0     x");
	assert_string_equal(line(p, ROWS - 1), "1999  x");
}

static int print_tree(const struct ctl *c)
{
	json_t *v = json_loads(c->name, 0, NULL);

	assert_non_null(v);
	ctl_print_tree(v, 0);
	json_decref(v);
	return CTL_OK;
}

static void a_tree_shows_every_kind_of_value(void **state)
{
	const struct printed *p = run_command(print_tree,
	    "{\"s\": \"text\", \"n\": 3, \"b\": true, \"z\": null, \"none\": [], \"nobody\": {},"
	    " \"o\": {\"k\": \"v\"}, \"l\": [1, {\"k\": \"w\"}, [2]]}",
	    false);

	(void)state;
	assert_string_equal(p->out, "s: text\n"
				    "n: 3\n"
				    "b: true\n"
				    "z: null\n"
				    "none: []\n"
				    "nobody: {}\n"
				    "o: \n"
				    "  k: v\n"
				    "l: \n"
				    "  - 1\n"
				    "  - \n"
				    "    k: w\n"
				    "  - \n"
				    "    - 2\n");
}

static bool is_it(const json_t *thing, const char *name)
{
	return !strcmp(json_string_value(thing), name);
}

static json_t *list;

static int do_select(const struct ctl *c)
{
	return ctl_select(c, list, "pods", is_it);
}

static void a_name_selects_all_that_have_it(void **state)
{
	const struct printed *p;

	(void)state;
	list = json_pack("[s, s, s, s]", "a", "b", "b", "a");
	p = run_command(do_select, NULL, false);
	assert_int_equal(p->status, CTL_OK);
	assert_int_equal(json_array_size(list), 4);
	p = run_command(do_select, "b", false);
	assert_int_equal(p->status, CTL_OK);
	assert_int_equal(json_array_size(list), 2);
	assert_string_equal(json_string_value(json_array_get(list, 0)), "b");
	assert_string_equal(json_string_value(json_array_get(list, 1)), "b");
	p = run_command(do_select, "c", false);
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_string_equal(p->err, "agentctl: c: no such name (agentctl pods lists them)\n");
	json_decref(list);
}

static void no_name_selects_from_an_empty_list_without_a_word(void **state)
{
	const struct printed *p;

	(void)state;
	list = json_array();
	p = run_command(do_select, NULL, false);
	assert_int_equal(p->status, CTL_OK);
	assert_string_equal(p->err, "");
	json_decref(list);
}

/* Nothing is not the same as no answer to the question. */
static void a_list_that_is_none_is_a_problem(void **state)
{
	const struct printed *p;

	(void)state;
	list = NULL;
	p = run_command(do_select, NULL, false);
	assert_int_equal(p->status, CTL_PROBLEM);
	assert_non_null(strstr(p->err, "no pods in the answer"));
	list = json_object();
	assert_int_equal(run_command(do_select, "a", false)->status, CTL_PROBLEM);
	json_decref(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
	    cmocka_unit_test(a_long_table_is_whole_and_in_order),
	    cmocka_unit_test(a_tree_shows_every_kind_of_value),
	    cmocka_unit_test(a_name_selects_all_that_have_it),
	    cmocka_unit_test(no_name_selects_from_an_empty_list_without_a_word),
	    cmocka_unit_test(a_list_that_is_none_is_a_problem),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
