/* roots_test.c - one text for one set of roots.
 */
#include "common/mem.h"
#include "worker/crypto/roots.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define PEM(x) "-----BEGIN CERTIFICATE-----\n" x "\n-----END CERTIFICATE-----\n"

static void same(const char *a, const char *b, const char *expected)
{
	auto_free char *got = roots_union(a, b);

	assert_string_equal(got, expected);
}

static void sorted_and_each_once(void **state)
{
	(void)state;
	same(PEM("b"), NULL, PEM("b"));
	same(PEM("b") PEM("a"), NULL, PEM("a") PEM("b"));
	same(PEM("b"), PEM("a"), PEM("a") PEM("b"));
	same(PEM("a"), PEM("b"), PEM("a") PEM("b"));
	same(PEM("c") PEM("a") PEM("c"), PEM("b") PEM("a"), PEM("a") PEM("b") PEM("c"));
	same(PEM("a"), PEM("aa"), PEM("a") PEM("aa")); /* a beginning is not the same */
	same(PEM("a"), "", PEM("a"));
	same("", "", "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(sorted_and_each_once)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
