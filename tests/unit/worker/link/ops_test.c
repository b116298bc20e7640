/* ops_test.c - the table of operations (common/ops.h) held against both ends of the border.
 *
 * LINK: tests/fake/loop.c
 */
#include "worker/link/link_internal.h"
#include "world.h"

static void test_every_operation_has_its_row(void **state)
{
	(void)state;
	assert_null(ops_row(LINK_OP_NONE));
	assert_null(ops_row(LINK_OP_END));
	for (unsigned op = LINK_OP_NONE + 1; op < LINK_OP_END; op++) {
		assert_non_null(ops_row(op));
		assert_in_range(ops_row(op)->nfds, 0, 1);
	}
}

static void test_every_answer_is_taken(void **state)
{
	(void)state;
	for (unsigned op = LINK_OP_NONE + 1; op < LINK_OP_END; op++)
		if (!link_answers[op])
			fail_msg("nobody takes the answer of \"%s\"", ops_row(op)->refused);
}

/* One request with that many descriptors.  True: the broker answered it and did nothing else. */
static bool is_answered(struct rig *r, unsigned op, int nfds)
{
	const struct link_request q = {.id = ++r->id, .op = (uint16_t)op, .uid = rig_other};
	const int fds[] = {0, 0};
	struct link_packet p = {.id = 0};
	enum broker_state s = BROKER_SERVING;
	int fd = -1;

	rig_send(r, &q, sizeof(q), fds, nfds);
	for (int i = 0; i < RIG_TURNS && s == BROKER_SERVING && p.what != LINK_REPLY; i++) {
		s = broker_turn(r->b, 0);
		if (rig_receive(r, MSG_DONTWAIT, &p, &fd))
			mem_closep(&fd);
	}
	return s == BROKER_SERVING && p.what == LINK_REPLY && p.id == q.id;
}

/* Each as a worker of its own: what is not answered ends it. */
static void test_the_broker_wants_the_shape_of_the_row(void **state)
{
	struct rig *r = *state;

	for (unsigned op = LINK_OP_NONE; op <= LINK_OP_END; op++) {
		const struct link_op_row *row = ops_row(op);
		for (int nfds = 0; nfds <= 2; nfds++) {
			rig_stop(r);
			rig_start(r);
			if (is_answered(r, op, nfds) != (row && nfds == row->nfds))
				fail_msg("operation %u (\"%s\") with %d fds", op,
				    row ? row->refused : "none", nfds);
		}
	}
}

static void test_a_pod_is_wanted_where_the_row_says_so(void **state)
{
	struct rig *r = *state;
	int fd = rig_memfd("x", 1, RIG_SEALS);

	for (unsigned op = LINK_OP_NONE + 1; op < LINK_OP_END; op++)
		if (ops_row(op)->whose == LINK_ADDED_POD)
			rig_refused(r,
			    (struct rig_ask){
				.op = op, .pod = &rig_other, .fd = ops_row(op)->nfds ? fd : 0},
			    ENOENT, "not added");
	close(fd);
}

static void test_a_yes_or_no_may_be_asked_for_as_it_is(void **state)
{
	struct world *w = *state;

	link_ask(w->p, &w->slot, &(struct link_request){.op = LINK_UNPUBLISH, .uid = rig_pod}, -1,
	    on_done, w);
	struct link_request q = heard(w, LINK_UNPUBLISH, NULL);
	assert_true(uuid_equal(&q.uid, &rig_pod));
	say(w, (struct link_packet){.what = LINK_REPLY, .id = q.id, .code = EBUSY, .why = "busy"},
	    -1);
	turn(w);
	assert_int_equal(w->done, 1);
	assert_int_equal(w->e.code, EBUSY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_every_operation_has_its_row),
	    cmocka_unit_test(test_every_answer_is_taken),
	    cmocka_unit_test_setup_teardown(
		test_the_broker_wants_the_shape_of_the_row, rig_setup, rig_teardown),
	    cmocka_unit_test_setup_teardown(
		test_a_pod_is_wanted_where_the_row_says_so, rig_setup, rig_teardown),
	    cmocka_unit_test_setup_teardown(
		test_a_yes_or_no_may_be_asked_for_as_it_is, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
