/* show_test.c - the tree.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/show.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"
#include "ctl/show.h"

static int print_tree(const struct ctl *c)
{
	json_t *v = json_loads(c->words[0], 0, NULL);

	assert_non_null(v);
	ctl_print_tree(v, 0);
	json_decref(v);
	return CTL_OK;
}

static void a_tree_shows_every_kind_of_value(void **state)
{
	static const char json[] =
	    "{\"s\": \"text\", \"n\": 3, \"b\": true, \"z\": null, \"none\": [], \"nobody\": {},"
	    " \"o\": {\"k\": \"v\"}, \"l\": [1, {\"k\": \"w\"}, [2]]}";
	const struct printed *p = run_asked(print_tree, (struct ctl){.words = {json}});

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

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_tree_shows_every_kind_of_value),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
