/* broker_redirect_adopt_test.c - what a broker finds that is not as the one before should have left
 * it.
 */
#include "../../../agentd/base/mem.h"
#include "../../../agentd/priv/broker/traffic/broker_redirect_links.h"
#include "broker_bpf.h"

static const struct uuid web = {{1, 2, 3}}, db = {{4, 5, 6}};
static const char web_pins[] = "pods/01020300-0000-0000-0000-000000000000",
		  db_pins[] = "pods/04050600-0000-0000-0000-000000000000";

static int setup(void **state)
{
	static struct place p;

	place_setup(&p);
	place_start(&p);
	*state = &p;
	return 0;
}

static int teardown(void **state)
{
	place_teardown(*state);
	return 0;
}

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
	const struct broker_redirect_targets at = {cgroup_of, place_no_fd, place_no_directory, p};
	auto_close int one = place_cgroup(p, "web"), other = place_cgroup(p, "db"),
		       netns = place_netns("");
	const struct redirect_rules rules = good_rules();
	uint32_t lookup;

	place_set(p, &web, one, &rules);
	place_live(p, &web, netns, 7);
	place_set(p, &db, other, &rules);
	lookup = program_at(p, web_pins, "redirect_lookup");
	broker_redirect_free(&p->r);
	spoil(p, web_pins, "redirect_getsockopt");
	place_start(p);
	assert_true(
	    is_ours(program_at(p, db_pins, "redirect_gate"), p->r->bpf->progs.redirect_gate));
	assert_true(
	    is_ours(program_at(p, web_pins, "redirect_gate"), p->r->bpf->progs.redirect_gate));
	assert_int_not_equal(program_at(p, web_pins, "redirect_lookup"), lookup);
	assert_int_equal(place_attached(netns, BPF_SK_LOOKUP, NULL), 1);
	assert_true(broker_redirect_audit(p->r, &at).repaired > 0);
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
	broker_redirect_free(&p->r);
	spoil(p, web_pins, "redirect_lookup");
	place_start(p);
	assert_false(broker_redirect_gone(p->r, &web));
	assert_int_equal(place_attached(cgroup, BPF_CGROUP_INET_INGRESS, NULL), 1);
	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	assert_int_equal(
	    program_at(p, web_pins, "redirect_lookup"), redirect_pod_find(p->r, &web)->lookup);
}

#define BPF_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    BPF_TEST(test_one_pod_that_fails_is_alone_with_it),
	    BPF_TEST(test_a_lookup_that_fails_is_tried_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
