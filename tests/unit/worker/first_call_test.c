/* first_call_test.c - a real call, to a port where nobody is: it comes back. */
#include "common/err.h"
#include "worker/first_call.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void it_comes_back_each_time(void **state)
{
	struct err e;

	(void)state;
	for (int i = 0; i < 2; i++)
		if (first_call_make(&e))
			fail_msg("%s", e.msg);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(it_comes_back_each_time)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
