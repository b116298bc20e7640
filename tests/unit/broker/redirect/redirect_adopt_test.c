/* redirect_adopt_test.c - what a broker finds that is not as the one before should have left
 * it.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c tests/fake/clock.c */
#include "broker/redirect/links.h"
#include "broker/redirect/supersede.h"
#include "common/mem.h"
#include "tests/fake/clock.h"
#include "tests/unit/broker/bpf.h"

static const struct uuid web = {{1, 2, 3}}, db = {{4, 5, 6}};
static const char web_pins[] = "pods/01020300-0000-0000-0000-000000000000",
		  db_pins[] = "pods/04050600-0000-0000-0000-000000000000";

/* Of the program behind a pin; 0: there is none. */
static uint32_t program_at(const struct place *p, const char *pod, const char *name)
{
	struct bpf_link_info info = {0};
	uint32_t len = sizeof(info);
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", pod, name);
	auto_close int fd = place_pin(p, path);
	return fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &len) ? info.prog_id : 0;
}

static bool is_ours(uint32_t id, const struct bpf_program *program)
{
	return id && id == redirect_program_id(bpf_program__fd(program));
}

static int cgroup_of(void *ctx, const struct uuid *pod)
{
	return place_cgroup(ctx, uuid_equal(pod, &web) ? "web" : "db");
}

/* As a pin is that is no link: no program can be put there. */
static void spoil(const struct place *p, const char *pod, const char *name)
{
	auto_close int map = place_pin(p, "map_ports");
	char path[256];

	snprintf(path, sizeof(path), "%s/agentd/v%d/%s/%s", p->bpffs, REDIRECT_LAYOUT, pod, name);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(bpf_obj_pin(map, path), 0);
}

static void test_one_pod_that_fails_is_alone_with_it(void **state)
{
	struct place *p = *state;
	const struct redirect_targets at = {cgroup_of, place_no_fd, place_no_directory, p};
	auto_close int one = place_cgroup(p, "web"), other = place_cgroup(p, "db"),
		       netns = place_netns("");
	const struct redirect_rules rules = good_rules();
	uint32_t lookup;

	place_set(p, &web, one, &rules);
	place_live(p, &web, netns, 7);
	place_set(p, &db, other, &rules);
	lookup = program_at(p, web_pins, "redirect_lookup");
	redirect_free(&p->r);
	spoil(p, web_pins, "redirect_getsockopt");
	place_start(p);
	assert_true(
	    is_ours(program_at(p, db_pins, "redirect_gate"), p->r->bpf->progs.redirect_gate));
	assert_true(
	    is_ours(program_at(p, web_pins, "redirect_gate"), p->r->bpf->progs.redirect_gate));
	assert_int_not_equal(program_at(p, web_pins, "redirect_lookup"), lookup);
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 1);
	assert_true(redirect_audit(p->r, &at).repaired > 0);
	assert_true(is_ours(
	    program_at(p, web_pins, "redirect_getsockopt"), p->r->bpf->progs.redirect_getsockopt));
}

/* What steers there goes on until somebody knows the network namespace again. */
static void test_a_lookup_that_fails_is_tried_again(void **state)
{
	struct place *p = *state;
	auto_close int cgroup = place_cgroup(p, "web"), netns = place_netns("");
	const struct redirect_rules rules = good_rules();

	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	redirect_free(&p->r);
	spoil(p, web_pins, "redirect_lookup");
	place_start(p);
	assert_false(redirect_gone(p->r, &web));
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 1);
	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	assert_int_equal(
	    program_at(p, web_pins, "redirect_lookup"), redirect_pod_find(p->r, &web)->lookup);
}

/* --- another layout --- */

static bool is_other(const struct place *p, const char *below)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/agentd/v0/%s", p->bpffs, below);
	return !access(path, F_OK);
}

static int entries_of_other(const struct place *p)
{
	char path[256];
	uint64_t key, next;
	int n = 0;

	snprintf(path, sizeof(path), "%s/agentd/v0/map_pods", p->bpffs);
	auto_close int fd = bpf_obj_get(path);
	for (void *at = NULL; !bpf_map_get_next_key(fd, at, &next); at = &key, n++)
		key = next;
	return n;
}

struct two {
	int top, web, db, netns;
	struct redirect_rules rules;
};

/* Of another layout: a pod that is live and one that is not. */
static struct two set_two(struct place *p)
{
	struct two t = {.top = place_cgroup(p, "."),
	    .web = place_cgroup(p, "web"),
	    .db = place_cgroup(p, "db"),
	    .netns = place_netns(""),
	    .rules = good_rules()};

	place_set(p, &web, t.web, &t.rules);
	place_live(p, &web, t.netns, 7);
	place_set(p, &db, t.db, &t.rules);
	place_make_other(p);
	return t;
}

static void close_two(const struct two *t)
{
	close(t->top);
	close(t->web);
	close(t->db);
	close(t->netns);
}

static int gates(int cgroup)
{
	return place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL);
}

static int dials(const struct two *t)
{
	return place_attached(t->top, BPF_CGROUP_INET4_CONNECT, NULL);
}

/* A minute later, at the next audit. */
static void last_answers_were_given(const struct place *p, const struct uuid *pod)
{
	fake_clock_pass_ms(REDIRECT_LAST_ANSWERS_MS);
	redirect_supersede_pod(p->r, redirect_pod_find(p->r, pod));
}

static void test_another_layout_goes_pod_by_pod(void **state)
{
	struct place *p = *state;
	struct two t = set_two(p);

	assert_int_equal(dials(&t), 2);
	assert_int_equal(entries_of_other(p), 2);
	place_set(p, &web, t.web, &t.rules);
	assert_int_equal(dials(&t), 2); /* the other pod is still theirs */
	assert_int_equal(entries_of_other(p), 1);
	assert_int_equal(gates(t.web), 1);
	assert_true(
	    is_ours(program_at(p, web_pins, "redirect_gate"), p->r->bpf->progs.redirect_gate));
	/* Theirs, too, for what they sent to Envoy. */
	assert_int_equal(place_attached(t.web, BPF_CGROUP_GETSOCKOPT, NULL), 2);
	/* Ours, where the gate needs it. */
	assert_int_equal(place_attached(t.web, BPF_CGROUP_INET_SOCK_CREATE, NULL),
	    !p->r->bpf->rodata->gate_knows_netns);
	assert_int_equal(place_attached(t.netns, BPF_SK_LOOKUP, NULL), 1); /* still theirs */
	place_live(p, &web, t.netns, 7);
	assert_int_equal(place_attached(t.netns, BPF_SK_LOOKUP, NULL), 1);
	assert_int_not_equal(program_at(p, web_pins, "redirect_lookup"), 0);
	assert_int_equal(place_attached(t.web, BPF_CGROUP_GETSOCKOPT, NULL), 2);
	assert_true(is_other(p, web_pins));
	last_answers_were_given(p, &web);
	assert_int_equal(place_attached(t.web, BPF_CGROUP_GETSOCKOPT, NULL), 1);
	assert_false(is_other(p, web_pins));
	assert_int_equal(gates(t.db), 1);
	assert_true(is_other(p, db_pins));
	place_set(p, &db, t.db, &t.rules);
	assert_int_equal(gates(t.db), 1);
	assert_int_equal(dials(&t), 2); /* their sockops accepts what they sent */
	last_answers_were_given(p, &db);
	assert_int_equal(dials(&t), 1);
	assert_false(is_other(p, ""));
	close_two(&t);
}

static void test_another_layout_without_pods_goes_at_once(void **state)
{
	struct place *p = *state;
	auto_close int top = place_cgroup(p, ".");

	place_make_other(p);
	assert_int_equal(place_attached(top, BPF_CGROUP_INET4_CONNECT, NULL), 1);
	assert_false(is_other(p, ""));
}

static void test_a_pod_that_fails_stays_with_the_other_layout(void **state)
{
	struct place *p = *state;
	struct two t = set_two(p);

	t.rules.cidrs[0].bits = 129; /* which the trie refuses */
	assert_int_equal(
	    redirect_set(p->r, &web, (struct redirect_where){t.web, -1}, &t.rules, &p->e), -1);
	assert_int_equal(entries_of_other(p), 2);
	assert_int_equal(gates(t.web), 1);
	assert_int_equal(place_attached(t.web, BPF_CGROUP_GETSOCKOPT, NULL), 1);
	assert_int_equal(place_attached(t.netns, BPF_SK_LOOKUP, NULL), 1);
	close_two(&t);
}

static void remove_one(void *ctx, const struct uuid *pod)
{
	struct place *p = ctx;

	redirect_remove(p->r, pod);
}

/* A sweep of what nobody names names them, and so does whoever removes one. */
static void test_pods_of_another_layout_are_removed_like_others(void **state)
{
	struct place *p = *state;
	struct two t = set_two(p);

	redirect_remove(p->r, &web);
	assert_int_equal(entries_of_other(p), 1);
	assert_int_equal(gates(t.web), 0);
	assert_int_equal(place_attached(t.netns, BPF_SK_LOOKUP, NULL), 0);
	assert_int_equal(gates(t.db), 1);
	redirect_pods(p->r, remove_one, p);
	assert_int_equal(gates(t.db), 0);
	assert_int_equal(dials(&t), 1);
	assert_false(is_other(p, ""));
	close_two(&t);
}

/* It died when both had the pod. */
static void test_a_broker_between_two_layouts_may_die(void **state)
{
	struct place *p = *state;
	struct two t = set_two(p);

	place_set(p, &web, t.web, &t.rules);
	place_restart(p);
	assert_int_equal(gates(t.web), 1);
	place_set(p, &web, t.web, &t.rules);
	place_live(p, &web, t.netns, 7);
	place_set(p, &db, t.db, &t.rules);
	assert_int_equal(place_attached(t.netns, BPF_SK_LOOKUP, NULL), 1);
	last_answers_were_given(p, &web);
	last_answers_were_given(p, &db);
	assert_int_equal(dials(&t), 1);
	assert_false(is_other(p, ""));
	close_two(&t);
}

/* --- what an older release pinned --- */

static void pin(const struct place *p, int fd, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/agentd/v%d/%s", p->bpffs, REDIRECT_LAYOUT, name);
	assert_int_equal(bpf_obj_pin(fd, path), 0);
	close(fd);
}

/* Links of a pod and of the node, and a map. */
static void test_pins_of_an_older_release_go(void **state)
{
	struct place *p = *state;
	auto_close int cgroup = place_cgroup(p, "web"), top = place_cgroup(p, ".");
	const int program = bpf_program__fd(p->r->bpf->progs.redirect_sockops);
	const struct redirect_rules rules = good_rules();
	const int of_node = place_names(p, "."),
		  at_top = place_attached(top, BPF_CGROUP_SOCK_OPS, NULL);

	place_set(p, &web, cgroup, &rules);
	pin(p, bpf_link_create(program, cgroup, BPF_CGROUP_SOCK_OPS, NULL),
	    "pods/01020300-0000-0000-0000-000000000000/redirect_meet");
	pin(p, bpf_link_create(program, top, BPF_CGROUP_SOCK_OPS, NULL), "link_redirect_older");
	pin(p, bpf_map_create(BPF_MAP_TYPE_SOCKHASH, "takers", 32, 8, 4, NULL), "map_takers");
	assert_int_equal(place_names(p, web_pins), 3);
	assert_int_equal(place_names(p, "."), of_node + 2);
	place_restart(p);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_SOCK_OPS, NULL), 0);
	assert_int_equal(place_attached(top, BPF_CGROUP_SOCK_OPS, NULL), at_top);
	assert_int_equal(place_names(p, web_pins), 2);
	assert_int_equal(place_names(p, "."), of_node);
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_GETSOCKOPT, NULL), 1);
}

#define BPF_TEST(f) cmocka_unit_test_setup_teardown(f, place_begin, place_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    BPF_TEST(test_one_pod_that_fails_is_alone_with_it),
	    BPF_TEST(test_a_lookup_that_fails_is_tried_again),
	    BPF_TEST(test_another_layout_goes_pod_by_pod),
	    BPF_TEST(test_another_layout_without_pods_goes_at_once),
	    BPF_TEST(test_a_pod_that_fails_stays_with_the_other_layout),
	    BPF_TEST(test_pods_of_another_layout_are_removed_like_others),
	    BPF_TEST(test_a_broker_between_two_layouts_may_die),
	    BPF_TEST(test_pins_of_an_older_release_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
