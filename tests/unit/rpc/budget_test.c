/* budget_test.c - what each may hold, what all may hold, and who goes at the edge. */
#include "rpc/budget.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { SHARE = 10, ALL = 100, N = 3 };

static struct rpc_budget_account a[N];

static int setup(void **state)
{
	(void)state;
	rpc_budget_set(SHARE, ALL);
	for (unsigned i = 0; i < N; i++) {
		a[i] = (struct rpc_budget_account){0};
		rpc_budget_join(&a[i]);
	}
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N; i++)
		rpc_budget_leave(&a[i]);
	assert_int_equal(rpc_budget_used(), 0);
	rpc_budget_set(0, 0);
	return 0;
}

static void shares_count_for_nobody(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N; i++)
		rpc_budget_charge(&a[i], SHARE);
	assert_int_equal(rpc_budget_used(), 0);
	rpc_budget_charge(&a[0], ALL);
	assert_int_equal(rpc_budget_used(), ALL);
	assert_null(rpc_budget_worst());
	rpc_budget_charge(&a[1], 1);
	assert_ptr_equal(rpc_budget_worst(), &a[0]);
}

/* What the one that was emptied gives back is of what drains, and only then of what it holds. */
static void what_drains_counts_no_more(void **state)
{
	(void)state;
	rpc_budget_charge(&a[0], SHARE + ALL + 1);
	rpc_budget_empty(&a[0]);
	assert_int_equal(rpc_budget_used(), 0);
	assert_null(rpc_budget_worst());
	rpc_budget_charge(&a[0], SHARE + 5);
	rpc_budget_charge(&a[0], -(SHARE + ALL));
	assert_int_equal(a[0].draining, 1);
	assert_int_equal(rpc_budget_used(), 5);
	rpc_budget_charge(&a[0], -3);
	assert_int_equal(a[0].draining, 0);
	assert_int_equal(rpc_budget_used(), 3);
	rpc_budget_charge(&a[0], -100); /* never below nothing */
	assert_int_equal(a[0].held, 0);
}

static void without_a_bound_nobody_goes(void **state)
{
	(void)state;
	rpc_budget_charge(&a[0], 1000 * ALL);
	rpc_budget_set(SHARE, 0);
	assert_null(rpc_budget_worst());
	rpc_budget_set(SHARE, ALL); /* what is held counts from now on */
	assert_ptr_equal(rpc_budget_worst(), &a[0]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(shares_count_for_nobody),
	    TEST(what_drains_counts_no_more),
	    TEST(without_a_bound_nobody_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
