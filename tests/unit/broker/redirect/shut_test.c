/* shut_test.c - strict pods that are not redirected: shut by root's word, by a refusal, before
 * any worker or broker is there; and opened again by what comes next.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/gate.h"
#include "broker/pods/pods.h"
#include "broker/redirect/shut.h"
#include "broker/redirect/traffic.h"
#include "common/err.h"
#include "tests/unit/broker/bpf.h"

struct world {
	struct rig *rig;
	struct place place;
	char name[64];
};

static struct world w;

static void write_beside(const char *file, const char *text)
{
	rig_shell("mkdir -p %s/%s", w.rig->manifests, rig_pod_text);
	rig_file(rig_at(w.rig, "pods.d/%s/%s", rig_pod_text, file), text);
	assert_int_equal(chmod(rig_at(w.rig, "pods.d/%s/%s", rig_pod_text, file), 0600), 0);
}

static void write_manifest(void)
{
	rig_file(rig_at(w.rig, "pods.d/%s.yaml", rig_pod_text), "");
}

static void name_cgroup(const char *cgroup)
{
	char text[192];

	snprintf(text, sizeof(text), "%s/%s", w.name, cgroup);
	write_beside("cgroup", text);
}

/* A broker whose pods can only be strict; its pod has no manifest yet. */
static int setup(void **state)
{
	memset(&w, 0, sizeof(w));
	place_setup(&w.place);
	if (rig_setup(state))
		return -1;
	w.rig = *state;
	rig_stop(w.rig);
	snprintf(w.name, sizeof(w.name), "%s", strrchr(w.place.cgroup, '/') + 1);
	w.rig->o.redirect = true;
	w.rig->o.redirect_cgroup = w.name;
	w.rig->o.redirect_allow = "strict";
	w.rig->o.bpffs = w.place.bpffs;
	name_cgroup("pod");
	rig_start(w.rig);
	rig_add(w.rig);
	return 0;
}

static int teardown(void **state)
{
	int rc;

	place_empty(&w.place);
	rc = rig_teardown(state);
	place_teardown(&w.place);
	return rc;
}

static void turn(void)
{
	rig_drain(w.rig);
}

static void restart(void)
{
	rig_stop(w.rig);
	rig_start(w.rig);
}

static bool is_shut(int cgroup)
{
	struct redirect_pod entry;

	return place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL) == 1 &&
	       place_entry(&w.place, cgroup, &entry) && (entry.flags & REDIRECT_SHUT);
}

/* As an app's unit asks, whether or not a broker runs. */
static int stands(int cgroup)
{
	struct err e = {.code = 0};
	int rc =
	    redirect_shut_is_over(w.place.bpffs, (struct redirect_shut_at){&rig_pod, cgroup}, &e);

	if (rc < 0)
		fail_msg("%s", e.msg);
	return rc;
}

static int set(const struct redirect_rules *rules, struct link_packet *reply)
{
	struct rig_ask a = {.op = LINK_REDIRECT_SET,
	    .pod = &rig_pod,
	    .fd = rig_memfd(rules, sizeof(*rules), RIG_SEALS)};

	*reply = rig_ask(w.rig, a, NULL);
	close(a.fd);
	turn();
	return reply->code;
}

static struct redirect_rules strict_rules(void)
{
	struct redirect_rules rules = good_rules();

	rules.nrows = rules.ncidrs = rules.ninterfaces = 0;
	return rules;
}

/* --- root's word --- */

static void test_by_a_manifest_alone(void **state)
{
	int pod = place_cgroup(&w.place, "pod");

	(void)state;
	turn();
	assert_false(is_shut(pod)); /* nothing names it */
	write_manifest();
	turn();
	assert_true(is_shut(pod));
	assert_false(stands(pod));
	unlink(rig_at(w.rig, "pods.d/%s.yaml", rig_pod_text));
	rig_do(w.rig, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	turn();
	assert_int_equal(place_rows(&w.place, "pods"), 0);
	close(pod);
}

/* No worker ever heard of it: its manifest was refused. */
static void test_it_ends_with_the_manifest(void **state)
{
	int pod = place_cgroup(&w.place, "pod");

	(void)state;
	unlink(rig_at(w.rig, "pods.d/%s.yaml", rig_pod_text));
	rig_do(w.rig, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	write_manifest();
	turn();
	assert_true(is_shut(pod));
	unlink(rig_at(w.rig, "pods.d/%s.yaml", rig_pod_text));
	turn();
	assert_int_equal(place_rows(&w.place, "pods"), 0);
	assert_int_equal(place_attached(pod, BPF_CGROUP_INET_INGRESS, NULL), 0);
	close(pod);
}

static void test_its_cgroup_is_awaited(void **state)
{
	int pod;

	(void)state;
	write_manifest();
	turn();
	pod = place_cgroup(&w.place, "pod");
	turn();
	assert_true(is_shut(pod));
	close(pod);
	assert_int_equal(rmdir(place_path(&w.place, "pod")), 0);
	pod = place_cgroup(&w.place, "pod");
	turn();
	assert_true(is_shut(pod));
	close(pod);
}

/* It may be permissive, or none of the mesh's: the broker cannot tell. */
static void test_not_where_the_list_has_more(void **state)
{
	int pod = place_cgroup(&w.place, "pod");

	(void)state;
	write_beside("redirect-allow", "permissive");
	write_manifest();
	turn();
	assert_false(is_shut(pod));
	write_beside("redirect-allow", "strict,exclusions");
	write_manifest();
	turn();
	assert_true(is_shut(pod));
	close(pod);
}

static void test_a_list_that_nobody_can_read_allows_nothing(void **state)
{
	int pod = place_cgroup(&w.place, "pod");

	(void)state;
	write_beside("redirect-allow", "permisive");
	write_manifest();
	turn();
	assert_true(is_shut(pod));
	close(pod);
}

/* What runs is not touched before its rules are asked for. */
static void test_not_a_pod_that_runs(void **state)
{
	int pod = place_cgroup(&w.place, "pod");
	pid_t child = fork();

	(void)state;
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	rig_shell("echo %d >%s/cgroup.procs", child, place_path(&w.place, "pod"));
	write_manifest();
	turn();
	assert_false(is_shut(pod));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	close(pod);
}

/* --- and the worker's --- */

static void test_what_is_set_takes_its_place(void **state)
{
	const struct redirect_rules rules = strict_rules();
	int pod = place_cgroup(&w.place, "pod");
	struct link_packet reply;

	(void)state;
	write_manifest();
	turn();
	assert_int_equal(set(&rules, &reply), 0);
	assert_false(is_shut(pod));
	assert_true(stands(pod));
	assert_int_equal(place_attached(pod, BPF_CGROUP_INET_INGRESS, NULL), 1);
	write_manifest(); /* a change opens nothing */
	turn();
	assert_true(stands(pod));
	close(pod);
}

static void test_a_refused_pod_is_shut(void **state)
{
	struct redirect_rules rules = strict_rules();
	int pod = place_cgroup(&w.place, "pod");
	struct link_packet reply;

	(void)state;
	w.rig->o.redirect_allow = "permissive,exclusions";
	restart();
	rig_add(w.rig);
	write_manifest();
	turn();
	assert_false(is_shut(pod));
	rules.proxy_uid = 0;
	assert_int_equal(set(&rules, &reply), EPERM);
	assert_int_equal(reply.arg, 1); /* closed */
	assert_true(is_shut(pod));
	rules.strict = 0; /* nobody wants it closed */
	rig_do(w.rig, (struct rig_ask){.op = LINK_REDIRECT_DEL, .pod = &rig_pod});
	assert_false(is_shut(pod));
	assert_int_equal(set(&rules, &reply), EPERM);
	assert_int_equal(reply.arg, 0);
	assert_false(is_shut(pod));
	close(pod);
}

/* Its manifest was refused: there are no rules to ask for. */
static void test_by_the_workers_word(void **state)
{
	const struct rig_ask word = {.op = LINK_REDIRECT_SHUT, .pod = &rig_pod};
	const struct redirect_rules rules = strict_rules();
	int pod = place_cgroup(&w.place, "pod");
	struct link_packet reply;

	(void)state;
	write_beside("redirect-allow", "permissive");
	rig_do(w.rig, word);
	assert_false(is_shut(pod)); /* nothing names it */
	write_manifest();
	rig_do(w.rig, word);
	assert_true(is_shut(pod));
	assert_int_equal(set(&rules, &reply), 0);
	rig_do(w.rig, word);
	assert_true(stands(pod));
	close(pod);
}

/* What was in force before a refusal stays, and is closed. */
static void test_a_refusal_takes_nothing_away(void **state)
{
	struct redirect_rules rules = strict_rules();
	int pod = place_cgroup(&w.place, "pod");
	struct link_packet reply;

	(void)state;
	write_manifest();
	assert_int_equal(set(&rules, &reply), 0);
	rules.outbound_port = 16001;
	assert_int_equal(set(&rules, &reply), EPERM);
	assert_int_equal(reply.arg, 1);
	assert_true(stands(pod));
	close(pod);
}

/* Mode none: the worker lets go of what nobody asked for. */
static void test_a_pod_that_is_none_of_ours_is_let_go(void **state)
{
	int pod = place_cgroup(&w.place, "pod");

	(void)state;
	write_manifest();
	turn();
	assert_true(is_shut(pod));
	restart();
	rig_add(w.rig);
	assert_true(is_shut(pod));
	rig_do(w.rig, (struct rig_ask){.op = LINK_REDIRECT_DEL, .pod = &rig_pod});
	assert_int_equal(place_rows(&w.place, "pods"), 0);
	close(pod);
}

/* --- before there is a broker --- */

static void test_the_gate_of_a_boot(void **state)
{
	const struct redirect_rules rules = strict_rules();
	struct link_packet reply;
	int pod;

	(void)state;
	name_cgroup("web.slice/web.service");
	write_manifest();
	assert_int_equal(broker_gate_shut(&w.rig->o), 0); /* the running one has the lock */
	rig_stop(w.rig);
	assert_int_equal(access(place_path(&w.place, "web.slice"), F_OK), -1);
	assert_int_equal(broker_gate_shut(&w.rig->o), 0);
	pod = place_cgroup(&w.place, "web.slice/web.service");
	assert_true(is_shut(pod));
	assert_int_equal(broker_gate_shut(&w.rig->o), 0); /* once more: nothing changes */
	assert_int_equal(place_rows(&w.place, "pods"), 1);
	rig_start(w.rig);
	rig_add(w.rig);
	assert_true(is_shut(pod));
	assert_int_equal(set(&rules, &reply), 0);
	assert_true(stands(pod));
	close(pod);
}

static void test_a_pod_that_the_gate_cannot_shut(void **state)
{
	(void)state;
	unlink(rig_at(w.rig, "pods.d/%s/cgroup", rig_pod_text));
	write_manifest();
	rig_stop(w.rig);
	assert_int_equal(broker_gate_shut(&w.rig->o), 1);
	name_cgroup("../../tmp");
	assert_int_equal(broker_gate_shut(&w.rig->o), 1);
	w.rig->o.redirect = false;
	assert_int_equal(broker_gate_shut(&w.rig->o), 0); /* nothing is asked of it */
	w.rig->o.redirect = true;
	rig_start(w.rig);
}

static void test_who_awaits_is_told_by_the_programs_maps(void **state)
{
	struct redirect_rules rules = strict_rules();
	int pod = place_cgroup(&w.place, "pod");
	struct link_packet reply;

	(void)state;
	write_manifest();
	assert_int_equal(set(&rules, &reply), 0);
	rig_stop(w.rig);
	w.rig->o.await = rig_pod_text;
	assert_int_equal(broker_gate_await(&w.rig->o), 0);
	w.rig->o.await = "web";
	assert_int_equal(broker_gate_await(&w.rig->o), 1);
	close(pod);
	/* What stands for a cgroup that was there says nothing of the next one. */
	assert_int_equal(rmdir(place_path(&w.place, "pod")), 0);
	pod = place_cgroup(&w.place, "pod");
	assert_false(stands(pod));
	rig_start(w.rig);
	rig_add(w.rig);
	assert_true(is_shut(pod));
	assert_false(stands(pod));
	assert_int_equal(set(&rules, &reply), 0);
	assert_true(stands(pod));
	close(pod);
}

#define SHUT_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
	    SHUT_TEST(test_by_a_manifest_alone),
	    SHUT_TEST(test_it_ends_with_the_manifest),
	    SHUT_TEST(test_its_cgroup_is_awaited),
	    SHUT_TEST(test_not_where_the_list_has_more),
	    SHUT_TEST(test_a_list_that_nobody_can_read_allows_nothing),
	    SHUT_TEST(test_not_a_pod_that_runs),
	    SHUT_TEST(test_what_is_set_takes_its_place),
	    SHUT_TEST(test_a_refused_pod_is_shut),
	    SHUT_TEST(test_by_the_workers_word),
	    SHUT_TEST(test_a_refusal_takes_nothing_away),
	    SHUT_TEST(test_a_pod_that_is_none_of_ours_is_let_go),
	    SHUT_TEST(test_the_gate_of_a_boot),
	    SHUT_TEST(test_a_pod_that_the_gate_cannot_shut),
	    SHUT_TEST(test_who_awaits_is_told_by_the_programs_maps),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
