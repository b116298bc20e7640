/* heartbeat_test.c - a broker that answers, one that does not, and a worker that stood still.
 *
 * LINK: tests/fake/loop.c tests/unit/broker/rig.c tests/unit/worker/link/world.c
 */
#include "worker/link/heartbeat.h"
#include "world.h"

static void answer(struct world *w, uint32_t dropped)
{
	const struct link_request q = heard(w, LINK_BEAT, NULL);

	struct link_packet p = {.what = LINK_REPLY, .id = q.id, .arg = dropped};
	snprintf(p.why, sizeof(p.why), "%s", dropped == 5 ? "five" : "");
	say(w, p, -1);
	turn(w);
}

static void test_a_broker_that_answers(void **state)
{
	struct world *w = *state;
	struct heartbeat *h = heartbeat_new(w->l, w->p);

	for (uint32_t i = 0; i < 20; i++) {
		assert_null(heartbeat_why_not(h));
		answer(w, i);
		assert_int_equal(heartbeat_dropped(h), i);
		assert_string_equal(
		    heartbeat_problem(h) ? heartbeat_problem(h) : "", i == 5 ? "five" : "");
		fake_loop_advance(w->l, 2000);
	}
	assert_int_equal(heartbeat_silent_s(h), 0);
	heartbeat_free(&h);
}

/* One request is under way, however long that takes. */
static void test_a_silent_broker_is_told_of(void **state)
{
	struct world *w = *state;
	struct heartbeat *h = heartbeat_new(w->l, w->p);
	struct broker_request more;
	struct err e;

	fake_loop_advance(w->l, 5999);
	assert_null(heartbeat_why_not(h));
	fake_loop_advance(w->l, 1);
	assert_string_equal(heartbeat_why_not(h), "the broker has not answered for 6 s");
	fake_loop_advance(w->l, 60 * 1000);
	assert_string_equal(heartbeat_why_not(h), "the broker has not answered for 66 s");
	assert_int_equal(heartbeat_silent_s(h), 66);
	answer(w, 7);
	assert_null(heartbeat_why_not(h));
	assert_int_equal(heartbeat_silent_s(h), 0);
	assert_int_equal(heartbeat_dropped(h), 7);
	assert_int_equal(broker_io_receive(w->peer, &more, &e), BROKER_GOT_NOTHING);
	fake_loop_advance(w->l, 2000);
	answer(w, 7);
	heartbeat_free(&h);
}

static void test_it_ends_while_it_waits(void **state)
{
	struct world *w = *state;
	struct heartbeat *h = heartbeat_new(w->l, w->p);

	fake_loop_advance(w->l, 3000);
	heartbeat_free(&h);
	answer(w, 1); /* nobody hears it */
	heartbeat_free(&h);
}

static void test_the_real_broker_answers(void **state)
{
	struct rig *r = *state;
	struct link_packet p = {.id = 0};

	rig_send(r, &(struct link_request){.id = 5, .op = LINK_BEAT}, sizeof(struct link_request),
	    NULL, 0);
	int fd;
	while (p.what != LINK_REPLY) {
		assert_true(rig_next(r, &p, &fd));
		mem_closep(&fd);
	}
	assert_int_equal(p.id, 5);
	assert_int_equal(p.code, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_a_broker_that_answers, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_a_silent_broker_is_told_of, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_it_ends_while_it_waits, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_the_real_broker_answers, rig_setup, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
