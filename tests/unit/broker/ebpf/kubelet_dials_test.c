/* probes_test.c - the programs that let the kubelet in, in the real kernel: when they are attached,
 * what they are told, what another broker finds, and who may change it.
 *
 * Whom they let in is the e2e tests' matter, and tests/vm's.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/ebpf/table.h"
#include "common/err.h"
#include "ebpf/rules_types.h"
#include "tests/unit/broker/bpf.h"

static const struct uuid web = {{1, 2, 3}}, db = {{4, 5, 6}};
static char trees[2 * PATH_MAX], kubelet[PATH_MAX];

static struct redirect_rules rules_with(uint32_t port)
{
	struct redirect_rules rules = good_rules();

	if (port)
		rules.rows[rules.nrows++] = (struct redirect_row){REDIRECT_PORT_PROBE, port};
	return rules;
}

static struct redirect_probing told(const struct place *p)
{
	struct redirect_probing out;
	const uint32_t zero = 0;
	int fd = place_pin(p, "map_probing");

	assert_int_equal(bpf_map_lookup_elem(fd, &zero, &out), 0);
	close(fd);
	return out;
}

static bool is_told(const struct place *p, unsigned port)
{
	return told(p).ports[port / 64] >> port % 64 & 1;
}

static int attached(int cgroup)
{
	return place_attached(cgroup, BPF_CGROUP_INET4_CONNECT, NULL) +
	       place_attached(cgroup, BPF_CGROUP_INET6_CONNECT, NULL) +
	       place_attached(cgroup, BPF_CGROUP_SOCK_OPS, NULL);
}

/* The pods' programs hang at `all`, those that the kubelet is seen by above it. */
static int begin(void **state)
{
	static struct place p;

	place_setup(&p);
	snprintf(kubelet, sizeof(kubelet), "%s", p.cgroup);
	memset(trees, 0, sizeof(trees));
	int n = snprintf(trees, sizeof(trees), "%s/nowhere", p.cgroup) + 1;
	snprintf(trees + n, sizeof(trees) - (size_t)n - 1, "%s/all/kubepods", p.cgroup);
	close(place_cgroup(&p, "all"));
	strcat(p.cgroup, "/all");
	p.at.root = kubelet;
	p.at.trees = trees;
	place_start(&p);
	*state = &p;
	return 0;
}

static int end(void **state)
{
	struct place *p = *state;

	p->cgroup[strlen(kubelet)] = '\0';
	place_teardown(p);
	return 0;
}

static int open_above(void)
{
	int fd = open(kubelet, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	assert_true(fd >= 0);
	return fd;
}

static void test_they_come_with_the_first_port(void **state)
{
	struct place *p = *state;
	int pod = place_cgroup(p, "pod"), other = place_cgroup(p, "other"), above = open_above();
	struct redirect_rules rules = rules_with(0);

	place_set(p, &db, other, &rules);
	assert_int_equal(attached(above), 0);
	rules = rules_with(8080);
	place_set(p, &web, pod, &rules);
	assert_int_equal(attached(above), 3);
	assert_true(is_told(p, 8080));
	assert_false(is_told(p, 8081));
	place_set(p, &db, other, &rules);
	redirect_remove(p->r, &web);
	assert_true(is_told(p, 8080)); /* of the other one */
	rules = rules_with(65535);
	place_set(p, &db, other, &rules);
	assert_false(is_told(p, 8080));
	assert_true(is_told(p, 65535));
	redirect_remove(p->r, &db);
	assert_false(is_told(p, 65535));
	assert_int_equal(attached(above), 3);
	close(pod);
	close(other);
	close(above);
}

static void test_trees_are_looked_for_each_time(void **state)
{
	struct place *p = *state;
	int pod = place_cgroup(p, "pod"), tree;
	const struct redirect_rules rules = rules_with(8080);
	struct redirect_probing there;
	struct stat st;

	place_set(p, &web, pod, &rules);
	assert_int_equal(told(p).trees[0].id, 0);
	for (int i = 0; i < 2; i++) {
		tree = place_cgroup(p, "kubepods");
		assert_int_equal(fstat(tree, &st), 0);
		if (i)
			assert_int_equal(redirect_audit(p->r, &place_nowhere).repaired, 0);
		else
			place_set(p, &web, pod, &rules);
		there = told(p);
		assert_int_equal(there.trees[0].id, st.st_ino);
		assert_int_equal(there.trees[0].level, p->r->top.level + 1);
		assert_int_equal(there.trees[1].id, 0);
		close(tree);
		rig_shell("rmdir %s/kubepods", p->cgroup); /* and it is made again: another one */
	}
	close(pod);
}

static void test_the_next_broker_goes_on(void **state)
{
	struct place *p = *state;
	int pod = place_cgroup(p, "pod"), above = open_above(), fd;
	const struct redirect_rules rules = rules_with(8080);
	uint32_t before[8] = {0}, after[8] = {0};

	place_set(p, &web, pod, &rules);
	place_attached(above, BPF_CGROUP_SOCK_OPS, before);
	place_restart(p);
	assert_int_equal(attached(above), 3);
	assert_int_equal(place_attached(above, BPF_CGROUP_SOCK_OPS, after), 1);
	assert_int_not_equal(before[0], after[0]); /* its own program, in the same link */
	assert_true(is_told(p, 8080));             /* nobody has told it of the pod yet */
	assert_int_equal(redirect_audit(p->r, &place_nowhere).repaired, 0);
	assert_true(is_told(p, 8080));
	fd = place_pin(p, "link_redirect_probe_sockops");
	assert_int_equal(bpf_link_detach(fd), 0);
	close(fd);
	rig_shell("rm %s/agentd/v%d/link_redirect_probe_sockops", p->bpffs, REDIRECT_LAYOUT);
	place_restart(p);
	assert_int_equal(attached(above), 3); /* for the ports that are told of */
	redirect_remove(p->r, &web);
	assert_false(is_told(p, 8080));
	close(pod);
	close(above);
}

static void test_what_was_changed_is_put_back(void **state)
{
	struct place *p = *state;
	int pod = place_cgroup(p, "pod"), above = open_above(), fd;
	const struct redirect_rules rules = rules_with(8080);
	const struct redirect_probing none = {.ports = {[1] = 1}};
	const uint32_t zero = 0;

	place_set(p, &web, pod, &rules);
	fd = place_pin(p, "map_probing");
	assert_int_equal(bpf_map_update_elem(fd, &zero, &none, BPF_ANY), 0);
	assert_int_equal(redirect_audit(p->r, &place_nowhere).repaired, 1);
	assert_true(is_told(p, 8080));
	assert_false(is_told(p, 64));
	close(fd);
	fd = place_pin(p, "link_redirect_probe_connect4");
	assert_int_equal(bpf_link_detach(fd), 0);
	assert_int_equal(attached(above), 2);
	assert_int_equal(redirect_audit(p->r, &place_nowhere).repaired, 1);
	assert_int_equal(attached(above), 3);
	close(fd);
	close(pod);
	close(above);
}

static void test_without_a_place_the_pod_is_refused(void **state)
{
	struct place *p = *state;
	int pod = place_cgroup(p, "pod");
	struct redirect_rules rules = rules_with(8080);
	const struct redirect_where at = {pod, -1};

	redirect_free(&p->r);
	p->at.root = "/nowhere";
	place_start(p);
	assert_int_equal(redirect_set(p->r, &web, at, &rules, &p->e), -1);
	assert_non_null(strstr(p->e.msg, "cgroup /nowhere"));
	assert_int_equal(place_rows(p, "pods"), 0);
	assert_false(is_told(p, 8080));
	rules = rules_with(0);
	place_set(p, &web, pod, &rules);
	close(pod);
}

/* As `agentctl redirect explain --probe` asks. */
static void test_it_is_explained(void **state)
{
	struct place *p = *state;
	int pod = place_cgroup(p, "pod"), tree;
	const struct redirect_rules rules = rules_with(8080);
	struct redirect_question q = {.inbound = 1,
	    .probe = 1,
	    .arrival = {.source = {{0, 0, htobe32(0xffff), htobe32(0x0a000002)}},
		.address = {{0, 0, htobe32(0xffff), htobe32(0x0a000001)}},
		.port = 8080}};
	struct redirect_question ask = q;

	place_set(p, &web, pod, &rules);
	assert_int_equal(redirect_explain(p->r, &web, &ask, &p->e), -1);
	assert_non_null(strstr(p->e.msg, "no kubepods tree"));
	tree = place_cgroup(p, "kubepods");
	place_set(p, &web, pod, &rules);
	ask = q;
	assert_int_equal(redirect_explain(p->r, &web, &ask, &p->e), REDIRECT_PASS_PROBE);
	ask = q;
	ask.probe = 0; /* strict, and not live */
	assert_int_equal(redirect_explain(p->r, &web, &ask, &p->e), REDIRECT_DROP_GATE);
	ask = q;
	ask.arrival.port = 8081;
	assert_int_equal(redirect_explain(p->r, &web, &ask, &p->e), REDIRECT_DROP_GATE);
	close(pod);
	close(tree);
}

#define PROBES_TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    PROBES_TEST(test_they_come_with_the_first_port),
	    PROBES_TEST(test_trees_are_looked_for_each_time),
	    PROBES_TEST(test_the_next_broker_goes_on),
	    PROBES_TEST(test_what_was_changed_is_put_back),
	    PROBES_TEST(test_without_a_place_the_pod_is_refused),
	    PROBES_TEST(test_it_is_explained),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
