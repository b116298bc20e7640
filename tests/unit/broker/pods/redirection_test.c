/* redirection_test.c - the steps of a pod's redirection: which there are, and what follows.
 * LINK: tests/unit/broker/pods/steps.c */
#include "broker/pods/redirection.h"
#include "common/mem.h"
#include "steps.h"

static struct pod_redirection r;

static int begin(void **state)
{
	(void)state;
	memset(&r, 0, sizeof(r));
	return 0;
}

static int end(void **state)
{
	(void)state;
	pod_redirection_end(&r);
	return 0;
}

static void ask(uint32_t id)
{
	pod_redirection_ask(&r, mem_zalloc(sizeof(struct redirect_rules)), id);
}

static void written(void)
{
	ask(1);
	pod_redirection_written(&r);
}

static const struct err why = {.code = EEXIST, .msg = "somebody else"};

/* --- rules --- */

static void asked_then_written_then_asked_again(void **state)
{
	(void)state;
	ask(1);
	assert_true(r.rules == POD_RULES_ASKED && r.asked);
	ask(2);
	assert_int_equal(r.id, 2);
	pod_redirection_written(&r);
	assert_true(r.rules == POD_RULES_WRITTEN && !r.asked);
	pod_redirection_written(&r); /* its cgroup came back */
	assert_int_equal(r.rules, POD_RULES_WRITTEN);
	ask(3);
	assert_int_equal(r.rules, POD_RULES_ASKED);
}

static void write_now(void)
{
	pod_redirection_written(&r);
}

static void ask_without_a_number(void)
{
	ask(0);
}

static void nothing_is_written_that_was_not_asked_for(void **state)
{
	(void)state;
	assert_true(steps_ends(write_now));
	assert_true(steps_ends(ask_without_a_number));
	ask(1);
	assert_false(steps_ends(write_now));
	pod_redirection_end(&r);
	assert_true(steps_ends(write_now));
}

/* --- the answer --- */

static void tell_now(void)
{
	pod_redirection_told(&r);
}

static void an_answer_is_given_once(void **state)
{
	(void)state;
	assert_false(pod_redirection_answer(&r));
	assert_true(steps_ends(tell_now));
	ask(7);
	assert_true(steps_ends(tell_now));
	assert_true(pod_redirection_answer(&r));
	assert_true(pod_redirection_answer(&r)); /* its cgroup came back before it was told */
	assert_true(r.answer == POD_ANSWER_READY && r.id == 7);
	pod_redirection_told(&r);
	assert_true(r.answer == POD_ANSWER_GIVEN && r.id == 0);
	assert_false(pod_redirection_answer(&r));
}

static void the_next_worker_is_not_told(void **state)
{
	(void)state;
	ask(7);
	pod_redirection_detach(&r);
	assert_false(pod_redirection_answer(&r));
	assert_true(r.answer == POD_ANSWER_NOBODY && r.id == 0);
	pod_redirection_written(&r); /* but it is done */
	pod_redirection_inbound(&r, POD_INBOUND_LIVE, NULL);
	assert_false(r.noted);
	ask(1);
	assert_true(r.noted); /* as soon as it asks */
	pod_redirection_detach(&r);
	assert_false(r.noted);
	assert_int_equal(r.inbound, POD_INBOUND_LIVE);
}

/* --- arrivals --- */

static void which_turns_there_are(void **state)
{
	static const char *const may[] = {
	    /* to: UNKNOWN, LIVE, TWICE, UNSEEN, DEAF, REFUSED */
	    [POD_INBOUND_UNKNOWN] = ".y...y",
	    [POD_INBOUND_LIVE] = "y.yyyy",
	    [POD_INBOUND_TWICE] = "yy.yyy",
	    [POD_INBOUND_UNSEEN] = "yyy.yy",
	    [POD_INBOUND_DEAF] = "yyyy.y",
	    [POD_INBOUND_REFUSED] = "yy...y",
	};

	(void)state;
	for (unsigned from = 0; from < 6; from++)
		for (unsigned to = 0; to < 6; to++)
			assert_int_equal(pod_redirection_may_turn(from, to), may[from][to] == 'y');
}

static void live_now(void)
{
	pod_redirection_inbound(&r, POD_INBOUND_LIVE, NULL);
}

static void twice_now(void)
{
	pod_redirection_inbound(&r, POD_INBOUND_TWICE, &why);
}

static void twice_for_no_reason(void)
{
	pod_redirection_inbound(&r, POD_INBOUND_TWICE, NULL);
}

static void live_for_a_reason(void)
{
	pod_redirection_inbound(&r, POD_INBOUND_LIVE, &why);
}

static void another_turn_ends_the_broker(void **state)
{
	(void)state;
	assert_true(steps_ends(live_now)); /* not asked for */
	written();
	assert_true(steps_ends(twice_now)); /* where others redirect we do not begin */
	assert_true(steps_ends(live_for_a_reason));
	live_now();
	assert_true(steps_ends(live_now));
	assert_true(steps_ends(twice_for_no_reason));
	twice_now();
	assert_true(pod_redirection_is_live(&r) && r.inbound_why.code == EEXIST && r.noted);
	live_now(); /* they went */
	assert_int_equal(r.inbound_why.code, 0);
}

static void another_namespace_is_not_live(void **state)
{
	(void)state;
	written();
	live_now();
	r.noted = false;
	pod_redirection_moved(&r);
	assert_true(r.inbound == POD_INBOUND_UNKNOWN && !r.noted);
	live_now();
	twice_now();
	r.noted = false;
	pod_redirection_moved(&r);
	assert_true(r.inbound == POD_INBOUND_REFUSED && r.inbound_why.code == EEXIST && !r.noted);
	pod_redirection_moved(&r);
	assert_int_equal(r.inbound, POD_INBOUND_REFUSED);
}

static void its_end(void **state)
{
	static const struct pod_redirection none;

	(void)state;
	written();
	live_now();
	ask(9);
	pod_redirection_end(&r);
	assert_memory_equal(&r, &none, sizeof(r));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
	    TEST(asked_then_written_then_asked_again),
	    TEST(nothing_is_written_that_was_not_asked_for),
	    TEST(an_answer_is_given_once),
	    TEST(the_next_worker_is_not_told),
	    TEST(which_turns_there_are),
	    TEST(another_turn_ends_the_broker),
	    TEST(another_namespace_is_not_live),
	    TEST(its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
