/* table_test.c - widths, long tables.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/table.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"
#include "ctl/table.h"

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
	const struct printed *p = run_asked(print_small_table, (struct ctl){0});

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
	const struct printed *p = run_asked(print_long_table, (struct ctl){0});

	(void)state;
	assert_int_equal(strlen(p->out), ROWS * strlen("1999  x\n"));
	assert_string_equal(line(p, 0), "0     x");
	assert_string_equal(line(p, ROWS - 1), "1999  x");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(columns_are_as_wide_as_their_widest_cell),
	    cmocka_unit_test(a_long_table_is_whole_and_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
