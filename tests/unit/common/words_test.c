/* words_test.c - one word of several. */
#include "common/words.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_has(void **state)
{
	(void)state;
	assert_true(words_has("a", "a"));
	assert_true(words_has("new,old", "new"));
	assert_true(words_has("new,old", "old"));
	assert_true(words_has(",,new,,old,", "old"));
	assert_false(words_has("new,old", "ol"));
	assert_false(words_has("new,old", "new,old"));
	assert_false(words_has("new,old", ""));
	assert_false(words_has("a,,b", ""));
	assert_false(words_has("", "a"));
	assert_false(words_has("", ""));
	assert_false(words_has(NULL, "a"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_has)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
