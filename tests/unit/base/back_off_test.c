/* back_off_test.c - how long is waited.
 *
 * LINK: tests/fake/loop.c
 */
#include "base/back_off.h"
#include "tests/fake/loop.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static unsigned overs;

static void on_over(void *ctx)
{
	(void)ctx;
	overs++;
}

static int64_t wait_of(struct loop *l, struct back_off *b)
{
	int64_t began = loop_now_ms(l);

	overs = 0;
	back_off_start(l, b, on_over, NULL);
	assert_true(back_off_waits(b));
	for (int64_t left = b->until_ms - began; left > 1; left--)
		fake_loop_advance(l, 1);
	assert_int_equal(overs, 0);
	fake_loop_advance(l, 1);
	assert_int_equal(overs, 1);
	assert_false(back_off_waits(b));
	return loop_now_ms(l) - began;
}

static void doubles_to_a_maximum_and_spreads(void **state)
{
	static const int64_t waits[] = {500, 1000, 2000, 4000, 8000, 8000, 8000, 8000, 8000};
	struct loop *l = fake_loop();
	int64_t least = 8000, most = 0;

	(void)state;
	for (int round = 0; round < 20; round++) {
		struct back_off b = {.failed = 0};

		for (unsigned i = 0; i < sizeof(waits) / sizeof(*waits); i++) {
			int64_t ms = wait_of(l, &b);

			assert_in_range(ms, waits[i] * 8 / 10, waits[i] * 12 / 10);
			least = ms < least && i > 3 ? ms : least;
			most = ms > most ? ms : most;
		}
		back_off_succeeded(&b);
		assert_in_range(wait_of(l, &b), 400, 600);
	}
	assert_in_range(least, 6400, 7800);
	assert_in_range(most, 8200, 9600);
	fake_loop_end(&l);
}

static void can_be_stopped(void **state)
{
	struct loop *l = fake_loop();
	struct back_off b = {.failed = 0};

	(void)state;
	back_off_stop(&b);
	overs = 0;
	back_off_start(l, &b, on_over, NULL);
	back_off_stop(&b);
	assert_false(back_off_waits(&b));
	fake_loop_advance(l, 60000);
	assert_int_equal(overs, 0);
	assert_in_range(wait_of(l, &b), 800, 1200); /* not forgotten */
	fake_loop_end(&l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(doubles_to_a_maximum_and_spreads),
	    cmocka_unit_test(can_be_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
