/* node_test.c - the node's own listeners: every worker is greeted with one that works.
 * LINK: tests/unit/broker/rig.c */
#include "common/err.h"
#include "tests/unit/broker/rig.h"

/* Which the worker has from its greeting only. */
static void test_a_worker_that_shuts_admin_down_is_killed(void **state)
{
	struct rig *r = *state;
	enum broker_turned s = BROKER_SERVING;
	int admin;

	close(r->fd);
	rig_attach(r);
	rig_expect(r, LINK_HELLO, NULL);
	rig_expect(r, LINK_NODE_LISTENER, &admin);
	shutdown(admin, SHUT_RDWR);
	for (int i = 0; i < RIG_TURNS && s == BROKER_SERVING; i++)
		s = broker_turn(r->b, 0);
	assert_int_equal(s, BROKER_WORKER_BROKE);
	close(r->fd);
	rig_attach(r);
	rig_expect(r, LINK_HELLO, NULL);
	close(admin);
	rig_expect(r, LINK_NODE_LISTENER, &admin);
	assert_true(rig_reaches(rig_at(r, "run/admin.sock"), admin));
	close(admin);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_a_worker_that_shuts_admin_down_is_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
