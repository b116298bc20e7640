/* heartbeat_test.c - a broker that pings, one that does not, and a worker that stood still.
 *
 * LINK: tests/fake/loop.c tests/unit/broker/rig.c tests/unit/worker/link/world.c
 */
#include "common/log.h"
#include "worker/link/heartbeat.h"
#include "world.h"

static struct heartbeat *begin(struct world *w)
{
	return heartbeat_new(w->l, w->p);
}

static void ping(struct world *w, uint32_t number, uint32_t dropped)
{
	struct link_packet p = {
	    .what = LINK_PING, .arg = number, .state = dropped, .id = 3000 + dropped, .kind = 2};

	snprintf(p.why, sizeof(p.why), "%s", dropped == 5 ? "five" : "");
	say(w, p, -1);
	turn(w);
}

static void hears_nothing(struct world *w)
{
	struct broker_request more;
	struct err e;

	assert_int_equal(broker_io_receive(w->peer, &more, &e), BROKER_GOT_NOTHING);
}

static void test_a_broker_that_pings(void **state)
{
	struct world *w = *state;
	struct heartbeat *h = begin(w);

	for (uint32_t i = 0; i < 20; i++) {
		assert_null(heartbeat_why_not(h));
		ping(w, i + 70, i);
		assert_int_equal(heard(w, LINK_PONG, NULL).arg, i + 70);
		assert_int_equal(heartbeat_dropped(h), i);
		assert_int_equal(heartbeat_memory(h), (3000 + i) * 1024);
		assert_int_equal(heartbeat_restarts(h), 2);
		assert_string_equal(
		    heartbeat_problem(h) ? heartbeat_problem(h) : "", i == 5 ? "five" : "");
		fake_loop_advance(w->l, 7999);
	}
	assert_int_equal(heartbeat_silent_s(h), 0);
	heartbeat_free(&h);
}

/* Before its first ping, too. */
static void test_a_silent_broker_is_told_of(void **state)
{
	struct world *w = *state;
	struct heartbeat *h = begin(w);

	for (uint32_t i = 1; i < 3; i++) {
		fake_loop_advance(w->l, 8499);
		assert_null(heartbeat_why_not(h));
		fake_loop_advance(w->l, 1);
		assert_string_equal(heartbeat_why_not(h), "the broker has not answered for 8 s");
		fake_loop_advance(w->l, 60 * 1000);
		assert_string_equal(heartbeat_why_not(h), "the broker has not answered for 68 s");
		assert_int_equal(heartbeat_silent_s(h), 68);
		hears_nothing(w);
		ping(w, i, 7);
		assert_int_equal(heard(w, LINK_PONG, NULL).arg, i);
		assert_null(heartbeat_why_not(h));
		assert_int_equal(heartbeat_silent_s(h), 0);
		assert_int_equal(heartbeat_dropped(h), 7);
	}
	heartbeat_free(&h);
}

/* It was stopped: its timer comes first, and what the broker said meanwhile lies in the socket. */
static void test_who_stood_still_blames_nobody(void **state)
{
	struct world *w = *state;
	struct heartbeat *h = begin(w);

	fake_loop_advance(w->l, 8000);
	assert_null(heartbeat_why_not(h));
	ping(w, 1, 0);
	fake_loop_advance(w->l, 7999);
	assert_null(heartbeat_why_not(h));
	heartbeat_free(&h);
}

static void test_after_its_end_pings_are_answered(void **state)
{
	struct world *w = *state;
	struct heartbeat *h = begin(w);

	fake_loop_advance(w->l, 8100);
	heartbeat_free(&h);
	ping(w, 9, 0);
	assert_int_equal(heard(w, LINK_PONG, NULL).arg, 9);
	heartbeat_free(&h);
}

static void test_the_real_broker_pings(void **state)
{
	struct rig *r = *state;
	struct link_packet p = {.id = 0};
	int fd;

	broker_ping(r->b, 5);
	while (p.what != LINK_PING) {
		assert_true(rig_next(r, &p, &fd));
		mem_closep(&fd);
	}
	assert_int_equal(p.arg, 5);
	assert_int_equal(p.state, log_dropped());
	assert_string_equal(p.why, "");
}

/* A worker that is told much is not one that does not answer. */
static void test_a_ping_waits_for_room(void **state)
{
	struct rig *r = *state;
	const struct link_request q = {.id = 7, .op = LINK_STATE_DEL};
	struct link_packet p = {.id = 0};
	int fd;

	rig_stop(r);
	r->sndbuf = 1; /* the least there is */
	rig_start(r);
	for (int i = 0; i < 20; i++) {
		rig_send(r, &q, sizeof(q), NULL, 0);
		broker_turn(r->b, 0);
	}
	broker_ping(r->b, 8);
	broker_ping(r->b, 9);
	broker_turn(r->b, 0);
	for (int replies = 0, pings = 0; replies < 20 || !pings;) {
		assert_true(rig_next(r, &p, &fd));
		mem_closep(&fd);
		replies += p.what == LINK_REPLY;
		pings += p.what == LINK_PING;
	}
	assert_int_equal(p.what == LINK_PING ? p.arg : 9, 9);
	r->sndbuf = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_a_broker_that_pings, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_a_silent_broker_is_told_of, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_who_stood_still_blames_nobody, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_after_its_end_pings_are_answered, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_the_real_broker_pings, rig_setup, rig_teardown),
	    cmocka_unit_test_setup_teardown(test_a_ping_waits_for_room, rig_setup, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
