/* ops_test.c - the table of operations (border/ops.h) held against both ends of the border.
 *
 * LINK: tests/fake/loop.c tests/unit/broker/rig.c tests/unit/worker/link/world.c
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

/* The version is all by which a worker knows that its broker has another table. */
static void test_a_row_more_is_another_version(void **state)
{
	(void)state;
	assert_int_equal(LINK_VERSION & 0xff, LINK_OP_END);
	assert_true(LINK_VERSION > 0xff);
}

static void test_every_answer_is_taken(void **state)
{
	(void)state;
	for (unsigned op = LINK_OP_NONE + 1; op < LINK_OP_END; op++)
		if (!link_answers[op] != (ops_row(op)->answer == LINK_SILENT))
			fail_msg("nobody takes the answer of \"%s\"", ops_row(op)->refused);
}

/* Of nobody's pod, and with a descriptor that is none of those that are wanted: answered even so.
 */
static void test_every_request_is_answered(void **state)
{
	struct rig *r = *state;
	const int fd = 0;

	for (unsigned op = LINK_OP_NONE + 1; op < LINK_OP_END; op++) {
		const struct link_request q = {.id = op, .op = (uint16_t)op, .uid = rig_other};
		struct link_packet p = {.id = 0};
		int got;
		if (ops_row(op)->answer == LINK_SILENT)
			continue;
		rig_send(r, &q, sizeof(q), &fd, ops_row(op)->nfds);
		while (p.what != LINK_REPLY) {
			if (!rig_next(r, &p, &got))
				fail_msg("the broker does not answer \"%s\"", ops_row(op)->refused);
			mem_closep(&got);
		}
		assert_int_equal(p.id, op);
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
	    cmocka_unit_test(test_a_row_more_is_another_version),
	    cmocka_unit_test(test_every_answer_is_taken),
	    cmocka_unit_test_setup_teardown(
		test_every_request_is_answered, rig_setup, rig_teardown),
	    cmocka_unit_test_setup_teardown(
		test_a_pod_is_wanted_where_the_row_says_so, rig_setup, rig_teardown),
	    cmocka_unit_test_setup_teardown(
		test_a_yes_or_no_may_be_asked_for_as_it_is, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
