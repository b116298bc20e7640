/* health_test.c - thresholds, and the time of the next question; the clock is the test's. */
#include "worker/health/health.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct health_rules once = {0, 10, 1, 1};

/* bare-metal-identity.md 5: nothing is told before the first threshold, and then only changes. */
static void test_changes_are_told(void **state)
{
	struct health h;

	(void)state;
	health_begin(&h, &once, 0);
	assert_string_equal(health_state_name(h.state), "unknown");
	assert_true(health_result(&h, NULL));
	assert_string_equal(health_state_name(h.state), "healthy");
	assert_false(health_result(&h, NULL));
	assert_true(health_result(&h, "refused"));
	assert_string_equal(health_state_name(h.state), "unhealthy");
	assert_string_equal(h.why, "refused");
	assert_false(health_result(&h, "still refused"));
	assert_string_equal(h.why, "still refused");
	assert_true(health_result(&h, NULL));
	assert_string_equal(h.why, "");
}

static void test_the_first_may_be_a_failure(void **state)
{
	struct health h;

	(void)state;
	health_begin(&h, &once, 0);
	assert_true(health_result(&h, "")); /* a reason is always there */
	assert_int_equal(h.state, HEALTH_UNHEALTHY);
	assert_string_equal(h.why, "no reason");
}

/* A result of the other kind begins the count anew. */
static void test_thresholds_are_in_a_row(void **state)
{
	static const struct health_rules rules = {0, 10, 2, 3};
	struct health h;

	(void)state;
	health_begin(&h, &rules, 0);
	assert_false(health_result(&h, NULL));
	assert_false(health_result(&h, "a"));
	assert_false(health_result(&h, NULL));
	assert_true(health_result(&h, NULL));
	for (int i = 0; i < 5; i++) {
		assert_false(health_result(&h, "a"));
		assert_false(health_result(&h, "b"));
		assert_false(health_result(&h, NULL)); /* healthy as before */
	}
	assert_false(health_result(&h, "a"));
	assert_false(health_result(&h, "b"));
	assert_true(health_result(&h, "c"));
	assert_string_equal(h.why, "c");
	assert_false(health_result(&h, NULL));
	assert_true(health_result(&h, NULL));
}

static void test_the_time_of_the_next_question(void **state)
{
	static const struct health_rules rules = {7, 2, 1, 1};
	struct health h;

	(void)state;
	health_begin(&h, &rules, 1000);
	assert_int_equal(h.due_ms, 8000);
	health_asked(&h, 8000);
	assert_int_equal(h.due_ms, 10000);
	health_begin(&h, &once, 1000);
	assert_int_equal(h.due_ms, 1000);
}

static void test_a_reason_is_cut(void **state)
{
	char longer[2 * ERR_MSG_SIZE];
	struct health h;

	(void)state;
	memset(longer, 'x', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	health_begin(&h, &once, 0);
	assert_true(health_result(&h, longer));
	assert_int_equal(strlen(h.why), ERR_MSG_SIZE - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_changes_are_told),
	    cmocka_unit_test(test_the_first_may_be_a_failure),
	    cmocka_unit_test(test_thresholds_are_in_a_row),
	    cmocka_unit_test(test_the_time_of_the_next_question),
	    cmocka_unit_test(test_a_reason_is_cut),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
