/* rows_test.c - a pod's rows in the real maps, as its rules and addresses change.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/ebpf/table.h"
#include "common/mem.h"
#include "ebpf/rules_types.h"
#include "tests/unit/broker/bpf.h"

static const struct uuid web = {{1, 2, 3}};

/* IPv4, excluded. */
static struct redirect_cidr range(uint32_t address, uint32_t bits)
{
	return (struct redirect_cidr){
	    {{0, 0, htobe32(0xffff), htobe32(address)}}, 96 + bits, REDIRECT_CIDR_EXCLUDE};
}

static int verdict(struct place *p, uint32_t address)
{
	struct redirect_question q = {
	    .flow = {.address = {{0, 0, htobe32(0xffff), htobe32(address)}},
		.uid = 1000,
		.gid = 1000,
		.port = 80,
		.protocol = IPPROTO_TCP}};

	return redirect_explain(p->r, &web, &q, &p->e);
}

static unsigned audited(struct place *p)
{
	return redirect_audit(p->r, &place_nowhere).repaired;
}

/* The trie answers for the narrower one while the wider is still there. */
static void test_a_range_becomes_narrower(void **state)
{
	struct place *p = *state;
	auto_close int cgroup = place_cgroup(p, "pod");
	struct redirect_rules rules = good_rules();

	place_set(p, &web, cgroup, &rules); /* 10.0.0.0/8 */
	rules.cidrs[0] = range(0x0a010000, 16);
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(place_rows(p, "cidrs"), 1);
	assert_int_equal(verdict(p, 0x0a010001), REDIRECT_PASS_CIDR_EXCLUDED);
	assert_int_equal(verdict(p, 0x0a020001), REDIRECT_TO_OUTBOUND);
	assert_int_equal(audited(p), 0);
}

static void test_a_range_that_was_taken_away_below_another_is_put_back(void **state)
{
	struct place *p = *state;
	auto_close int cgroup = place_cgroup(p, "pod"), fd = place_pin(p, "map_cidrs");
	struct redirect_cidr_key key = {.prefix = REDIRECT_CIDR_BITS + 96 + 16};
	struct redirect_rules rules = good_rules();

	rules.cidrs[rules.ncidrs++] = range(0x0a010000, 16);
	place_set(p, &web, cgroup, &rules);
	key.index = ebpf_index(p->r, &web);
	key.address = rules.cidrs[1].address;
	assert_int_equal(bpf_map_delete_elem(fd, &key), 0);
	assert_int_equal(audited(p), 1);
	assert_int_equal(place_rows(p, "cidrs"), 2);
	assert_int_equal(audited(p), 0);
}

static void add_port(struct place *p, uint32_t number)
{
	const struct redirect_port_key key = {ebpf_index(p->r, &web), REDIRECT_PORT_GROUP, number};
	auto_close int fd = place_pin(p, "map_ports");
	const uint8_t there = 1;

	assert_int_equal(bpf_map_update_elem(fd, &key, &there, BPF_ANY), 0);
}

/* A change costs what the pod has, not what all have: what others added is the audit's matter. */
static void test_a_change_looks_at_what_was_written(void **state)
{
	struct place *p = *state;
	auto_close int cgroup = place_cgroup(p, "pod"), netns = place_netns("");
	struct redirect_rules rules = good_rules();

	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	add_port(p, 5);
	rules.rows[0].number = 7777;
	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 8);
	assert_int_equal(place_rows(p, "cidrs"), 2);
	assert_int_equal(place_rows(p, "ports"), 3);
	assert_int_equal(audited(p), 1);
	assert_int_equal(place_rows(p, "ports"), 2);
}

/* In one walk at the start; so what is not asked for any more goes with the change. */
static void test_rows_of_an_earlier_broker_are_known(void **state)
{
	struct place *p = *state;
	auto_close int cgroup = place_cgroup(p, "pod"), netns = place_netns("");
	struct redirect_rules rules = good_rules();

	place_set(p, &web, cgroup, &rules);
	place_live(p, &web, netns, 7);
	place_restart(p);
	rules.nrows = 1;
	rules.ncidrs = 0;
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(place_rows(p, "ports"), 1);
	assert_int_equal(place_rows(p, "cidrs"), 1); /* what was seen still counts */
	place_live(p, &web, netns, 8);
	assert_int_equal(place_rows(p, "cidrs"), 1);
	assert_int_equal(verdict(p, 0x0a090008), REDIRECT_PASS_LOCAL);
	place_restart(p);
	redirect_remove(p->r, &web);
	assert_int_equal(place_rows(p, "ports"), 0);
	assert_int_equal(place_rows(p, "cidrs"), 0);
}

/* What it wrote is known, though the rules never came into force: nobody tampered. */
static void test_a_change_that_fails_half_way_is_swept(void **state)
{
	struct place *p = *state;
	auto_close int cgroup = place_cgroup(p, "pod");
	struct redirect_rules rules = good_rules(), bad = rules;

	place_set(p, &web, cgroup, &rules);
	bad.rows[1].number = 7777;
	bad.cidrs[0].bits = 129; /* which the trie refuses */
	assert_int_equal(
	    redirect_set(p->r, &web, (struct redirect_where){cgroup, -1}, &bad, &p->e), -1);
	assert_int_equal(place_rows(p, "ports"), 2); /* no audit is to find them */
	place_set(p, &web, cgroup, &rules);
	assert_int_equal(place_rows(p, "ports"), 2);
	assert_int_equal(audited(p), 0);
}

#define BPF_TEST(f) cmocka_unit_test_setup_teardown(f, place_begin, place_end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    BPF_TEST(test_a_range_becomes_narrower),
	    BPF_TEST(test_a_range_that_was_taken_away_below_another_is_put_back),
	    BPF_TEST(test_a_change_looks_at_what_was_written),
	    BPF_TEST(test_rows_of_an_earlier_broker_are_known),
	    BPF_TEST(test_a_change_that_fails_half_way_is_swept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
