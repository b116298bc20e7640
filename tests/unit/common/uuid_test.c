/* uuid_test.c - a uid names a directory, so exactly one spelling of it is accepted. */
#include "common/uuid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char good[] = "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0";

static void test_text_and_back(void **state)
{
	char text[UUID_TEXT_SIZE];
	struct uuid u;

	(void)state;
	assert_true(uuid_parse(&u, good));
	assert_int_equal(u.bytes[0], 0x0f);
	assert_int_equal(u.bytes[15], 0xf0);
	uuid_format(&u, text);
	assert_string_equal(text, good);
}

static void test_equal(void **state)
{
	struct uuid a;
	struct uuid b;

	(void)state;
	uuid_parse(&a, good);
	uuid_parse(&b, good);
	assert_true(uuid_equal(&a, &b));
	b.bytes[15] ^= 1;
	assert_false(uuid_equal(&a, &b));
}

/* Each byte replaced by each other byte: accepted only where it is another digit. */
static void test_every_single_change(void **state)
{
	struct uuid u;

	(void)state;
	for (size_t i = 0; i < sizeof(good) - 1; i++) {
		for (int c = 0; c < 256; c++) {
			char text[sizeof(good)];
			memcpy(text, good, sizeof(good));
			text[i] = (char)c;
			bool digit = c && strchr("0123456789abcdef", c);
			bool dash_here = good[i] == '-';
			assert_int_equal(uuid_parse(&u, text), dash_here ? c == '-' : digit);
		}
	}
}

/* Under ASan this also shows that nothing is read beyond the NUL. */
static void test_wrong_lengths(void **state)
{
	struct uuid u = {{7}};

	(void)state;
	for (size_t n = 0; n < sizeof(good) - 1; n++) {
		char text[sizeof(good)] = {0};
		memcpy(text, good, n);
		assert_false(uuid_parse(&u, text));
	}
	assert_false(uuid_parse(&u, "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f00"));
	assert_false(uuid_parse(&u, "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0/../x"));
	assert_int_equal(u.bytes[0], 7); /* untouched by failures */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_text_and_back),
	    cmocka_unit_test(test_equal),
	    cmocka_unit_test(test_every_single_change),
	    cmocka_unit_test(test_wrong_lengths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
