/* redirect_adopt_test.c - what a broker finds that is not as the one before should have left
 * it.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/ebpf/links.h"
#include "common/mem.h"
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
	return id && id == ebpf_program_id(bpf_program__fd(program));
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
	    program_at(p, web_pins, "redirect_lookup"), ebpf_pod_find(p->r, &web)->lookup);
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
	    BPF_TEST(test_pins_of_an_older_release_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
