/* json_text_test.c - numbers are short, and the same; nothing else changes. */
#include "base/json_text.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void is_written(const char *json, const char *as, size_t flags)
{
	json_t *v = json_loads(json, JSON_DECODE_ANY, NULL);
	char *text = json_text(v, flags | JSON_ENCODE_ANY);

	assert_string_equal(text, as);
	free(text);
	json_decref(v);
}

static void numbers_are_as_short_as_they_can_be(void **state)
{
	(void)state;
	is_written("0.1", "0.1", 0);
	is_written("[1.1,-0.3,100.25]", "[1.1,-0.3,100.25]", JSON_COMPACT);
	is_written("[1.0, 0.0, -0.0, 1e5]", "[1.0, 0.0, -0.0, 100000.0]", 0);
	is_written("[1e300,1.5e-7,123456789012345680]", "[1e+300,1.5e-07,123456789012345680]",
	    JSON_COMPACT);
	is_written("0.30000000000000004", "0.30000000000000004", 0); /* all 17 are needed */
	is_written("[9007199254740993,-5,0]", "[9007199254740993,-5,0]", JSON_COMPACT);
}

static void strings_and_white_space_stay(void **state)
{
	(void)state;
	is_written("{\"0.10000000000000001\":[0.1,\"a\\\"0.10000000000000001\"]}",
	    "{\"0.10000000000000001\":[0.1,\"a\\\"0.10000000000000001\"]}", JSON_COMPACT);
	is_written("\"\\\\\"", "\"\\\\\"", 0);
	is_written("[true,false,null,{}]", "[true,false,null,{}]", JSON_COMPACT);
	is_written("[0.1]", "[\n  0.1\n]", JSON_INDENT(2));
}

static void each_double_reads_as_itself(void **state)
{
	uint64_t bits = 88172645463325252u;

	(void)state;
	for (int i = 0; i < 20000; i++) {
		double d, again;

		bits ^= bits << 13, bits ^= bits >> 7, bits ^= bits << 17;
		memcpy(&d, &bits, sizeof(d));
		json_t *v = json_real(d); /* NULL: not a finite number */
		char *text = v ? json_text(v, JSON_ENCODE_ANY) : NULL;

		if (!text)
			continue;
		again = strtod(text, NULL);
		assert_memory_equal(&again, &d, sizeof(d));
		free(text);
		json_decref(v);
	}
}

static void what_cannot_be_written_is_nothing(void **state)
{
	(void)state;
	assert_null(json_text(NULL, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(numbers_are_as_short_as_they_can_be),
	    cmocka_unit_test(strings_and_white_space_stay),
	    cmocka_unit_test(each_double_reads_as_itself),
	    cmocka_unit_test(what_cannot_be_written_is_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
