/* accounts_test.c - which of two accounts of one name is gone.  No neighbours, so nothing is faked.
 */
#include "worker/crypto/token.h"
#include "worker/pod/accounts.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct accounts *all;

static int setup(void **state)
{
	(void)state;
	all = accounts_new();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	accounts_free(&all);
	return 0;
}

static const struct token first = {.account_uid = "a", .issued = 10};
static const struct token second = {.account_uid = "b", .issued = 20};

/* In whatever order the tokens come. */
static void the_one_of_the_earlier_token(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct account *a = accounts_use(all, "demo", "web");

		accounts_note(a, i ? &first : &second);
		assert_false(accounts_is_gone(a, i ? &first : &second));
		accounts_note(a, i ? &second : &first);
		assert_true(accounts_is_gone(a, &first));
		assert_false(accounts_is_gone(a, &second));
		accounts_drop(&a);
	}
}

static void a_renewed_token_is_of_the_same_account(void **state)
{
	const struct token renewed = {.account_uid = "a", .issued = 30};
	const struct token nameless = {.issued = 40}, timeless = {.account_uid = "b"};
	struct account *a = accounts_use(all, "demo", "web");

	(void)state;
	assert_false(accounts_is_gone(a, &first)); /* nothing was seen */
	accounts_note(a, &first);
	accounts_note(a, &renewed);
	assert_false(accounts_is_gone(a, &first));
	accounts_note(a, &nameless);
	accounts_note(a, &timeless); /* which is the later one is not known */
	assert_false(accounts_is_gone(a, &first));
	assert_false(accounts_is_gone(a, &nameless));
	accounts_drop(&a);
}

/* The last pod takes what was known with it. */
static void accounts_go_with_their_pods(void **state)
{
	struct account *a = accounts_use(all, "demo", "web"), *b = accounts_use(all, "demo", "web");
	struct account *other = accounts_use(all, "demo", "db");

	(void)state;
	assert_ptr_equal(a, b);
	assert_ptr_not_equal(a, other);
	accounts_note(a, &second);
	accounts_drop(&a);
	assert_true(accounts_is_gone(b, &first));
	assert_false(accounts_is_gone(other, &first));
	accounts_drop(&b);
	b = accounts_use(all, "demo", "web");
	assert_false(accounts_is_gone(b, &first));
	accounts_drop(&b);
	accounts_drop(&other);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(the_one_of_the_earlier_token),
	    TEST(a_renewed_token_is_of_the_same_account),
	    TEST(accounts_go_with_their_pods),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
