/* ledger_test.c - what may come, what waits, and whose turn it is. */
#include "rpc/ledger.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MIB = 1 << 20, N = 5 };

static struct rpc_ledger l;
static struct rpc_ledger_entry e[N];

static int setup(void **state)
{
	(void)state;
	l = (struct rpc_ledger){.bound = 8 * MIB};
	for (unsigned i = 0; i < N; i++)
		e[i] = (struct rpc_ledger_entry){0};
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < N; i++)
		rpc_ledger_leave(&l, &e[i]);
	assert_int_equal(l.held, 0);
	assert_int_equal(l.waiting, 0);
	assert_int_equal(l.nwaiting, 0);
	assert_null(l.first);
	return 0;
}

static void what_fits_comes_and_the_rest_waits(void **state)
{
	(void)state;
	assert_true(rpc_ledger_ask(&l, &e[0], 3 * MIB));
	assert_true(rpc_ledger_ask(&l, &e[1], 3 * MIB));
	assert_false(rpc_ledger_ask(&l, &e[2], 3 * MIB));
	assert_int_equal(l.held, 6 * MIB);
	assert_int_equal(l.waiting, 3 * MIB);
	assert_null(rpc_ledger_next(&l));
	rpc_ledger_leave(&l, &e[0]);
	assert_ptr_equal(rpc_ledger_next(&l), &e[2]);
	assert_int_equal(l.held, 6 * MIB);
	assert_int_equal(l.waiting, 0);
	assert_null(rpc_ledger_next(&l));
}

/* Asked again, it says the same, and counts once. */
static void asking_twice_is_asking_once(void **state)
{
	(void)state;
	assert_true(rpc_ledger_ask(&l, &e[0], 5 * MIB));
	assert_true(rpc_ledger_ask(&l, &e[0], 5 * MIB));
	assert_false(rpc_ledger_ask(&l, &e[1], 5 * MIB));
	assert_false(rpc_ledger_ask(&l, &e[1], 5 * MIB));
	assert_int_equal(l.held, 5 * MIB);
	assert_int_equal(l.nwaiting, 1);
}

/* One that would fit does not pass one that does not: else the large one might wait for ever. */
static void nobody_overtakes_but_the_small(void **state)
{
	(void)state;
	assert_true(rpc_ledger_ask(&l, &e[0], 5 * MIB));
	assert_false(rpc_ledger_ask(&l, &e[1], 6 * MIB));
	assert_false(rpc_ledger_ask(&l, &e[2], MIB));
	assert_true(rpc_ledger_ask(&l, &e[3], RPC_LEDGER_SMALL));
	rpc_ledger_leave(&l, &e[3]);
	rpc_ledger_leave(&l, &e[0]);
	assert_ptr_equal(rpc_ledger_next(&l), &e[1]);
	assert_ptr_equal(rpc_ledger_next(&l), &e[2]);
	assert_null(rpc_ledger_next(&l));
}

static void the_small_come_when_there_is_no_room(void **state)
{
	(void)state;
	rpc_ledger_charge(&l, 100 * MIB);
	assert_true(rpc_ledger_ask(&l, &e[0], RPC_LEDGER_SMALL));
	assert_false(rpc_ledger_ask(&l, &e[1], RPC_LEDGER_SMALL + 1));
	rpc_ledger_charge(&l, -100 * MIB);
	assert_ptr_equal(rpc_ledger_next(&l), &e[1]);
}

/* What waits for pods takes the room of what comes. */
static void what_waits_for_pods_counts(void **state)
{
	(void)state;
	rpc_ledger_charge(&l, 7 * MIB);
	assert_false(rpc_ledger_ask(&l, &e[0], 2 * MIB));
	rpc_ledger_charge(&l, -MIB);
	assert_ptr_equal(rpc_ledger_next(&l), &e[0]);
	rpc_ledger_charge(&l, -6 * MIB);
}

/* A message larger than all is not refused; little is held beside it. */
static void a_message_larger_than_the_bound_comes_nearly_alone(void **state)
{
	(void)state;
	rpc_ledger_charge(&l, MIB + 1);
	assert_false(rpc_ledger_ask(&l, &e[0], 20 * MIB));
	rpc_ledger_charge(&l, -1);
	assert_ptr_equal(rpc_ledger_next(&l), &e[0]);
	assert_false(rpc_ledger_ask(&l, &e[1], MIB));
	rpc_ledger_leave(&l, &e[0]);
	assert_ptr_equal(rpc_ledger_next(&l), &e[1]);
	rpc_ledger_charge(&l, -MIB);
}

static void who_waits_may_leave(void **state)
{
	(void)state;
	assert_true(rpc_ledger_ask(&l, &e[0], 8 * MIB - MIB));
	for (unsigned i = 1; i < 4; i++)
		assert_false(rpc_ledger_ask(&l, &e[i], 2 * MIB));
	rpc_ledger_leave(&l, &e[2]);
	assert_int_equal(l.nwaiting, 2);
	rpc_ledger_leave(&l, &e[0]);
	assert_ptr_equal(rpc_ledger_next(&l), &e[1]);
	assert_ptr_equal(rpc_ledger_next(&l), &e[3]);
}

static void without_a_bound_all_come(void **state)
{
	(void)state;
	l.bound = 0;
	for (unsigned i = 0; i < N; i++)
		assert_true(rpc_ledger_ask(&l, &e[i], 1000 * (int64_t)MIB));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    T(what_fits_comes_and_the_rest_waits),
	    T(asking_twice_is_asking_once),
	    T(nobody_overtakes_but_the_small),
	    T(the_small_come_when_there_is_no_room),
	    T(what_waits_for_pods_counts),
	    T(a_message_larger_than_the_bound_comes_nearly_alone),
	    T(who_waits_may_leave),
	    T(without_a_bound_all_come),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
