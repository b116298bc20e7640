/* share_test.c - what all pods may ask for together. */
#include "rpc/share.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { START_MS = 1000 };

static int teardown(void **state)
{
	(void)state;
	share_set(0);
	return 0;
}

static unsigned paid(struct share *s, unsigned tries, int64_t now_ms)
{
	unsigned n = 0;

	while (tries-- > 0)
		n += share_pay(s, SHARE_REQUEST, now_ms);
	return n;
}

static void test_a_share_comes_first(void **state)
{
	struct share greedy = {.left = 0}, other = {.left = 0};

	(void)state;
	share_set(100);
	assert_int_equal(paid(&greedy, 1000, START_MS), SHARE_BURST + 100);
	assert_int_equal(paid(&other, 1000, START_MS), SHARE_BURST); /* nothing is left beyond it */
}

static void test_both_fill_with_time(void **state)
{
	struct share s = {.left = 0};

	(void)state;
	share_set(100);
	paid(&s, 1000, START_MS);
	assert_int_equal(paid(&s, 1000, START_MS + 500), SHARE_PER_SECOND / 2 + 50);
	assert_int_equal(
	    paid(&s, 1000, START_MS + 3600 * 1000), SHARE_BURST + 100); /* and no more */
}

/* Two pay together for what neither could pay alone; what cannot be paid costs the share. */
static void test_one_cost_of_both(void **state)
{
	struct share s = {.left = 0}, other = {.left = 0};

	(void)state;
	share_set(100);
	assert_false(share_pay(&s, (SHARE_BURST + 101) * SHARE_REQUEST, START_MS));
	assert_true(share_pay(&s, 90 * SHARE_REQUEST, START_MS));
	assert_true(share_pay(&other, (SHARE_BURST + 10) * SHARE_REQUEST, START_MS));
	assert_false(share_pay(&other, 1, START_MS));
}

static void test_no_bound(void **state)
{
	struct share s = {.left = 0};

	(void)state;
	assert_int_equal(paid(&s, 100000, START_MS), 100000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(test_a_share_comes_first, teardown),
	    cmocka_unit_test_teardown(test_both_fill_with_time, teardown),
	    cmocka_unit_test_teardown(test_one_cost_of_both, teardown),
	    cmocka_unit_test_teardown(test_no_bound, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
