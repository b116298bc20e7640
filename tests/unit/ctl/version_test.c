/* version_test.c - versions of both programs; libraries when asked for.
 * LINK: tests/unit/ctl/canned.c agentd/ctl/command.c agentd/ctl/show.c agentd/ctl/table.c agentd/ctl/version.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "canned.h"
#include "common/version.h"

#define ANSWER "{\"agentd\":\"9.8.7\",\"libraries\":{\"openssl\":\"3.0.22\",\"libyaml\":\"0.2.5\"}}"

static const struct ctl_given deps[] = {{"deps", ""}, {0}};

static void libraries_are_told_when_asked_for(void **state)
{
	const struct printed *p;
	char own[100];

	(void)state;
	canned_answer(ANSWER, 0);
	p = run_asked(ctl_version.run, (struct ctl){.options = deps});
	assert_string_equal(canned_request(), "GET /version");
	assert_int_equal(p->status, CTL_OK);
	snprintf(own, sizeof(own), "agentctl  %s", version_text);
	assert_string_equal(line(p, 1), own);
	assert_string_equal(line(p, 2), "agentd    9.8.7");
	assert_string_equal(line(p, 3), "openssl   3.0.22");
	assert_string_equal(line(p, 4), "libyaml   0.2.5");
	p = run_asked(ctl_version.run, (struct ctl){.options = deps, .json = true});
	assert_non_null(strstr(p->out, "\"openssl\": \"3.0.22\""));
}

static void and_not_otherwise(void **state)
{
	(void)state;
	canned_answer(ANSWER, 0);
	for (int json = 0; json < 2; json++) {
		const struct printed *p = run_command(&ctl_version, NULL, json);

		assert_non_null(strstr(p->out, "9.8.7"));
		assert_null(strstr(p->out, "openssl"));
	}
}

static void strange_answers_are_survived(void **state)
{
	static const char *const answers[] = {
	    "{}", "{\"agentd\":7,\"libraries\":[]}", "{\"libraries\":{\"a\":null,\"b\":{}}}", NULL};

	(void)state;
	for (const char *const *a = answers; *a; a++)
		for (int how = 0; how < 4; how++) {
			canned_answer(*a, 0);
			assert_int_equal(
			    run_asked(ctl_version.run,
				(struct ctl){.options = how & 1 ? deps : NULL, .json = how & 2})
				->status,
			    CTL_OK);
		}
}

static void nobody_there_is_said(void **state)
{
	(void)state;
	canned_answer(NULL, CTL_UNREACHABLE);
	assert_int_equal(run_command(&ctl_version, NULL, false)->status, CTL_UNREACHABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(libraries_are_told_when_asked_for),
	    cmocka_unit_test(and_not_otherwise),
	    cmocka_unit_test(strange_answers_are_survived),
	    cmocka_unit_test(nobody_there_is_said),
	};

	return !!cmocka_run_group_tests(tests, NULL, NULL);
}
