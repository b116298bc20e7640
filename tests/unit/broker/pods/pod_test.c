/* pod_test.c - what must hold between the parts of a pod, and that every step keeps it.
 * LINK: tests/unit/broker/pods/steps.c */
#include "broker/pods/pod.h"
#include "common/mem.h"
#include "steps.h"

static struct broker_pod pod;
static struct redirect_rules held;
static const struct err why = {.code = EPERM, .msg = "refused"};

/* A pod that is live and whose DNS is answered. */
static void begin(void)
{
	memset(&pod, 0, sizeof(pod));
	pod.claimed = true;
	pod.identity.cgroup.state = POD_CGROUP_WATCHED;
	pod.dns.udp.state = pod.dns.tcp.state = POD_SOCKET_SERVED;
	pod.redirection.rules = POD_RULES_WRITTEN;
	pod.redirection.inbound = POD_INBOUND_LIVE;
	pod.redirection.answer = POD_ANSWER_GIVEN;
	assert_int_equal(pod_broken_rule(&pod), 0);
}

static void broken(int rule)
{
	assert_int_equal(pod_broken_rule(&pod), rule);
	begin();
}

static void an_emptied_pod_is_not_live_and_has_no_dns(void **state)
{
	(void)state;
	begin();
	pod.identity.cgroup.state = POD_CGROUP_EMPTIED;
	broken(1);
	pod.identity.cgroup.state = POD_CGROUP_EMPTIED;
	pod.redirection.inbound = POD_INBOUND_UNKNOWN;
	broken(1); /* for its DNS */
	pod.identity.cgroup.state = POD_CGROUP_EMPTIED;
	pod.dns.udp.state = pod.dns.tcp.state = POD_SOCKET_NONE;
	broken(1); /* for what arrives */
	pod.identity.cgroup.state = POD_CGROUP_EMPTIED;
	pod.dns.udp.state = pod.dns.tcp.state = POD_SOCKET_NONE;
	pod.redirection.inbound = POD_INBOUND_UNKNOWN;
	broken(0);
}

static void without_rules_there_is_nothing(void **state)
{
	(void)state;
	begin();
	pod.redirection.rules = POD_RULES_NONE;
	broken(2);
	for (int i = 0; i < 4; i++) {
		memset(&pod, 0, sizeof(pod));
		assert_int_equal(pod_broken_rule(&pod), 0);
		if (i == 0)
			pod.redirection.inbound = POD_INBOUND_LIVE;
		else if (i == 1)
			pod.redirection.answer = POD_ANSWER_GIVEN;
		else if (i == 2)
			pod.dns.udp.state = POD_SOCKET_REFUSES;
		else
			pod.dns.tcp.state = POD_SOCKET_SERVED;
		broken(2);
	}
}

static void a_reason_and_only_then(void **state)
{
	(void)state;
	begin();
	pod.redirection.inbound = POD_INBOUND_TWICE;
	broken(3);
	pod.redirection.inbound_why = why;
	broken(3);
	pod.redirection.inbound = POD_INBOUND_REFUSED;
	pod.redirection.inbound_why = why;
	broken(0);
}

static void rules_are_held_until_they_are_written(void **state)
{
	(void)state;
	begin();
	pod.redirection.asked = &held;
	broken(4);
	pod.redirection.rules = POD_RULES_ASKED;
	broken(4);
	pod.redirection.rules = POD_RULES_ASKED; /* what was live stays so meanwhile */
	pod.redirection.asked = &held;
	broken(0);
}

static void a_question_has_a_number_and_somebody_who_asked(void **state)
{
	(void)state;
	begin();
	pod.redirection.id = 1;
	broken(5);
	pod.redirection.answer = POD_ANSWER_OWED;
	broken(5);
	pod.redirection.answer = POD_ANSWER_READY;
	pod.redirection.id = 1;
	pod.redirection.noted = true;
	broken(0);
	pod.redirection.answer = POD_ANSWER_NOBODY;
	pod.redirection.noted = true;
	broken(5);
}

/* Its worker is gone, and nothing else is. */
static void begin_unclaimed(void)
{
	memset(&pod, 0, sizeof(pod));
	pod.redirection.rules = POD_RULES_WRITTEN;
	pod.redirection.inbound = POD_INBOUND_LIVE;
	assert_int_equal(pod_broken_rule(&pod), 0);
}

static void what_nobody_added_is_served_to_nobody(void **state)
{
	(void)state;
	begin();
	pod.claimed = false;
	broken(6); /* its DNS */
	begin_unclaimed();
	pod.listeners[LINK_LISTEN_SDS].state = POD_LISTENER_SERVED;
	broken(6);
	begin_unclaimed();
	pod.listeners[LINK_LISTEN_XDS].state = POD_LISTENER_LOST;
	broken(6);
	begin_unclaimed();
	pod.mending.noted = true;
	broken(6);
	begin_unclaimed();
	pod.redirection.answer = POD_ANSWER_READY;
	pod.redirection.id = 1;
	broken(6);
	begin_unclaimed();
	pod.redirection.answer = POD_ANSWER_GIVEN;
	pod.redirection.noted = true;
	broken(6);
}

static void check_now(void)
{
	pod_check(&pod);
}

static void a_broken_rule_ends_the_broker(void **state)
{
	(void)state;
	begin();
	assert_false(steps_ends(check_now));
	pod.redirection.id = 1;
	assert_true(steps_ends(check_now));
}

/* --- listeners --- */

static struct pod_listener l;

static void count(void *ctx)
{
	*(int *)ctx += 1;
}

static void tell_now(void)
{
	pod_listener_told(&l);
}

/* It is shut down by somebody who still has a copy. */
static void a_worker_is_told_of_what_it_has(void **state)
{
	const struct pod_listener_place at = {-1, NULL, "/run/uid", "pod", false};
	int told = 0;

	(void)state;
	l = (struct pod_listener){.renewed = count, .ctx = &told};
	pod_listener_describe(&l, LINK_LISTEN_XDS, &at);
	assert_string_equal(l.spec.path, "/run/uid/mount/XDS");
	assert_string_equal(l.spec.first, "/run/uid/.XDS.new");
	l.listener.watch.fd = 77;
	l.spec.renewed(l.spec.ctx, 77);
	assert_true(l.state == POD_LISTENER_IDLE && told == 0);
	assert_true(steps_ends(tell_now));
	l.state = POD_LISTENER_SERVED;
	assert_true(steps_ends(tell_now));
	l.spec.renewed(l.spec.ctx, 77);
	assert_true(l.state == POD_LISTENER_RENEWED && told == 1);
	assert_int_equal(pod_listener_told(&l), 77);
	assert_int_equal(l.state, POD_LISTENER_SERVED);
	l.spec.renewed(l.spec.ctx, 77);
	l.spec.renewed(l.spec.ctx, -1); /* again, and it could not be made */
	assert_true(l.state == POD_LISTENER_LOST && told == 3);
}

/* --- every way through the steps --- */

enum { STEPS = 11, DEPTH = 5 };

/* False: this step cannot be taken from here. */
static bool take_step(struct pod_redirection *r, int step)
{
	const bool some = r->rules != POD_RULES_NONE;
	enum pod_inbound to = POD_INBOUND_UNKNOWN;

	switch (step) {
	case 0:
		pod_redirection_ask(r, mem_zalloc(sizeof(*r->asked)), 1);
		return true;
	case 1:
		if (some)
			pod_redirection_written(r);
		return some;
	case 2:
		return pod_redirection_answer(r);
	case 3:
		if (r->answer != POD_ANSWER_READY)
			return false;
		pod_redirection_told(r);
		return true;
	case 4:
		pod_redirection_moved(r);
		return true;
	case 5:
		pod_redirection_detach(r);
		return true;
	default:
		to = (enum pod_inbound)(step - 6);
		if (!some || !pod_redirection_may_turn(r->inbound, to))
			return false;
		pod_redirection_inbound(r, to, to >= POD_INBOUND_TWICE ? &why : NULL);
		return true;
	}
}

static unsigned walk(const int *path, int depth)
{
	struct broker_pod at = {.claimed = true};
	unsigned n = 1;
	bool taken = true;

	for (int i = 0; i < depth && taken; i++)
		taken = take_step(&at.redirection, path[i]);
	if (taken)
		assert_int_equal(pod_broken_rule(&at), 0);
	pod_redirection_end(&at.redirection);
	if (!taken)
		return 0;
	for (int step = 0; step < STEPS && depth < DEPTH; step++) {
		int longer[DEPTH];
		memcpy(longer, path, sizeof(*path) * (size_t)depth);
		longer[depth] = step;
		n += walk(longer, depth + 1);
	}
	return n;
}

static void every_way_keeps_the_rules(void **state)
{
	const int none[DEPTH] = {0};

	(void)state;
	assert_true(walk(none, 0) > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_emptied_pod_is_not_live_and_has_no_dns),
	    cmocka_unit_test(without_rules_there_is_nothing),
	    cmocka_unit_test(a_reason_and_only_then),
	    cmocka_unit_test(rules_are_held_until_they_are_written),
	    cmocka_unit_test(a_question_has_a_number_and_somebody_who_asked),
	    cmocka_unit_test(what_nobody_added_is_served_to_nobody),
	    cmocka_unit_test(a_broken_rule_ends_the_broker),
	    cmocka_unit_test(a_worker_is_told_of_what_it_has),
	    cmocka_unit_test(every_way_keeps_the_rules),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
