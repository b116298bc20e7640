/* bound_test.c - what keeps a pod that its worker wants to remove: files, volumes, a real cgroup.
 * LINK: tests/unit/broker/rig.c */
#include "broker/pods/bound.h"
#include "broker/pods/cgroup.h"
#include "tests/unit/broker/rig.h"
#include <signal.h>
#include <sys/prctl.h>

static char kubelet[64], cgroup[PATH_MAX + 64];

static void bound(const struct rig *r, const char *why)
{
	const char *is = pod_bound_by(&r->o, &rig_pod);

	if (!why != !is || (why && !strstr(is, why)))
		fail_msg("bound by \"%s\", not \"%s\"", is ? is : "nothing", why ? why : "nothing");
}

static void add_kubelet(struct rig *r)
{
	snprintf(kubelet, sizeof(kubelet), "%s", rig_at(r, "kubelet"));
	r->o.kubelet_root = kubelet;
}

static void test_a_manifest(void **state)
{
	struct rig *r = *state;

	bound(r, NULL);
	rig_shell("mkdir %s", r->manifests);
	rig_file(rig_at(r, "pods.d/%s.yaml", rig_pod_text), "");
	bound(r, "manifest");
	add_kubelet(r);
	bound(r, "manifest");
	unlink(rig_at(r, "pods.d/%s.yaml", rig_pod_text));
	bound(r, NULL);
}

static void make_cgroup(struct rig *r)
{
	struct broker_options here = {.cgroup_root = NULL};
	char root[PATH_MAX], name[64];

	assert_int_equal(pod_cgroup_root(&here, root), 0);
	snprintf(name, sizeof(name), "broker_bound_test.%d", getpid());
	snprintf(cgroup, sizeof(cgroup), "%s/%s", root, name);
	rig_shell("mkdir -p %s/%s", r->manifests, rig_pod_text);
	rig_file(rig_at(r, "pods.d/%s/cgroup", rig_pod_text), name);
	assert_int_equal(chmod(rig_at(r, "pods.d/%s/cgroup", rig_pod_text), 0600), 0);
}

/* The worker can unmount it, but cannot end the pod's processes. */
static void test_a_volume_with_processes(void **state)
{
	struct rig *r = *state;
	char volume[PATH_MAX];
	pid_t pid;

	make_cgroup(r);
	add_kubelet(r);
	snprintf(volume, sizeof(volume), "%s",
	    rig_at(r, "kubelet/pods/%s/volumes/kubernetes.io~csi/mesh", rig_pod_text));
	rig_shell("mkdir -p %s", volume);
	bound(r, NULL); /* refused before its sandbox was made */
	assert_int_equal(mkdir(cgroup, 0755), 0);
	bound(r, NULL);
	if (!(pid = fork())) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	rig_shell("echo %d > %s/cgroup.procs", pid, cgroup);
	bound(r, "processes");
	assert_int_equal(rmdir(volume), 0);
	bound(r, NULL);
	rig_shell("mkdir %s", volume);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (int i = 0; rmdir(cgroup) && errno == EBUSY && i < 30000; i++)
		usleep(1000);
	bound(r, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_a_manifest, rig_setup, rig_teardown),
	    cmocka_unit_test_setup_teardown(test_a_volume_with_processes, rig_setup, rig_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
