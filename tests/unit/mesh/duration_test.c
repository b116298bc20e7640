/* duration_test.c - Go's durations: what is one, what is none, where it overflows. */
#include "mesh/duration.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_valid(void **state)
{
	static const struct {
		const char *text;
		int64_t ms;
	} cases[] = {{"0", 0}, {"0s", 0}, {"24h", 86400000}, {"1h30m", 5400000}, {"45s", 45000},
	    {"100ms", 100}, {"0.5s", 500}, {".5s", 500}, {"1.s", 1000}, {"1.25h", 4500000},
	    {"1500us", 1}, {"1500\xc2\xb5s", 1}, {"999999ns", 0}, {"1m1s1ms", 61001},
	    {"2562047h", 9223369200000}, {"0.0000000000000000000000001s", 0}};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int64_t ms = -1;

		assert_true(duration_parse(cases[i].text, &ms));
		assert_int_equal(ms, cases[i].ms);
	}
}

static void test_invalid(void **state)
{
	static const char *const cases[] = {"", "1", "s", ".s", "-1s", "+1s", " 1s", "1s ", "1 s",
	    "1d", "1S", "1e3s", "0x1s", "1h30", "1..5s", "inf", "00", "2562048h",
	    "99999999999999999999s", "9223372036854775807ms", "2562047h48m"};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int64_t ms = 7;

		if (duration_parse(cases[i], &ms))
			fail_msg("%s was taken", cases[i]);
		assert_int_equal(ms, 7);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_valid),
	    cmocka_unit_test(test_invalid),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
