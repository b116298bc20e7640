/* regex_test.c - what is taken is what RE2 takes; tests/e2e gives all of it to Envoy. */
#include "common/mem.h"
#include "mesh/regex.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* tests/e2e/test_bootstrap.py reads this list. */
static const char *const good[] = {
    "vhost\\..*\\.route\\..*",
    "a|b|",
    "",
    "()",
    "^http\\.10\\.0\\.0\\.1_[0-9]{2,5}\\.rq_(?:2|5)xx$",
    "x*?y+?z??",
    "[]a]",
    "[^]a]",
    "[a-]",
    "[-a]",
    "[+--]",
    "[[:digit:][:alpha:]_]+",
    "[\\d\\]\\-x]",
    "\\bword\\B\\W\\S\\D",
    "a{0}b{3}c{3,}",
    "\\}*\\{\\*",
    "((((((((((((((((a))))))))))))))))",
    ".{1000}",
    "a\"b'c",
};

static const char *const bad[] = {
    "(",
    ")",
    "a)",
    "(a",
    "(?i)a",
    "(?P<n>a)",
    "*",
    "a**",
    "a+*",
    "a{2}{3}",
    "a??"
    "?",
    "|*",
    "(*)",
    "[",
    "[]",
    "[^]",
    "[z-a]",
    "[\\d-z]",
    "[a",
    "[[:digits:]]",
    "[[.a.]]",
    "\\",
    "[\\",
    "[a-\\",
    "\\_",
    "\\1",
    "\\Q",
    "\\pN",
    "\\x41",
    "a{",
    "a{1",
    "a{,2}",
    "a{3,2}",
    "a{1001}",
    "a{99999999999999999999}",
    "(a{2}){2}",
    "]",
    "}",
    "a\x01",
    "[\xc3\xa9]",
    "[a-\x7f]",
    "\xc3\xa9",
    ".{1000}.{1000}",
    "(((((((((((((((((a)))))))))))))))))",
};

static void test_good(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(good) / sizeof(*good); i++)
		if (!regex_is_safe(good[i]))
			fail_msg("%s was refused", good[i]);
}

static void test_bad(void **state)
{
	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		if (regex_is_safe(bad[i]))
			fail_msg("%s was taken", bad[i]);
}

/* However deep: no stack of ours is the limit. */
static void test_deep(void **state)
{
	char text[4096];

	(void)state;
	memset(text, '(', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	assert_false(regex_is_safe(text));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_good),
	    cmocka_unit_test(test_bad),
	    cmocka_unit_test(test_deep),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
