/* What is drawn, and what of it is marked.  LINK: agentd/ctl/watch.c */
#include "common/mem.h"
#include "ctl/watch.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void is_drawn(const char *before, const char *now, const char *expected)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	assert_non_null(out);
	ctl_watch_draw(out, before, now);
	assert_int_equal(fclose(out), 0);
	assert_string_equal(text, expected);
	free(text);
}

#define CLEAR "\033[H\033[2J"
#define M "\033[7m"
#define U "\033[27m"

static void the_first_time_marks_nothing(void **state)
{
	(void)state;
	is_drawn(NULL, "A  B\n1  2\n", CLEAR "A  B\n1  2\n");
	is_drawn("A  B\n1  2\n", "A  B\n1  2\n", CLEAR "A  B\n1  2\n");
}

static void what_differs_is_marked_where_it_stands(void **state)
{
	(void)state;
	is_drawn("web  1\ndb   2\n", "web  7\ndb   2\n", CLEAR "web  " M "7" U "\ndb   2\n");
	is_drawn("a 12 b\n", "a 34 b\n", CLEAR "a " M "34" U " b\n");
	is_drawn("12\n", "1 \n", CLEAR "1" M " " U "\n"); /* something went */
}

static void lines_come_and_go(void **state)
{
	(void)state;
	is_drawn("a\n", "a\nb c\n", CLEAR "a\n" M "b" U " " M "c" U "\n");
	is_drawn("a\nb\n", "a\n", CLEAR "a\n");
	is_drawn("a\n", "ab\n", CLEAR "a" M "b" U "\n");
	is_drawn("a", "", CLEAR);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_first_time_marks_nothing),
	    cmocka_unit_test(what_differs_is_marked_where_it_stands),
	    cmocka_unit_test(lines_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
