/* err_test.c - messages of failures.  No neighbours, so nothing is faked. */
#include "common/err.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_set_fills_and_returns_minus_one(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(err_set(&e, ERR_DENIED, "no %s for %d", "token", 7), -1);
	assert_int_equal(e.code, ERR_DENIED);
	assert_string_equal(e.msg, "no token for 7");
}

static void test_sys_appends_errno(void **state)
{
	struct err e;

	(void)state;
	errno = ENOENT;
	assert_int_equal(err_sys(&e, "open %s", "config"), -1);
	assert_int_equal(e.code, ENOENT);
	assert_string_equal(e.msg, "open config: No such file or directory");
	errno = 99999; /* a number that libc has no words for */
	err_sys(&e, "strange");
	assert_string_equal(e.msg, "strange: error 99999");
}

static void test_wrap_keeps_the_code(void **state)
{
	struct err e;

	(void)state;
	err_set(&e, ERR_UNAVAILABLE, "istiod refused");
	assert_int_equal(err_wrap(&e, "certificate of %s", "ns/sa"), -1);
	assert_string_equal(e.msg, "certificate of ns/sa: istiod refused");
	assert_int_equal(e.code, ERR_UNAVAILABLE);
	/* Arguments may come from the message itself. */
	err_wrap(&e, "again (%s)", e.msg);
	assert_string_equal(e.msg,
	    "again (certificate of ns/sa: istiod refused): certificate of ns/sa: istiod refused");
}

static void test_too_long_is_cut(void **state)
{
	char big[2 * ERR_MSG_SIZE];
	struct err e;

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	err_set(&e, 1, "%s", big);
	assert_int_equal(strlen(e.msg), ERR_MSG_SIZE - 1);
	err_wrap(&e, "%s", big);
	assert_int_equal(strlen(e.msg), ERR_MSG_SIZE - 1);
	errno = EIO;
	err_sys(&e, "%s", big);
	assert_int_equal(strlen(e.msg), ERR_MSG_SIZE - 1);
}

/* The reason comes last, and stays through every wrapping. */
static void test_too_long_keeps_both_ends(void **state)
{
	char big[2 * ERR_MSG_SIZE], out[16];
	struct err e;

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	err_set(&e, 1, "begins %s the reason\n", big);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(strlen(e.msg), ERR_MSG_SIZE - 1);
		assert_non_null(strstr(e.msg, "begins x"));
		assert_string_equal(e.msg + ERR_MSG_SIZE - 1 - 12, " the reason?");
		assert_ptr_equal(strstr(e.msg, " ... "), strrchr(e.msg, '.') - 3);
		err_wrap(&e, "wrapped");
	}
	errno = EIO;
	err_sys(&e, "%s", big);
	assert_non_null(strstr(e.msg, "x: Input/output error"));
	assert_string_equal(
	    err_excerpt(out, sizeof(out), "0123456789abcdefghij", 20), "01 ... cdefghij");
	assert_string_equal(
	    err_excerpt(out, sizeof(out), "0123456789abcde", 15), "0123456789abcde");
	assert_string_equal(err_excerpt(out, 8, "0123456789", 10), "0123456");
}

/* Whatever got in, a message is one line. */
static void test_controls_do_not_survive(void **state)
{
	struct err e;

	(void)state;
	err_set(&e, 1, "a%sb", "\r\n\x1b[2J\x7f");
	assert_string_equal(e.msg, "a???[2J?b");
	err_wrap(&e, "x\ny");
	assert_string_equal(e.msg, "x?y: a???[2J?b");
}

static void test_printable(void **state)
{
	char out[8];

	(void)state;
	assert_string_equal(err_printable(out, sizeof(out), "a\0\xff\nb", 5), "a???b");
	assert_string_equal(err_printable(out, sizeof(out), "0123456789", 10), "0123456");
	assert_string_equal(err_printable(out, sizeof(out), "", 0), "");
	out[0] = 'k';
	err_printable(out, 0, "zz", 2);
	assert_int_equal(out[0], 'k');
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_set_fills_and_returns_minus_one),
	    cmocka_unit_test(test_sys_appends_errno),
	    cmocka_unit_test(test_wrap_keeps_the_code),
	    cmocka_unit_test(test_too_long_is_cut),
	    cmocka_unit_test(test_too_long_keeps_both_ends),
	    cmocka_unit_test(test_controls_do_not_survive),
	    cmocka_unit_test(test_printable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
