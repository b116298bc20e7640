/* cert_cache_clock_test.c - suspends, and clocks that are wrong, set or put right: nobody gets an
 * expired certificate, all get a new one, and istiod is never asked in a loop
 * (threats-and-faults.md T36, R8).
 *
 * LINK: tests/fake/loop.c tests/fake/rpc.c tests/fake/istiod.c tests/fake/ca_client.c
 * LINK: tests/fake/x509.c tests/fake/secrets.c tests/unit/worker/certs/cert_world.c
 */
#include "cert_world.h"
#include <stdio.h>
#include <string.h>

enum { DAY_MS = 24 * HOUR };

/* The wall clock counts, not the time that the loop was awake (threats-and-faults.md R8). */
static void renews_at_once_after_a_suspend(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join_and_get(a);
	later(HOUR);
	fake_loop_wall_step(w.loop, 12 * HOUR);
	assert_int_equal(pending(), 1);
}

/* Renewed at its age, though the date says that there is time: the peers' clocks are right. */
static void a_clock_set_back_delays_nothing(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join_and_get(a);
	set_clock(-HOUR);
	assert_non_null(a->has);
	later(12 * HOUR - SECOND);
	assert_int_equal(asked(), 1);
	later(2 * SECOND);
	assert_int_equal(asked(), 2);
	later(12 * HOUR);
	assert_null(a->has); /* nor does it live longer */
	assert_string_equal(a->why, "the certificate has expired");
}

/* istiod-live.md 1.10: ours is 25 h ahead, so each certificate is expired on arrival. */
static void a_clock_that_is_ahead_makes_no_loop(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join(a);
	later(0);
	for (int s = 0; s < 3600; s++) {
		if (pending())
			answer_with((struct answer){.ttl_s = -3600});
		later(SECOND);
	}
	assert_in_range(asked(), 12, 13); /* every 5 minutes */
	assert_null(a->has);
	assert_string_equal(a->why, "answer of istiod: expired");
}

/* It is due long before the floor, but valid. */
static void two_issued_certificates_are_never_close(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join(a);
	later(0);
	answer_with((struct answer){.ttl_s = 3600});
	later(10 * SECOND);
	fake_loop_wall_step(w.loop, 59 * MINUTE);
	fake_loop_wall_step(w.loop, -96LL * HOUR);
	cert_token_changed(a->sub);
	later(FLOOR_MS - 11 * SECOND);
	assert_int_equal(asked(), 1);
	fake_loop_wall_step(w.loop, 96LL * HOUR);
	later(2 * SECOND);
	assert_int_equal(asked(), 2);
}

/* Issued a minute before the lid is closed; it shall be renewed within 30 s of waking
 * (threats-and-faults.md R8). */
static void a_suspend_ends_the_floor(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join_and_get(a);
	later(MINUTE);
	sleep_for(2LL * DAY_MS);
	assert_null(a->has);
	assert_string_equal(a->why, "the certificate has expired");
	assert_int_equal(pending(), 1);
	answer();
	assert_string_equal(a->serial, "2");
	later(MINUTE);
	sleep_for(2LL * DAY_MS); /* once; the floor counts what istiod gave */
	assert_int_equal(pending(), 0);
	later(FLOOR_MS - 2 * MINUTE);
	assert_int_equal(pending(), 0);
	later(MINUTE + SECOND);
	assert_int_equal(pending(), 1);
	answer();
	later(FLOOR_MS + MINUTE);
	sleep_for(2LL * DAY_MS);
	answer();
	later(MINUTE);
	sleep_for(2LL * DAY_MS); /* a whole one has passed since: again */
	assert_int_equal(pending(), 1);
}

/* The clock of a node that has just booted is an hour behind until NTP puts it right. */
static void a_clock_put_right_ends_the_floor(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	w.ahead_s = -3600;
	join(a);
	later(0);
	answer();
	assert_string_equal(a->why, "answer of istiod: not valid yet");
	later(10 * SECOND);
	assert_int_equal(pending(), 0);
	set_clock(HOUR);
	assert_int_equal(pending(), 1);
	answer();
	assert_non_null(a->has);
}

static void a_clock_that_flaps_makes_no_loop(void **state)
{
	struct pod *a = pod_of("a", "web");

	(void)state;
	join_and_get(a);
	for (int s = 0; s < 3600; s++) {
		set_clock(s % 2 ? -2LL * DAY_MS : 2LL * DAY_MS);
		if (pending())
			answer();
		later(SECOND);
	}
	assert_in_range(asked(), 12, 26); /* at most two in five minutes */
}

enum { ACCOUNTS = 40 };

/* Lets `ms` pass; the CA answers all the time.  Returns the most CSRs within one second. */
static unsigned answer_for(int64_t ms)
{
	unsigned most = 0, before;

	for (; ms > 0; ms -= SECOND) {
		before = asked();
		while (pending())
			answer();
		later(SECOND);
		most = asked() - before > most ? asked() - before : most;
	}
	while (pending())
		answer();
	return most;
}

static void join_all(struct pod *p[ACCOUNTS])
{
	char name[16];

	for (unsigned i = 0; i < ACCOUNTS; i++) {
		snprintf(name, sizeof(name), "sa-%u", i);
		p[i] = pod_of(name, name);
		p[i]->spec.jitter = 0.1;
		join(p[i]);
	}
	later(0);
	answer_for(MINUTE);
	assert_int_equal(asked(), ACCOUNTS);
}

static void assert_all_have(struct pod *p[ACCOUNTS])
{
	for (unsigned i = 0; i < ACCOUNTS; i++) {
		assert_non_null(p[i]->has);
		assert_true(p[i]->has->leaf.not_after > loop_now_ms(w.loop) / 1000);
	}
}

static void all_are_renewed_after_a_suspend(void **state)
{
	struct pod *p[ACCOUNTS];

	(void)state;
	join_all(p);
	sleep_for(2LL * DAY_MS);
	for (unsigned i = 0; i < ACCOUNTS; i++)
		assert_null(p[i]->has);
	answer_for(30 * SECOND);
	assert_all_have(p);
	assert_int_equal(asked(), 2 * ACCOUNTS);
	answer_for(HOUR);
	assert_int_equal(asked(), 2 * ACCOUNTS);
}

/* A day with a wrong clock, then it is put right: cert_world shows that nothing expired is given.
 */
static void all_are_renewed_after_a_clock_step(void **state)
{
	const int64_t steps[] = {HOUR, -HOUR, DAY_MS, -DAY_MS};

	(void)state;
	for (unsigned i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
		struct pod *p[ACCOUNTS];
		unsigned before;

		join_all(p);
		answer_for(HOUR);
		set_clock(steps[i]);
		answer_for(26 * HOUR);
		/* Right after boot, then every floor. */
		assert_in_range(asked(), 2 * ACCOUNTS, ACCOUNTS * (2 + 26 * 12 + 2));
		before = asked();
		set_clock(-steps[i]);
		answer_for(FLOOR_MS + MINUTE);
		assert_all_have(p);
		assert_true(asked() - before <= 2 * ACCOUNTS);
		world_restart(&w.options, "td");
	}
}

static void an_expired_certificate_is_nobodys(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	join_and_get(a);
	later(12 * HOUR);
	for (int m = 0; m < 13 * 60; m++) {
		if (pending())
			refuse("istiod is away");
		later(MINUTE);
	}
	assert_null(a->has); /* told again though the reason is the same */
	assert_string_equal(a->why, "istiod is away");
	assert_int_equal(a->told, 4);
	join(b);
	later(0);
	assert_null(b->has);
	assert_string_equal(b->why, "istiod is away");
	if (!pending())
		later(67 * SECOND);
	answer();
	assert_string_equal(a->serial, "2");
	assert_string_equal(b->serial, "2");
}

static void after_a_long_suspend_the_reason_is_expiry(void **state)
{
	struct pod *a = pod_of("a", "web"), *b = pod_of("b", "web");

	(void)state;
	join_and_get(a);
	later(HOUR);
	fake_loop_wall_step(w.loop, 30 * HOUR);
	join(b);
	later(0);
	assert_null(b->has);
	assert_string_equal(b->why, "the certificate has expired");
	answer();
	assert_string_equal(b->serial, "2");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    WORLD_TEST(renews_at_once_after_a_suspend),
	    WORLD_TEST(a_clock_set_back_delays_nothing),
	    WORLD_TEST(a_clock_that_is_ahead_makes_no_loop),
	    WORLD_TEST(two_issued_certificates_are_never_close),
	    WORLD_TEST(a_suspend_ends_the_floor),
	    WORLD_TEST(a_clock_put_right_ends_the_floor),
	    WORLD_TEST(a_clock_that_flaps_makes_no_loop),
	    WORLD_TEST(all_are_renewed_after_a_suspend),
	    WORLD_TEST(all_are_renewed_after_a_clock_step),
	    WORLD_TEST(an_expired_certificate_is_nobodys),
	    WORLD_TEST(after_a_long_suspend_the_reason_is_expiry),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
