/* kubepods_test.c - names of pods' cgroups, as the kubelet makes them (kubelet-csi.md 3c).
 *
 * In a directory of the test's own: it is names alone.
 * LINK: tests/unit/broker/rig.c */
#include "broker/pods/cgroup.h"
#include "tests/unit/broker/rig.h"

static const char uid[] = "a1b2c3d4-0000-4000-8000-0123456789ab";

struct world {
	char dir[32], paths[KUBEPODS_SIZE];
	int root;
	struct broker_options o;
};

static int setup(void **state)
{
	static struct world w;

	memset(&w, 0, sizeof(w));
	strcpy(w.dir, "/tmp/bkXXXXXX");
	assert_non_null(mkdtemp(w.dir));
	w.root = open(w.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	w.o.cgroup_root = w.dir;
	*state = &w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	close(w->root);
	rig_shell("rm -rf %s", w->dir);
	return 0;
}

/* As "a b c". */
static void expect_places(struct world *w, const char *wanted)
{
	char got[KUBEPODS_SIZE] = "";

	kubepods_find(&w->o, w->root, uid, w->paths);
	for (const char *p = w->paths; *p; p += strlen(p) + 1)
		snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s", *got ? " " : "", p);
	assert_string_equal(got, wanted);
}

#define CGROUPFS(tree) tree "/pod" ID " " tree "/burstable/pod" ID " " tree "/besteffort/pod" ID
#define SYSTEMD(tree, name)                                                                        \
	tree "/" name "-pod" ID_ ".slice " tree "/" name "-burstable.slice/" name                  \
	     "-burstable-pod" ID_ ".slice " tree "/" name "-besteffort.slice/" name                \
	     "-besteffort-pod" ID_ ".slice"
#define ID "a1b2c3d4-0000-4000-8000-0123456789ab"
#define ID_ "a1b2c3d4_0000_4000_8000_0123456789ab"

static void test_each_usual_tree(void **state)
{
	struct world *w = *state;
	char tree[PATH_MAX];

	expect_places(w, "");
	assert_false(kubepods_tree(&w->o, w->root, tree));
	static const struct {
		const char *make, *places;
	} trees[] = {
	    {"kubepods", CGROUPFS("kubepods")},
	    {"kubepods.slice", SYSTEMD("kubepods.slice", "kubepods")},
	    {"kubelet/kubepods", CGROUPFS("kubelet/kubepods")},
	    {"kubelet.slice/kubelet-kubepods.slice",
		SYSTEMD("kubelet.slice/kubelet-kubepods.slice", "kubelet-kubepods")},
	};
	for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
		rig_shell("mkdir -p %s/%s", w->dir, trees[i].make); /* after us */
		expect_places(w, trees[i].places);
		assert_true(kubepods_tree(&w->o, w->root, tree));
		assert_string_equal(tree, trees[i].make);
		rig_shell("rm -r %s/kube*", w->dir);
	}
}

/* There or not. */
static void test_where_trees_can_be(void **state)
{
	struct world *w = *state;
	static const char usual[] =
	    "/cg/kubepods.slice\0/cg/kubepods\0"
	    "/cg/kubelet.slice/kubelet-kubepods.slice\0/cg/kubelet/kubepods\0";

	kubepods_trees(&w->o, "/cg", w->paths);
	assert_memory_equal(w->paths, usual, sizeof(usual));
	w->o.kubepods = "a/kubepods";
	kubepods_trees(&w->o, "/cg", w->paths);
	assert_memory_equal(w->paths, "/cg/a/kubepods\0", sizeof("/cg/a/kubepods\0"));
}

/* The driver was changed, and nobody took the old tree away. */
static void test_two_trees(void **state)
{
	struct world *w = *state;
	char tree[PATH_MAX];

	rig_shell("mkdir %s/kubepods %s/kubepods.slice", w->dir, w->dir);
	expect_places(w, SYSTEMD("kubepods.slice", "kubepods") " " CGROUPFS("kubepods"));
	assert_false(kubepods_tree(&w->o, w->root, tree));
}

static void test_a_tree_that_is_named(void **state)
{
	struct world *w = *state;
	char tree[PATH_MAX], longest[256];

	rig_shell("mkdir %s/kubepods", w->dir);
	w->o.kubepods = "a.slice/a-b.slice/a-b-kubepods.slice";
	expect_places(w, SYSTEMD("a.slice/a-b.slice/a-b-kubepods.slice", "a-b-kubepods"));
	assert_false(kubepods_tree(&w->o, w->root, tree));
	rig_shell("mkdir -p %s/%s", w->dir, w->o.kubepods);
	assert_true(kubepods_tree(&w->o, w->root, tree));
	assert_string_equal(tree, w->o.kubepods);
	w->o.kubepods = "a/b/kubepods";
	expect_places(w, CGROUPFS("a/b/kubepods"));
	/* The longest that the flag takes. */
	memset(longest, 'x', sizeof(longest));
	strcpy(longest + sizeof(longest) - 7, ".slice");
	w->o.kubepods = longest;
	kubepods_find(&w->o, w->root, uid, w->paths);
	int n = 0;
	for (const char *p = w->paths; *p; p += strlen(p) + 1)
		n++;
	assert_int_equal(n, 3);
}

/* What a refused pod's events say: on Kubernetes nobody writes manifests. */
static void test_no_tree_is_said_in_words_of_the_node(void **state)
{
	struct world *w = *state;
	struct err e;

	assert_int_equal(pod_cgroup_paths(&w->o, uid, w->paths, &e), -1);
	assert_int_equal(e.code, ENOENT);
	assert_non_null(strstr(e.msg, "(--kubepods, the chart's value kubepods;"));
	assert_null(strstr(e.msg, "manifest"));
	w->o.manifests = "/etc/agentd/pods.d";
	assert_int_equal(pod_cgroup_paths(&w->o, uid, w->paths, &e), -1);
	assert_non_null(strstr(e.msg, "beside the manifest"));
}

/* With a --cgroup-root of the kubelet's own, and a pod with that name in a tree of its own. */
static void test_a_tree_that_people_would_find(void **state)
{
	static const char *const trees[] = {
	    "node-1/kubepods", "a.slice/a-b.slice/a-b-kubepods.slice", "x/y/z/kubepods.slice"};
	struct world *w = *state;
	char tree[PATH_MAX];

	assert_false(kubepods_look(w->root, tree));
	rig_shell("mkdir -p %s/system.slice/kubepods.service %s/node-1/pods", w->dir, w->dir);
	assert_false(kubepods_look(w->root, tree));
	for (size_t i = 0; i < sizeof(trees) / sizeof(trees[0]); i++) {
		rig_shell("mkdir -p %s/%s/besteffort", w->dir, trees[i]);
		assert_true(kubepods_look(w->root, tree));
		assert_string_equal(tree, trees[i]);
		expect_places(w, ""); /* nobody goes by it */
		rig_shell("rm -r %s/%s", w->dir, trees[i]);
	}
}

/* Who may make a cgroup may name it so. */
static void test_a_name_that_a_terminal_would_obey(void **state)
{
	struct world *w = *state;
	char tree[PATH_MAX];

	rig_shell("mkdir -p \"%s/$(printf 'a\\033[2J\\nb')/x\351-kubepods.slice\"", w->dir);
	assert_true(kubepods_look(w->root, tree));
	assert_string_equal(tree, "a?[2J?b/x?-kubepods.slice");
}

static void test_what_all_redirected_pods_are_below(void **state)
{
	struct world *w = *state;
	char top[POD_CGROUP_TOP_SIZE], wanted[64];

	rig_shell("mkdir %s/kubepods", w->dir);
	w->o.manifests = "/etc/agentd/pods.d"; /* which can name any cgroup */
	assert_int_equal(pod_cgroup_top(&w->o, top), 0);
	assert_string_equal(top, w->dir);
	w->o.manifests = NULL;
	assert_int_equal(pod_cgroup_top(&w->o, top), 0);
	snprintf(wanted, sizeof(wanted), "%s/kubepods", w->dir);
	assert_string_equal(top, wanted);
	w->o.redirect_cgroup = "mine";
	assert_int_equal(pod_cgroup_top(&w->o, top), 0);
	snprintf(wanted, sizeof(wanted), "%s/mine", w->dir);
	assert_string_equal(top, wanted);
	w->o.redirect_cgroup = NULL;
	rig_shell("rmdir %s/kubepods", w->dir);
	assert_int_equal(pod_cgroup_top(&w->o, top), 0);
	assert_string_equal(top, w->dir);
}

static void test_no_way_leads_out(void **state)
{
	struct world *w = *state;

	rig_shell(
	    "mkdir %s/x && ln -s x %s/kubepods && touch %s/kubepods.slice", w->dir, w->dir, w->dir);
	expect_places(w, "");
}

static void test_is_it_a_pods(void **state)
{
	static const char *const pods[] = {
	    "/kubepods/burstable/podx/y",
	    "/kubepods.slice/kubepods-podx.slice/cri-containerd-y.scope",
	    "/kubelet/kubepods/podx/y",
	    "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/z",
	    "/a.slice/a-b.slice/a-b-kubepods.slice/x",
	    "/../kubepods/podx", /* seen from below */
	    "kubepods",
	    "kubepods.slice/",
	    "//kubepods-burstable.slice",
	    "/a/b/kubepods-pod1.slice",
	    "/k0s/kubepods.slice",
	};
	static const char *const others[] = {"", "/", "/system.slice/kubelet.service",
	    "/system.slice/containerd.service", "/user.slice/user-0.slice/session-1.scope",
	    "/mykubepods", "/a-kubepods", "/x.slice/y-kubepod.slice", "/.slice",
	    "/x-kubepods.slices", "/mykubepods/a.slice"};

	(void)state;
	for (size_t i = 0; i < sizeof(pods) / sizeof(pods[0]); i++)
		if (!pod_cgroup_is_pods(pods[i]))
			fail_msg("%s", pods[i]);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (pod_cgroup_is_pods(others[i]))
			fail_msg("%s", others[i]);
}

#define NAMES_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    NAMES_TEST(test_each_usual_tree),
	    NAMES_TEST(test_where_trees_can_be),
	    NAMES_TEST(test_two_trees),
	    NAMES_TEST(test_a_tree_that_is_named),
	    NAMES_TEST(test_no_tree_is_said_in_words_of_the_node),
	    NAMES_TEST(test_a_tree_that_people_would_find),
	    NAMES_TEST(test_a_name_that_a_terminal_would_obey),
	    NAMES_TEST(test_what_all_redirected_pods_are_below),
	    NAMES_TEST(test_no_way_leads_out),
	    cmocka_unit_test(test_is_it_a_pods),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
