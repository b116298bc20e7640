/* namespace_test.c - a node that is itself a container: a cgroup namespace, and a sysfs of its own
 * around the cgroup tree.  Nothing there shows how far below the host's root the tree begins.
 *
 * The whole program runs in such a node; its parent takes away what it leaves.
 * LINK: tests/unit/broker/bpf.c tests/unit/broker/rig.c */
#include "broker/redirect/pod.h"
#include "common/mem.h"
#include "tests/unit/broker/bpf.h"

static const struct uuid web = {{1, 2, 3}};
static struct place node;

static int begin(void **state)
{
	node.r = NULL;
	*state = &node;
	return 0;
}

static int end(void **state)
{
	struct place *p = *state;

	if (p->r)
		redirect_remove(p->r, &web);
	redirect_free(&p->r);
	umount2(p->bpffs, MNT_DETACH);
	return 0;
}

static uint64_t redirected(const struct place *p)
{
	struct redirect_counters baseline, now;
	uint32_t row = redirect_counted(p->r, &web, &baseline) - 1;

	assert_int_equal(bpf_map_lookup_elem(redirect_counters(p->r), &row, &now), 0);
	return now.n[REDIRECT_TO_OUTBOUND] - baseline.n[REDIRECT_TO_OUTBOUND];
}

static void test_a_dial_is_redirected(void **state)
{
	struct place *p = *state;
	auto_close int cgroup = place_cgroup(p, "pod");
	const struct redirect_rules rules = good_rules();

	place_start(p);
	place_set(p, &web, cgroup, &rules);
	place_dial(cgroup);
	assert_int_equal(redirected(p), 1);
}

/* By the next broker, too, before anybody has told it of the pod. */
static void test_also_in_a_class_and_by_the_next_broker(void **state)
{
	struct place *p = *state;
	const struct redirect_rules rules = good_rules();

	close(place_cgroup(p, "burstable"));
	auto_close int cgroup = place_cgroup(p, "burstable/pod");
	place_start(p);
	place_set(p, &web, cgroup, &rules);
	place_dial(cgroup);
	place_restart(p);
	place_dial(cgroup);
	assert_int_equal(redirected(p), 2);
}

/* All pods are below the very root of what is seen. */
static void test_the_root_of_the_namespace(void **state)
{
	struct place *p = *state;
	auto_close int cgroup = place_cgroup(p, "pod");
	const struct redirect_rules rules = good_rules();

	p->at.cgroup = p->root;
	place_start(p);
	p->at.cgroup = p->cgroup;
	place_set(p, &web, cgroup, &rules);
	place_dial(cgroup);
	assert_int_equal(redirected(p), 1);
}

/* A part of the tree that has none of our processes shows its levels to nobody. */
static void test_a_tree_that_we_are_not_in_is_refused(void **state)
{
	struct place *p = *state;
	char part[64];
	struct redirect_place at = p->at;

	close(place_cgroup(p, "pod"));
	snprintf(part, sizeof(part), "%s/part", p->top);
	rig_shell("mkdir -p %s && mount --bind %s %s", part, place_path(p, "pod"), part);
	at.cgroup = part;
	assert_null(redirect_new(&at, &p->e));
	assert_int_equal(p->e.code, EXDEV);
	rig_shell("umount %s", part);
}

/* The programs were loaded for one level; every pod is refused, not the next one only. */
static void test_a_tree_that_came_to_another_level(void **state)
{
	struct place *p = *state;
	const struct redirect_rules rules = good_rules();
	char all[64];

	close(place_cgroup(p, "one"));
	close(place_cgroup(p, "one/two"));
	close(place_cgroup(p, "same"));
	auto_close int pod = place_cgroup(p, "same/pod");
	const struct redirect_where at = {pod, -1};

	snprintf(all, sizeof(all), "%s/all", p->top);
	rig_shell("ln -s %s %s", place_path(p, "one"), all);
	p->at.cgroup = all;
	place_start(p);
	p->at.cgroup = p->cgroup;
	rig_shell("ln -sfn %s %s", place_path(p, "one/two"), all);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(redirect_set(p->r, &web, at, &rules, &p->e), -1);
		assert_int_equal(p->e.code, EXDEV);
	}
	rig_shell("ln -sfn %s %s", place_path(p, "same"), all);
	place_set(p, &web, pod, &rules);
	place_dial(pod);
	assert_int_equal(redirected(p), 1);
}

/* As a container has it. */
static void enter(struct place *p)
{
	char path[PATH_MAX + 32];
	int procs;

	snprintf(path, sizeof(path), "%s/cgroup.procs", p->cgroup);
	procs = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(write(procs, "0", 1), 1);
	close(procs);
	assert_int_equal(unshare(CLONE_NEWCGROUP | CLONE_NEWNS), 0);
	snprintf(p->root, sizeof(p->root), "%s/sys/fs/cgroup", p->top);
	snprintf(p->cgroup, sizeof(p->cgroup), "%s/sys/fs/cgroup/pods", p->top);
	rig_shell("cd %s && mkdir sys && mount -t sysfs sysfs sys && "
		  "mount -t cgroup2 cgroup2 sys/fs/cgroup && mkdir -p sys/fs/cgroup/pods",
	    p->top);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_a_dial_is_redirected, begin, end),
	    cmocka_unit_test_setup_teardown(
		test_also_in_a_class_and_by_the_next_broker, begin, end),
	    cmocka_unit_test_setup_teardown(test_the_root_of_the_namespace, begin, end),
	    cmocka_unit_test_setup_teardown(test_a_tree_that_we_are_not_in_is_refused, begin, end),
	    cmocka_unit_test_setup_teardown(test_a_tree_that_came_to_another_level, begin, end),
	};
	int status;
	pid_t pid;

	place_setup(&node);
	pid = fork();
	if (pid == 0) {
		enter(&node);
		return cmocka_run_group_tests(tests, NULL, NULL);
	}
	waitpid(pid, &status, 0);
	place_teardown(&node);
	return status ? 1 : 0;
}
