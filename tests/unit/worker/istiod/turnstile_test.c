/* turnstile_test.c - in which order, and how many in which time, pods open streams.
 *
 * LINK: tests/fake/loop.c
 */
#include "tests/fake/loop.h"
#include "worker/istiod/turnstile.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { PODS = 250, TURNS = 40, RATE = 20, BURST = 5 };

static struct {
	struct loop *loop;
	struct turnstile *t;
	struct turn turns[PODS + TURNS];
	bool waits[PODS + TURNS];
	unsigned order[PODS + TURNS], granted, asked, hasty;
	bool away;                  /* nobody is ready */
	const struct uuid *unready; /* nor is this one */
} w;

static struct uuid pod(unsigned i)
{
	struct uuid u;

	memset(&u, 0, sizeof(u));
	snprintf((char *)u.bytes, sizeof(u.bytes), "%u", i);
	return u;
}

static bool on_ready(void *ctx, const struct uuid *p)
{
	(void)ctx;
	return !w.away && !(w.unready && uuid_equal(w.unready, p));
}

static void on_granted(void *ctx, struct turn *t)
{
	unsigned i = (unsigned)(t - w.turns);

	(void)ctx;
	assert_true(w.waits[i]);
	assert_null(t->pod);
	w.waits[i] = false;
	w.order[w.granted++] = i;
}

static void on_hasty(void *ctx, const struct uuid *p)
{
	(void)ctx, (void)p;
	w.hasty++;
}

static int setup(void **state)
{
	static const struct turnstile_options options = {RATE, BURST, 1, 3};
	static const struct turnstile_events events = {on_ready, on_granted, on_hasty};

	(void)state;
	memset(&w, 0, sizeof(w));
	w.loop = fake_loop();
	w.t = turnstile_new(w.loop, &options, &events, NULL);
	return 0;
}

static void leave(unsigned i)
{
	if (w.waits[i])
		turnstile_leave(w.t, &w.turns[i]);
	w.waits[i] = false;
}

static int teardown(void **state)
{
	(void)state;
	for (unsigned i = 0; i < PODS + TURNS; i++)
		leave(i);
	turnstile_free(&w.t);
	turnstile_free(&w.t);
	assert_int_equal(fake_loop_live(w.loop), 0);
	fake_loop_end(&w.loop);
	return 0;
}

static unsigned ask(unsigned p, enum turn_kind kind)
{
	unsigned before = w.granted, i = w.asked++;
	struct uuid u = pod(p);

	w.waits[i] = true;
	turnstile_ask(w.t, &w.turns[i], &u, kind);
	assert_int_equal(w.granted, before); /* never inside the call */
	return i;
}

static void later(int64_t ms)
{
	fake_loop_advance(w.loop, ms);
}

static void a_burst_then_the_rate_and_never_more(void **state)
{
	(void)state;
	for (unsigned i = 0; i < PODS; i++)
		ask(i, TURN_STREAM);
	assert_int_equal(turnstile_waiting(w.t), PODS);
	later(0);
	assert_int_equal(w.granted, BURST);
	for (unsigned s = 1; s <= 10; s++) {
		later(1000);
		assert_in_range(w.granted, BURST + s * RATE * 10 / 12 - 1, BURST + s * RATE);
	}
	later(5000);
	assert_int_equal(w.granted, PODS); /* everyone, in the time that the bucket needs */
	for (unsigned i = 0; i < PODS; i++)
		assert_int_equal(w.order[i], i);
	later(3000);
	assert_int_equal(fake_loop_live(w.loop), 0); /* full buckets cost nothing */
}

/* Nodes that lost the same istiod at the same moment drift apart. */
static void the_pace_has_jitter(void **state)
{
	unsigned seen[2] = {0};

	(void)state;
	for (unsigned i = 0; i < PODS; i++)
		ask(i, TURN_STREAM);
	later(0);
	for (unsigned n = 0; n < 100; n++) { /* a token comes after 50..60 ms */
		unsigned before = w.granted, ms = 0;

		for (; w.granted == before; ms++)
			later(1);
		assert_in_range(ms, 50, 60);
		seen[ms > 55]++;
	}
	assert_true(seen[0] && seen[1]);
}

static void a_step_of_the_clock_changes_nothing(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 20; i++)
		ask(i, TURN_STREAM);
	later(0);
	fake_loop_wall_step(w.loop, 3600 * 1000);
	assert_int_equal(w.granted, BURST);
	fake_loop_wall_step(w.loop, -7200 * 1000);
	later(1000);
	assert_in_range(w.granted, BURST + 10, 20);
}

static void pods_are_served_round_robin(void **state)
{
	static const unsigned expected[] = {0, 3, 4, 1, 2};

	(void)state;
	w.away = true;
	for (unsigned i = 0; i < 3; i++)
		ask(0, TURN_STREAM);
	ask(1, TURN_STREAM);
	ask(2, TURN_STREAM);
	w.away = false;
	turnstile_kick(w.t);
	later(0);
	assert_int_equal(w.granted, 5);
	assert_memory_equal(w.order, expected, sizeof(expected));
}

static void one_pod_has_one_a_second_after_three(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 10; i++)
		ask(7, TURN_STREAM);
	later(0);
	assert_int_equal(w.granted, 3);
	later(999);
	assert_int_equal(w.granted, 3);
	later(1);
	assert_int_equal(w.granted, 4);
	later(3000);
	assert_int_equal(w.granted, 7);
	ask(8, TURN_STREAM); /* another pod has no harm of it */
	later(0);
	assert_int_equal(w.order[7], 10);
}

static void certificates_come_before_streams(void **state)
{
	static const unsigned expected[] = {2, 3, 0, 1};

	(void)state;
	ask(0, TURN_STREAM);
	ask(1, TURN_STREAM);
	ask(1, TURN_CSR);
	ask(2, TURN_CSR);
	later(0);
	assert_memory_equal(w.order, expected, sizeof(expected));
}

static void who_is_not_ready_is_passed_over(void **state)
{
	const struct uuid first = pod(0);

	(void)state;
	w.unready = &first;
	ask(0, TURN_STREAM);
	ask(1, TURN_STREAM);
	later(3600 * 1000);
	assert_int_equal(w.granted, 1);
	assert_int_equal(w.order[0], 1);
	assert_int_equal(turnstile_waiting(w.t), 1);
	assert_int_equal(fake_loop_live(w.loop), 0); /* it is not polled */
	w.unready = NULL;
	turnstile_kick(w.t);
	later(0);
	assert_int_equal(w.granted, 2);
}

static void after_an_outage_no_more_than_the_burst_at_once(void **state)
{
	(void)state;
	w.away = true;
	for (unsigned i = 0; i < 50; i++)
		ask(i, TURN_STREAM);
	later(20 * 1000);
	assert_int_equal(w.granted, 0);
	w.away = false;
	turnstile_kick(w.t);
	later(0);
	assert_int_equal(w.granted, BURST);
	later(45 * 60);
	assert_int_equal(w.granted, 50);
}

static void who_left_is_not_served(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 4; i++)
		ask(i, TURN_STREAM);
	leave(0);
	leave(2);
	later(0);
	assert_int_equal(w.granted, 2);
	assert_int_equal(w.order[0], 1);
	assert_int_equal(w.order[1], 3);
}

static void who_is_told_to_wait_too_often_is_reported_once(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 13; i++) {
		ask(1, TURN_STREAM);
		later(0);
	}
	assert_int_equal(w.hasty, 1);
	for (unsigned i = 0; i < 5; i++) /* an honest pod: two streams, its CSR, again */
		ask(2, i < 2 ? TURN_CSR : TURN_STREAM);
	later(20 * 1000);
	assert_int_equal(w.hasty, 1);
	assert_int_equal(w.granted, 18);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(a_burst_then_the_rate_and_never_more),
	    TEST(the_pace_has_jitter),
	    TEST(a_step_of_the_clock_changes_nothing),
	    TEST(pods_are_served_round_robin),
	    TEST(one_pod_has_one_a_second_after_three),
	    TEST(certificates_come_before_streams),
	    TEST(who_is_not_ready_is_passed_over),
	    TEST(after_an_outage_no_more_than_the_burst_at_once),
	    TEST(who_left_is_not_served),
	    TEST(who_is_told_to_wait_too_often_is_reported_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
