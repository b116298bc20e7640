/* redirect_test.c - the worker's words about pods' traffic, and a broker that answers late,
 * badly, or by itself.
 *
 * LINK: tests/fake/loop.c tests/unit/broker/rig.c tests/unit/worker/link/world.c tests/unit/open_fds.c
 */
#include "border/rules.h"
#include "ebpf/names.h"
#include "ebpf/rules_types.h"
#include "tests/unit/open_fds.h"
#include "worker/link/redirect.h"
#include "world.h"

static struct {
	unsigned told, index, verdict, noted, repaired;
	bool failed, of_pod;
	char why[64];
	char above[64];
	struct redirect_counters baseline;
	int fd;
} seen;

static int begin(void **state)
{
	memset(&seen, 0, sizeof(seen));
	seen.fd = -1;
	return setup(state);
}

static void take_error(const struct err *e)
{
	seen.told++;
	seen.failed = e;
	snprintf(seen.why, sizeof(seen.why), "%s", e ? e->msg : "");
}

static void on_redirected(void *ctx, const struct err *e, const struct link_redirection *is)
{
	struct world *w = ctx;

	assert_null(w->slot); /* R3 */
	take_error(e);
	assert_int_equal(!is->baseline, !!e);
	if (e)
		return;
	seen.index = is->index;
	snprintf(seen.above, sizeof(seen.above), "%s", is->above);
	seen.baseline = *is->baseline;
}

static void on_explained(void *ctx, const struct err *e, unsigned verdict)
{
	(void)ctx;
	take_error(e);
	seen.verdict = verdict;
}

static void on_fd(void *ctx, const struct err *e, int fd)
{
	(void)ctx;
	take_error(e);
	seen.fd = fd;
}

static void on_noted(void *ctx, const struct uuid *pod, const struct err *e, unsigned repaired)
{
	(void)ctx;
	seen.noted++;
	seen.of_pod = pod;
	seen.repaired = repaired;
	seen.failed = e;
}

static const struct redirect_rules rules = {.version = REDIRECT_RULES_VERSION, .proxy_uid = 77};

/* What the broker got is what was asked for, and nobody can change it any more. */
static uint32_t ask(struct world *w)
{
	struct redirect_rules got;
	int fd;

	link_redirect_set(w->p, &w->slot, &rig_pod, &rules, on_redirected, w);
	struct link_request q = heard(w, LINK_REDIRECT_SET, &fd);
	assert_memory_equal(&q.uid, &rig_pod, sizeof(rig_pod));
	assert_int_equal(pread(fd, &got, sizeof(got), 0), sizeof(got));
	assert_memory_equal(&got, &rules, sizeof(got));
	assert_int_equal(fcntl(fd, F_GET_SEALS) & RIG_SEALS, RIG_SEALS);
	close(fd);
	return q.id;
}

static void tell(struct world *w, uint32_t id, struct link_packet p, int fd)
{
	p.what = LINK_REDIRECTED;
	p.id = id;
	p.uid = rig_pod;
	say(w, p, fd);
	turn(w);
}

static void accept_call(struct world *w, uint32_t id)
{
	say(w, (struct link_packet){.what = LINK_REPLY, .id = id}, -1);
	turn(w);
}

static void test_accepted_is_not_in_force_yet(void **state)
{
	struct world *w = *state;
	const struct redirect_counters baseline = {.n = {1, 2, 3}};
	int fd = rig_memfd(&baseline, sizeof(baseline), RIG_SEALS), before = open_fds();
	uint32_t id = ask(w);

	accept_call(w, id);
	assert_int_equal(seen.told, 0);
	assert_non_null(w->slot);
	tell(w, id, (struct link_packet){.arg = 7}, fd);
	assert_int_equal(seen.told, 1);
	assert_int_equal(seen.index, 7);
	assert_int_equal(seen.baseline.n[2], 3);
	assert_int_equal(open_fds(), before);
	tell(w, id, (struct link_packet){.arg = 8}, -1); /* again: nobody waits */
	assert_int_equal(seen.told, 1);
	close(fd);
}

static void test_above_the_ceiling(void **state)
{
	struct world *w = *state;
	uint32_t id = ask(w);

	accept_call(w, id);
	tell(w, id, (struct link_packet){.arg = 7}, -1);
	assert_string_equal(seen.above, "");
	id = ask(w);
	accept_call(w, id);
	tell(w, id, (struct link_packet){.arg = 7, .why = "exclusions"}, -1);
	assert_string_equal(seen.above, "exclusions");
}

static void test_refused_at_once_and_refused_later(void **state)
{
	struct world *w = *state;
	uint32_t id = ask(w);

	say(w, (struct link_packet){.what = LINK_REPLY, .id = id, .code = EPERM, .why = "not here"},
	    -1);
	turn(w);
	assert_int_equal(seen.told, 1);
	assert_true(seen.failed);
	assert_string_equal(seen.why, "not here");
	id = ask(w);
	accept_call(w, id);
	tell(w, id, (struct link_packet){.code = ENOSPC, .why = "full"}, -1);
	assert_int_equal(seen.told, 2);
	assert_true(seen.failed);
	assert_string_equal(seen.why, "full");
}

static void test_a_cancelled_call_is_nobodys(void **state)
{
	struct world *w = *state;
	struct probe probe;
	uint32_t id = ask(w);

	accept_call(w, id);
	link_call_cancel(&w->slot);
	send_probe(w, (struct link_packet){.what = LINK_REDIRECTED, .id = id}, &probe);
	turn(w);
	assert_int_equal(seen.told, 0);
	assert_true(probe_is_closed(&probe));
}

/* Then the counters begin at 0. */
static void test_a_baseline_that_is_none(void **state)
{
	struct world *w = *state;
	int fd = rig_memfd("short", 5, RIG_SEALS);
	uint32_t id = ask(w);

	accept_call(w, id);
	tell(w, id, (struct link_packet){.arg = 7}, fd);
	assert_false(seen.failed);
	assert_int_equal(seen.baseline.n[0], 0);
	id = ask(w);
	accept_call(w, id);
	tell(w, id, (struct link_packet){.arg = 7}, -1);
	assert_false(seen.failed);
	close(fd);
}

/* In force without having been accepted, or about a call of another kind. */
static void test_a_word_that_nobody_asked_for(void **state)
{
	struct world *w = *state;
	const struct redirect_question q = {.inbound = 1};
	int fd;

	link_redirect_explain(w->p, &w->slot, &rig_pod, &q, on_explained, w);
	uint32_t id = heard(w, LINK_REDIRECT_EXPLAIN, &fd).id;
	close(fd);
	tell(w, id, (struct link_packet){.arg = 1}, -1);
	assert_int_equal(seen.told, 0);
	say(w, (struct link_packet){.what = LINK_REPLY, .id = id, .arg = REDIRECT_TO_OUTBOUND}, -1);
	turn(w);
	assert_int_equal(seen.told, 1);
	assert_int_equal(seen.verdict, REDIRECT_TO_OUTBOUND);
}

static void on_named(void *ctx, const struct err *e)
{
	(void)ctx;
	seen.told++;
	seen.failed = e;
}

static void test_names_are_told(void **state)
{
	struct world *w = *state;
	auto_free struct redirect_names_told *t = mem_zalloc(sizeof(*t)),
					     *got = mem_zalloc(sizeof(*got));
	int fd;

	t->npods = 1;
	t->names.known[7] = 9;
	link_redirect_names(w->p, &w->slot, t, on_named, w);
	uint32_t id = heard(w, LINK_REDIRECT_NAMES, &fd).id;
	assert_int_equal(pread(fd, got, sizeof(*got), 0), sizeof(*got));
	assert_memory_equal(got, t, sizeof(*got));
	assert_int_equal(fcntl(fd, F_GET_SEALS) & RIG_SEALS, RIG_SEALS);
	close(fd);
	accept_call(w, id);
	assert_int_equal(seen.told, 1);
	assert_null(seen.failed);
}

static void test_counters_and_traces_are_descriptors(void **state)
{
	struct world *w = *state;
	struct probe probe;

	link_redirect_counters(w->p, &w->slot, on_fd, w);
	uint32_t id = heard(w, LINK_REDIRECT_COUNTERS, NULL).id;
	send_probe(w, (struct link_packet){.what = LINK_REPLY, .id = id}, &probe);
	turn(w);
	assert_int_equal(seen.told, 1);
	assert_true(seen.fd >= 0);
	close(seen.fd);
	assert_true(probe_is_closed(&probe));
	link_redirect_trace(w->p, &w->slot, NULL, on_fd, w);
	struct link_request q = heard(w, LINK_REDIRECT_TRACE, NULL);
	assert_int_equal(q.uid.bytes[0], 0); /* all pods */
	say(w,
	    (struct link_packet){.what = LINK_REPLY, .id = q.id, .code = EMFILE, .why = "no more"},
	    -1);
	turn(w);
	assert_true(seen.failed);
	assert_int_equal(seen.fd, -1);
}

static void on_let_go(void *ctx, const struct err *e)
{
	const char **why = ctx;

	*why = e ? e->msg : "";
}

static void test_letting_go(void **state)
{
	struct world *w = *state;
	struct link_call *slot = NULL;
	const char *why = NULL;

	link_redirect_del(w->p, &slot, &rig_pod, on_let_go, &why);
	accept_call(w, heard(w, LINK_REDIRECT_DEL, NULL).id);
	turn(w);
	assert_string_equal(why, "");
	assert_null(slot);
}

static void test_the_broker_says_by_itself(void **state)
{
	struct world *w = *state;

	say(w, (struct link_packet){.what = LINK_REDIRECT_NOTE, .uid = rig_pod}, -1);
	turn(w); /* to nobody */
	link_on_redirect(w->p, on_noted, w);
	say(w,
	    (struct link_packet){
		.what = LINK_REDIRECT_NOTE, .uid = rig_pod, .code = EEXIST, .why = "istio's"},
	    -1);
	turn(w);
	assert_int_equal(seen.noted, 1);
	assert_true(seen.of_pod && seen.failed);
	say(w, (struct link_packet){.what = LINK_REDIRECT_NOTE, .arg = 5}, -1);
	turn(w);
	assert_int_equal(seen.noted, 2);
	assert_false(seen.of_pod);
	assert_int_equal(seen.repaired, 5);
	assert_int_equal(w->lost, 0);
}

#define REDIRECT_TEST(f) cmocka_unit_test_setup_teardown(f, begin, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    REDIRECT_TEST(test_accepted_is_not_in_force_yet),
	    REDIRECT_TEST(test_above_the_ceiling),
	    REDIRECT_TEST(test_refused_at_once_and_refused_later),
	    REDIRECT_TEST(test_a_cancelled_call_is_nobodys),
	    REDIRECT_TEST(test_a_baseline_that_is_none),
	    REDIRECT_TEST(test_a_word_that_nobody_asked_for),
	    REDIRECT_TEST(test_names_are_told),
	    REDIRECT_TEST(test_counters_and_traces_are_descriptors),
	    REDIRECT_TEST(test_letting_go),
	    REDIRECT_TEST(test_the_broker_says_by_itself),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
