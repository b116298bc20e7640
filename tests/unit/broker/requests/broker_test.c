/* broker_test.c - one worker's turns: it leaves, it reads nothing, nothing is to be done.
 * LINK: tests/unit/broker/rig.c */
#include "common/err.h"
#include "tests/unit/broker/rig.h"
#include <sys/epoll.h>

static void test_a_closed_worker_has_left(void **state)
{
	struct rig *r = *state;
	enum broker_turned s = BROKER_SERVING;

	shutdown(r->fd, SHUT_RDWR);
	for (int i = 0; i < 4 && s == BROKER_SERVING; i++)
		s = broker_turn(r->b, 0);
	assert_int_equal(s, BROKER_WORKER_LEFT);
}

/* A worker that never reads: the requests stay in the socket, no answer is lost or dropped. */
static void test_answers_are_never_lost(void **state)
{
	struct rig *r = *state;
	struct link_request q = {.op = LINK_POD_ADD, .uid = rig_pod};
	struct link_packet p;
	uint32_t sent = 0;
	int fd;

	for (;; sent++) {
		q.id = sent + 1;
		if (send(r->fd, &q, sizeof(q), MSG_DONTWAIT) < 0) {
			enum broker_turned s = BROKER_SERVING;
			for (int i = 0; i < RIG_TURNS; i++)
				s = broker_turn(r->b, 0);
			assert_int_equal(s, BROKER_SERVING);
			if (send(r->fd, &q, sizeof(q), MSG_DONTWAIT) < 0)
				break; /* both directions are full */
		}
	}
	assert_true(sent > 100);
	for (uint32_t id = 1; id <= sent; id++) {
		assert_true(rig_next(r, &p, &fd));
		assert_int_equal(p.id, id);
		assert_int_equal(p.code, 0);
	}
	rig_quiet(r);
}

/* With both directions full the broker must sleep, not spin. */
static void test_a_full_worker_costs_no_turns(void **state)
{
	struct rig *r = *state;
	struct link_request q = {.id = 1, .op = LINK_UNFOLLOW};

	while (send(r->fd, &q, sizeof(q), MSG_DONTWAIT) >= 0)
		broker_turn(r->b, 0);
	for (int i = 0; i < RIG_TURNS; i++)
		broker_turn(r->b, 0);
	assert_true(rig_is_idle(r));
}

/* A packet more than fits would not be sent: nothing is taken from the socket meanwhile. */
static void test_a_small_socket_is_enough(void **state)
{
	struct rig *r = *state;
	enum broker_turned s = BROKER_SERVING;

	rig_stop(r);
	r->b = rig_broker(r, &(struct err){0});
	r->sndbuf = 8192;
	rig_attach(r);
	for (int i = 0; i < 40; i++)
		rig_request(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_pod});
	for (int i = 0; i < RIG_TURNS; i++)
		s = broker_turn(r->b, 0);
	assert_int_equal(s, BROKER_SERVING);
	rig_expect(r, LINK_HELLO, NULL);
	int admin;
	rig_expect(r, LINK_NODE_LISTENER, &admin);
	close(admin);
	for (uint32_t id = 1; id <= 40; id++)
		assert_int_equal(rig_expect(r, LINK_REPLY, NULL).id, id);
}

static void test_idle_means_no_event(void **state)
{
	struct rig *r = *state;

	rig_add(r);
	int l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	int c = rig_connect(rig_mount(r, "socket")); /* a connection is no event of the broker's */
	assert_true(c >= 0);
	rig_quiet(r);
	assert_true(rig_is_idle(r));
	close(c);
	close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_a_closed_worker_has_left),
	    T(test_answers_are_never_lost),
	    T(test_a_full_worker_costs_no_turns),
	    T(test_a_small_socket_is_enough),
	    T(test_idle_means_no_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
