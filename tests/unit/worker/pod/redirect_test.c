/* redirect_test.c - one pod's traffic in the worker: waited for, in force, refused, counted.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c tests/fake/link_redirect.c tests/unit/worker/pod/row_rig.c
 * LINK: tests/unit/worker/metrics_rig.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "mesh/traffic.h"
#include "row_rig.h"
#include "tests/fake/link.h"
#include "tests/fake/link_redirect.h"
#include "tests/fake/loop.h"
#include "tests/unit/worker/metrics_rig.h"
#include "worker/pod/redirect.h"
#include "worker/pod/rows.h"
#include "worker/pods/pod.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

static struct pod pod = {.spec.uid = {{1}}, .spec.label = "demo/web"};
static struct redirect_plan plan;

static const struct pod_service *const row = &pod_redirect_service;

struct world {
	struct link *link;
	struct agent_shared shared;
	struct pod_context context;
	void *r;
	int settled, progressed;
	char noted[16]; /* "+" or "-" for each word of the broker */
	size_t words;
};

static struct world world;

static int setup(void **state)
{
	struct world *w = &world;

	*w = (struct world){.link = fake_link()};
	w->shared = (struct agent_shared){
	    .loop = fake_loop(), .link = w->link, .redirect = pod_redirects_new(w->link)};
	w->context = (struct pod_context){.shared = &w->shared, .pod = &pod, .plan = &plan};
	plan = (struct redirect_plan){.mode = REDIRECT_MODE_EBPF, .rules.strict = 1};
	fake_redirect_reset();
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	row_stop(row, &w->r);
	pod_redirects_free(&w->shared.redirect);
	assert_false(fake_redirect_is_noted());
	link_free(&w->link);
	fake_loop_end(&w->shared.loop);
	return 0;
}

/* In place of pod_services.c's. */
void pod_tell_redirected(struct pod_context *c)
{
	assert_ptr_equal(c, &world.context);
	world.settled++;
}

void pod_tell_progress(struct pod_context *c)
{
	assert_ptr_equal(c, &world.context);
	world.progressed++;
}

void pod_tell_netns(struct pod_context *c, bool known)
{
	assert_ptr_equal(c, &world.context);
	assert_true(world.words + 1 < sizeof(world.noted));
	world.noted[world.words++] = known ? '+' : '-';
}

static void start(struct world *w)
{
	w->r = row_start(row, &w->context);
	assert_ptr_equal(w->context.redirect, w->r);
	assert_int_equal(
	    fake_link_waiting(w->link, LINK_REDIRECT_SET), 0); /* the pod is not added */
	row->directory(w->r);
}

static json_int_t dumped(const struct world *w, const char *key)
{
	json_t *o = row_show(row, w->r, NULL);
	json_int_t n = json_integer_value(json_object_get(o, key));

	if (!n)
		n = json_is_true(json_object_get(o, key));
	if (!n)
		n = json_integer_value(json_object_get(json_object_get(o, "counters"), key));
	json_decref(o);
	return n;
}

static void test_a_strict_pod_is_held_until_it_is_in_force(void **state)
{
	struct world *w = *state;

	start(w);
	assert_true(pod_redirect_holds(w->r));
	assert_non_null(strstr(pod_redirect_state(w->r)->msg, "cgroup"));
	assert_int_equal(fake_redirect_rules()->strict, 1);
	assert_int_equal(w->settled, 0);
	fake_redirect_set(w->link, &pod.spec.uid, 3, NULL, NULL);
	assert_int_equal(w->settled, 1);
	assert_false(pod_redirect_holds(w->r));
	assert_null(pod_redirect_state(w->r));
	assert_true(dumped(w, "in_force"));
	assert_false(dumped(w, "inbound"));
	fake_redirect_counters(w->link, -1, "none today");
}

static void expect_open(const struct world *w, bool open)
{
	json_t *o = row_show(row, w->r, NULL);
	const char *why = json_string_value(json_object_get(o, "why_not"));

	row->measure(w->r, "pod=\"web\"");
	assert_int_equal(json_is_true(json_object_get(o, "open")), open);
	assert_int_equal(strstr(why, "strict, OPEN: ") == why, open);
	assert_int_equal(metrics_say("agentd_redirect_open{pod=\"web\"} 1"), open);
	json_decref(o);
}

static void test_a_strict_pod_that_is_open_is_said_to_be(void **state)
{
	struct world *w = *state;

	start(w);
	expect_open(w, false); /* nobody can be in a cgroup that is not there */
	fake_redirect_set(w->link, &pod.spec.uid, 0, NULL, "not on this node");
	expect_open(w, true);
	fake_loop_advance(w->shared.loop, 1000);
	fake_redirect_set(w->link, &pod.spec.uid, 1, NULL, "still not, but the broker shut it");
	expect_open(w, false);
	assert_true(pod_redirect_holds(w->r));
	fake_loop_advance(w->shared.loop, 2000);
	fake_redirect_set(w->link, &pod.spec.uid, 3, NULL, NULL);
	expect_open(w, false);
	fake_redirect_note(&pod.spec.uid, "its processes are the node's", LINK_REDIRECT_LEFT);
	expect_open(w, true);
	fake_redirect_counters(w->link, -1, "none today");
}

static void test_its_probe_ports_are_shown(void **state)
{
	struct world *w = *state;
	json_t *o;

	plan.rules.nrows = 3;
	plan.rules.rows[0] = (struct redirect_row){REDIRECT_PORT_PROBE, 8080};
	plan.rules.rows[1] = (struct redirect_row){REDIRECT_PORT_INBOUND_EXCLUDE, 9090};
	plan.rules.rows[2] = (struct redirect_row){REDIRECT_PORT_PROBE, 8081};
	start(w);
	fake_redirect_set(w->link, &pod.spec.uid, 3, NULL, NULL); /* and the rules are let go */
	fake_redirect_counters(w->link, -1, "none today");
	o = row_show(row, w->r, NULL);
	auto_free char *text = json_dumps(json_object_get(o, "probe_ports"), JSON_COMPACT);
	assert_string_equal(text, "[8080,8081]");
	json_decref(o);
}

static void test_a_refused_strict_pod_stays_held(void **state)
{
	struct world *w = *state;

	start(w);
	fake_redirect_set(w->link, &pod.spec.uid, 0, NULL, "not on this node");
	assert_int_equal(w->settled, 1);
	assert_true(pod_redirect_holds(w->r));
	assert_string_equal(pod_redirect_state(w->r)->msg, "not on this node");
	assert_false(dumped(w, "in_force"));
	assert_int_equal(fake_link_waiting(w->link, LINK_REDIRECT_COUNTERS), 0);
	/* The reason may go. */
	assert_int_equal(fake_link_waiting(w->link, LINK_REDIRECT_SET), 0);
	fake_loop_advance(w->shared.loop, 1000);
	fake_redirect_set(w->link, &pod.spec.uid, 0, NULL, "not on this node");
	fake_loop_advance(w->shared.loop, 2000);
	assert_int_equal(fake_redirect_rules()->strict, 1);
	fake_redirect_set(w->link, &pod.spec.uid, 3, NULL, NULL);
	assert_false(pod_redirect_holds(w->r));
	fake_redirect_counters(w->link, -1, "none today");
	fake_loop_advance(w->shared.loop, 60000);
	assert_int_equal(fake_link_waiting(w->link, LINK_REDIRECT_SET), 0);
}

static void test_a_permissive_pod_is_not_held(void **state)
{
	struct world *w = *state;

	plan.rules.strict = 0;
	start(w);
	assert_false(pod_redirect_holds(w->r));
	assert_non_null(pod_redirect_state(w->r));
}

static void test_another_mode_lets_go(void **state)
{
	struct world *w = *state;

	plan = (struct redirect_plan){.mode = REDIRECT_MODE_ISTIO_CNI};
	start(w);
	assert_int_equal(fake_redirect_dels(), 1);
	assert_false(pod_redirect_holds(w->r));
	assert_null(pod_redirect_state(w->r));
	fake_redirect_let_go(w->link, &pod.spec.uid, NULL);
	assert_null(pod_redirect_state(w->r));
	assert_int_equal(w->settled, 0);
}

/* The node's ceiling: it is captured in spite of its mode, which people must see. */
static void test_what_stays_redirected_is_said(void **state)
{
	struct world *w = *state;
	json_t *o;

	plan = (struct redirect_plan){.mode = REDIRECT_MODE_NONE};
	start(w);
	fake_redirect_let_go(w->link, &pod.spec.uid, "no exclusions");
	assert_int_equal(w->settled, 1);
	assert_false(pod_redirect_holds(w->r));
	assert_string_equal(pod_redirect_state(w->r)->msg, "no exclusions");
	o = row_show(row, w->r, NULL);
	assert_true(json_is_true(json_object_get(o, "in_force")));
	assert_string_equal(json_string_value(json_object_get(o, "why_not")), "no exclusions");
	json_decref(o);
}

/* Stopping the services is not the end of redirection, and nothing arrives later. */
static void test_a_stop_asks_for_nothing(void **state)
{
	struct world *w = *state;

	start(w);
	row_stop(row, &w->r);
	assert_int_equal(fake_link_live(w->link), 0);
	assert_int_equal(fake_redirect_dels(), 0);
	assert_int_equal(w->settled, 0);
	fake_redirect_note(&pod.spec.uid, NULL, 0); /* to nobody */
}

static void test_what_is_counted_begins_at_the_baseline(void **state)
{
	struct world *w = *state;
	struct redirect_counters baseline = {.n = {[REDIRECT_TO_OUTBOUND] = 100}};
	int fd = memfd_create("counters", MFD_CLOEXEC);
	size_t size = REDIRECT_PODS_MAX * sizeof(struct redirect_counters);
	struct redirect_counters *rows;

	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	rows = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(rows, MAP_FAILED);
	rows[2].n[REDIRECT_TO_OUTBOUND] = 107;
	rows[2].n[REDIRECT_PASS_LOOPBACK] = 2;
	rows[2].n[REDIRECT_DROP_GATE] = 1;
	rows[3].n[REDIRECT_TO_OUTBOUND] = 9000; /* somebody else's */
	start(w);
	fake_redirect_set(w->link, &pod.spec.uid, 3, &baseline, NULL);
	assert_int_equal(dumped(w, "redirected"), 0); /* not mapped yet */
	fake_redirect_counters(w->link, fd, NULL);
	assert_int_equal(dumped(w, "redirected"), 7);
	assert_int_equal(dumped(w, "passed"), 2);
	assert_int_equal(dumped(w, "dropped"), 1);
	assert_int_equal(dumped(w, traffic_verdict_name(REDIRECT_TO_OUTBOUND)), 7);
	rows[2].n[REDIRECT_TO_OUTBOUND]++; /* the programs go on */
	assert_int_equal(dumped(w, "redirected"), 8);
	munmap(rows, size);
}

/* A row that cannot be: a broker that is broken must not make the worker read elsewhere. */
static void test_an_impossible_row_counts_nothing(void **state)
{
	struct world *w = *state;
	int fd = memfd_create("counters", MFD_CLOEXEC);

	assert_int_equal(
	    ftruncate(fd, REDIRECT_PODS_MAX * (off_t)sizeof(struct redirect_counters)), 0);
	start(w);
	fake_redirect_set(w->link, &pod.spec.uid, REDIRECT_PODS_MAX + 1, NULL, NULL);
	fake_redirect_counters(w->link, fd, NULL);
	assert_int_equal(dumped(w, "redirected"), 0);
}

/* The network namespace is learned, or something in it is wrong, later. */
static void test_the_broker_says_more_later(void **state)
{
	struct world *w = *state;
	const struct uuid other = {{9}};

	start(w);
	fake_redirect_note(&pod.spec.uid, "too early", 0);
	assert_int_equal(w->settled, 0);
	fake_redirect_set(w->link, &pod.spec.uid, 1, NULL, NULL);
	fake_redirect_counters(w->link, -1, "none");
	fake_redirect_note(&pod.spec.uid, NULL, LINK_REDIRECT_INBOUND);
	assert_true(dumped(w, "inbound"));
	assert_int_equal(w->settled, 1);
	fake_redirect_note(&pod.spec.uid, NULL, 0); /* its sandbox went */
	assert_false(dumped(w, "inbound"));
	assert_int_equal(w->settled, 1);
	assert_string_equal(w->noted, "+-");
	fake_redirect_note(&other, "not ours", 0);
	assert_null(pod_redirect_state(w->r));
	fake_redirect_note(&pod.spec.uid, "istio's own rules are there", 0);
	assert_string_equal(pod_redirect_state(w->r)->msg, "istio's own rules are there");
	assert_false(dumped(w, "inbound"));
	assert_int_equal(w->settled, 2);
	fake_redirect_note(&pod.spec.uid, NULL, LINK_REDIRECT_INBOUND);
	assert_int_equal(w->settled, 3);
	fake_redirect_note(NULL, NULL, 5); /* what it put back; about no pod */
	assert_int_equal(w->settled, 3);
}

/* hostNetwork, or somebody else's rules: ours are in force for nobody. */
static void test_a_pod_that_was_left_alone_is_not_in_force(void **state)
{
	struct world *w = *state;

	start(w);
	assert_int_equal(row->count(w->r), 1); /* it waits for its cgroup */
	fake_redirect_set(w->link, &pod.spec.uid, 1, NULL, NULL);
	fake_redirect_counters(w->link, -1, "none");
	assert_int_equal(row->count(w->r), 0);
	fake_redirect_note(&pod.spec.uid, "hostNetwork", LINK_REDIRECT_LEFT);
	assert_false(dumped(w, "in_force"));
	assert_int_equal(row->count(w->r), 1);
	fake_redirect_note(&pod.spec.uid, NULL, LINK_REDIRECT_INBOUND);
	assert_true(dumped(w, "in_force") && dumped(w, "inbound"));
	assert_int_equal(row->count(w->r), 0);
}

/* In force as before, and named, until it is asked for under a ceiling that allows it. */
static void test_a_pod_above_the_ceiling_is_named(void **state)
{
	struct world *w = *state;
	json_t *o;
	char *said;

	start(w);
	fake_redirect_above("this node does not allow outbound exclusions");
	fake_redirect_set(w->link, &pod.spec.uid, 1, NULL, NULL);
	fake_redirect_counters(w->link, -1, "none");
	fake_redirect_above(NULL);
	assert_null(pod_redirect_state(w->r));
	o = row_show(row, w->r, NULL);
	assert_string_equal(json_string_value(json_object_get(o, "above")),
	    "this node does not allow outbound exclusions");
	json_decref(o);
	said = pod_redirects_above(w->shared.redirect);
	assert_non_null(strstr(said, "1 pod above"));
	assert_non_null(strstr(said, pod.spec.label));
	free(said);
	row_stop(row, &w->r);
	assert_null(pod_redirects_above(w->shared.redirect));
	start(w);
	fake_redirect_set(w->link, &pod.spec.uid, 1, NULL, NULL);
	assert_null(pod_redirects_above(w->shared.redirect));
}

#define AGENT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    AGENT_TEST(test_a_strict_pod_is_held_until_it_is_in_force),
	    AGENT_TEST(test_a_strict_pod_that_is_open_is_said_to_be),
	    AGENT_TEST(test_its_probe_ports_are_shown),
	    AGENT_TEST(test_a_refused_strict_pod_stays_held),
	    AGENT_TEST(test_a_permissive_pod_is_not_held),
	    AGENT_TEST(test_another_mode_lets_go),
	    AGENT_TEST(test_what_stays_redirected_is_said),
	    AGENT_TEST(test_a_stop_asks_for_nothing),
	    AGENT_TEST(test_what_is_counted_begins_at_the_baseline),
	    AGENT_TEST(test_an_impossible_row_counts_nothing),
	    AGENT_TEST(test_the_broker_says_more_later),
	    AGENT_TEST(test_a_pod_that_was_left_alone_is_not_in_force),
	    AGENT_TEST(test_a_pod_above_the_ceiling_is_named),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
