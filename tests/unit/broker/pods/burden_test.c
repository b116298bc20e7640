/* burden_test.c - how long a pod waits whose connections held much when a worker was killed. */
#include "broker/pods/burden.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };

static void test_twice_as_long_each_time(void **state)
{
	static const int64_t waits_s[] = {10, 20, 40, 80, 160, 320, 600, 600};
	struct pod_burden b = {.held_kib = 1};
	int64_t now = 5 * HOUR;

	(void)state;
	assert_int_equal(pod_burden_wait_s(&b, now), 0);
	for (unsigned i = 0; i < sizeof(waits_s) / sizeof(waits_s[0]); i++) {
		assert_int_equal(pod_burden_blame(&b, now), waits_s[i] * SECOND);
		assert_int_equal(pod_burden_wait_s(&b, now), waits_s[i]);
		assert_int_equal(pod_burden_wait_s(&b, now + 1), waits_s[i]);
		assert_int_equal(pod_burden_wait_s(&b, now + waits_s[i] * SECOND - 1), 1);
		assert_int_equal(pod_burden_wait_s(&b, now + waits_s[i] * SECOND), 0);
		now += HOUR - 1;
	}
}

static void test_an_hour_without_is_a_new_beginning(void **state)
{
	struct pod_burden b = {.held_kib = 1};

	(void)state;
	pod_burden_blame(&b, 0);
	assert_int_equal(pod_burden_blame(&b, HOUR - 1), 20 * SECOND);
	assert_int_equal(pod_burden_blame(&b, 2 * HOUR - 1), 10 * SECOND);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_twice_as_long_each_time),
	    cmocka_unit_test(test_an_hour_without_is_a_new_beginning),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
