/* bounds_test.c - what is counted before JSON is read. */
#include "common/err.h"
#include "common/mem.h"
#include "inject/bounds.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct err e;

static int check(const char *text)
{
	unsigned values = 0;

	return bounds_check(text, strlen(text), &values, &e);
}

static char *repeated(const char *part, unsigned n)
{
	size_t len = strlen(part);
	char *out = mem_zalloc(n * len + 1);

	for (unsigned i = 0; i < n; i++)
		memcpy(out + i * len, part, len);
	return out;
}

static void depth_is_bound(void **state)
{
	auto_free char *most = repeated("[", BOUNDS_DEPTH_MAX);
	auto_free char *more = repeated("{", BOUNDS_DEPTH_MAX + 1);
	auto_free char *wide = repeated("[]", 1000);

	(void)state;
	assert_int_equal(check(most), 0);
	assert_int_equal(check(more), -1);
	assert_string_equal(e.msg, "JSON: deeper than 64 levels");
	assert_int_equal(check(wide), 0);
}

static void values_are_bound(void **state)
{
	auto_free char *most = repeated("1,", BOUNDS_VALUES_MAX - 1);
	auto_free char *more = repeated("1,", BOUNDS_VALUES_MAX);
	auto_free char *keys = repeated("\"a\":1,", BOUNDS_VALUES_MAX / 2);
	unsigned before = 0;

	(void)state;
	assert_int_equal(check(most), 0);
	assert_int_equal(check(more), -1);
	assert_string_equal(e.msg, "JSON: more than 30000 values");
	assert_int_equal(check(keys), -1);
	assert_int_equal(bounds_check(most, strlen(most), &before, &e), 0);
	assert_int_equal(bounds_check("1", 1, &before, &e), -1); /* a second text */
}

static void what_is_in_texts_is_not_counted(void **state)
{
	auto_free char *inner = repeated("[{:,\\\"\\\\", BOUNDS_VALUES_MAX);
	auto_free char *text = mem_printf("\"%s\"", inner);
	auto_free char *open = mem_printf("\"%s", inner);

	(void)state;
	assert_int_equal(check(text), 0);
	assert_int_equal(check(open), 0);
	assert_int_equal(check("\"\\"), 0);
	assert_int_equal(check(""), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(depth_is_bound),
	    cmocka_unit_test(values_are_bound),
	    cmocka_unit_test(what_is_in_texts_is_not_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
