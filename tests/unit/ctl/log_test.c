/* log_test.c - levels are shown by a GET and changed by a POST.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/show.c agentd/ctl/table.c agentd/ctl/log.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"

static void levels_are_a_table(void **state)
{
	const struct printed *p;

	(void)state;
	canned_answer("{\"cert\":\"info\",\"xds\":\"debug\"}", 0);
	p = run_command(&ctl_log, NULL, false);
	assert_string_equal(canned_request(), "GET /logging");
	assert_int_equal(p->status, CTL_OK);
	assert_string_equal(p->out, "SCOPE  LEVEL\ncert   info\nxds    debug\n");
}

static void a_level_is_posted(void **state)
{
	(void)state;
	canned_answer("{\"xds\":\"debug\"}", 0);
	assert_int_equal(run_command(&ctl_log, "default:warn,xds:debug", true)->status, CTL_OK);
	assert_string_equal(canned_request(), "POST /logging?level=default:warn,xds:debug");
}

/* Nothing that could end the query or the request line. */
static void what_is_no_level_is_not_sent(void **state)
{
	static const char *const names[] = {
	    "xds debug", "a&b", "a%00", "x\r\ny", "a?b", "a#", "\x80"};

	(void)state;
	canned_answer("{}", 0);
	run_command(&ctl_log, NULL, false);
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		const struct printed *p = run_command(&ctl_log, names[i], false);

		assert_int_equal(p->status, CTL_USAGE);
		assert_non_null(strstr(p->err, "not a level"));
		assert_string_equal(canned_request(), "GET /logging"); /* still the first */
	}
}

static void strange_answers_are_survived(void **state)
{
	static const char *const answers[] = {
	    "{}", "{\"xds\":7,\"cert\":null}", "{\"\":{},\"a\":[]}", NULL};

	(void)state;
	for (const char *const *a = answers; *a; a++)
		for (int json = 0; json < 2; json++) {
			canned_answer(*a, 0);
			assert_int_equal(run_command(&ctl_log, NULL, json)->status, CTL_OK);
		}
}

static void a_refusal_is_passed_on(void **state)
{
	(void)state;
	canned_answer(NULL, CTL_PROBLEM);
	assert_int_equal(run_command(&ctl_log, "nobody:debug", false)->status, CTL_PROBLEM);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(levels_are_a_table),
	    cmocka_unit_test(a_level_is_posted),
	    cmocka_unit_test(what_is_no_level_is_not_sent),
	    cmocka_unit_test(strange_answers_are_survived),
	    cmocka_unit_test(a_refusal_is_passed_on),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
