/* kubelet_caller_test.c - real processes in real cgroups: who is the kubelet?
 * LINK: tests/unit/broker/kubelet/volume_rig.c tests/unit/broker/rig.c */
#include "broker/pods/cgroup.h"
#include "broker/pods/kubelet_caller.h"
#include "broker/pods/peer.h"
#include "common/err.h"
#include "tests/unit/broker/kubelet/volume_rig.h"
#include <signal.h>
#include <sys/prctl.h>

enum { OLD_ENOUGH_US = 320 * 1000 };

/* --- a connection of a child --- */

struct caller {
	pid_t pid;
	int listener, accepted;
};

struct calls {
	const char *cgroup; /* it joins this one; NULL: ours */
	uid_t uid;
	bool exits;
};

static void connect_as(const struct calls *as, const struct sockaddr_un *to, socklen_t size)
{
	char procs[PATH_MAX + 16];
	int c = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (as->cgroup) {
		snprintf(procs, sizeof(procs), "%s/cgroup.procs", as->cgroup);
		rig_file(procs, "0");
	}
	if (as->uid && setuid(as->uid))
		_exit(1);
	if (connect(c, (const struct sockaddr *)to, size))
		_exit(2);
	if (!as->exits)
		pause();
	_exit(0);
}

static struct caller call(const struct calls *as)
{
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
				     (size_t)snprintf(to.sun_path + 1, sizeof(to.sun_path) - 1,
					 "caller_test.%d", getpid()) +
				     1);
	struct caller c = {.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};

	assert_int_equal(bind(c.listener, (struct sockaddr *)&to, size), 0);
	assert_int_equal(listen(c.listener, 4), 0);
	c.pid = fork();
	assert_true(c.pid >= 0);
	if (c.pid == 0)
		connect_as(as, &to, size);
	if (as->exits)
		assert_int_equal(waitpid(c.pid, NULL, 0), c.pid);
	else if (pod_peer_best_way() == POD_PEER_BY_PID)
		usleep(OLD_ENOUGH_US);
	c.accepted = accept(c.listener, NULL, NULL);
	assert_true(c.accepted >= 0);
	return c;
}

static void hang_up(struct caller *c)
{
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	close(c->accepted);
	close(c->listener);
}

static void refused(const struct calls *as, int code, const char *text)
{
	struct caller c = call(as);
	struct err e = {.code = 0};

	assert_int_equal(kubelet_caller_check(c.accepted, &e), -1);
	if (!strstr(e.msg, text))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, text);
	assert_int_equal(e.code, code);
	if (as->exits)
		close(c.accepted), close(c.listener);
	else
		hang_up(&c);
}

/* --- cgroups of our own --- */

struct tree {
	char top[PATH_MAX], pod[PATH_MAX], node[PATH_MAX];
};

static int tree_setup(void **state)
{
	static struct tree t;
	struct broker_options here = {.cgroup_root = NULL};
	char root[PATH_MAX];

	assert_int_equal(pod_cgroup_root(&here, root), 0);
	snprintf(t.top, sizeof(t.top), "%.3000s/caller_test.%d", root, getpid());
	snprintf(t.pod, sizeof(t.pod), "%.3500s/kubepods/burstable/pod1/c", t.top);
	snprintf(t.node, sizeof(t.node), "%.3500s/kubelet", t.top);
	rig_shell("mkdir -p %s %s", t.pod, t.node);
	*state = &t;
	return 0;
}

static int tree_teardown(void **state)
{
	const struct tree *t = *state;
	char cmd[PATH_MAX + 64];

	snprintf(cmd, sizeof(cmd), "find %.3000s -depth -type d -exec rmdir {} +", t->top);
	for (int i = 0; i < 6000 && !access(t->top, F_OK); i++)
		if (system(cmd)) /* NOLINT(cert-env33-c) */
			usleep(5000);
	return access(t->top, F_OK) ? 0 : -1;
}

static void the_nodes_kubelet_may_call(void **state)
{
	const struct tree *t = *state;
	struct caller c = call(&(struct calls){.cgroup = t->node});
	struct err e = {.code = 0};

	if (kubelet_caller_check(c.accepted, &e))
		fail_msg("%s", e.msg);
	hang_up(&c);
}

static void a_container_may_not(void **state)
{
	const struct tree *t = *state;

	refused(&(struct calls){.cgroup = t->pod}, EPERM, "in a pod: ");
}

static void others_may_not(void **state)
{
	const struct tree *t = *state;

	refused(&(struct calls){.cgroup = t->node, .uid = 4711}, EACCES, "uid 4711");
	refused(&(struct calls){.cgroup = t->node, .exits = true}, ESRCH, "exited");
}

/* Without the node's pid namespace or cgroup namespace nobody can be told from a pod. */
static void who_cannot_be_seen_may_not(void **state)
{
	const struct tree *t = *state;
	struct caller c = call(&(struct calls){.cgroup = t->node});
	struct err e;
	int status;
	pid_t pid = fork();

	if (pid == 0) { /* another root of cgroups: the caller is beside it */
		char procs[PATH_MAX + 16];
		snprintf(procs, sizeof(procs), "%s/cgroup.procs", t->pod);
		rig_file(procs, "0");
		if (unshare(CLONE_NEWCGROUP) || !kubelet_caller_check(c.accepted, &e))
			_exit(1);
		_exit(e.code == EPERM && strstr(e.msg, "cgroup namespace") ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWPID) || (pid = fork()) < 0)
			_exit(1);
		if (pid == 0)
			_exit(kubelet_caller_check(c.accepted, &e) && e.code == EPERM &&
				      strstr(e.msg, "hostPID")
				  ? 0
				  : 2);
		waitpid(pid, &status, 0);
		_exit(WEXITSTATUS(status));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	hang_up(&c);
}

static void only_a_connection_has_a_caller(void **state)
{
	struct err e;
	int pair[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
	assert_int_equal(kubelet_caller_check(pair[0], &e), -1);
	assert_int_equal(e.code, EINVAL);
	int tcp = socket(AF_INET, SOCK_STREAM, 0), file = memfd_create("x", MFD_CLOEXEC);
	assert_int_equal(kubelet_caller_check(tcp, &e), -1);
	assert_int_equal(e.code, EINVAL);
	assert_int_equal(kubelet_caller_check(file, &e), -1);
	assert_int_equal(e.code, EINVAL);
	close(pair[0]);
	close(pair[1]);
	close(tcp);
	close(file);
}

/* Through the worker's request, too. */
static void the_worker_is_told(void **state)
{
	struct rig *r = *state;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	rig_do(r, (struct rig_ask){.op = LINK_CALLER, .fd = pair[0]}); /* ourselves */
	close(pair[0]);
	close(pair[1]);
	int tcp = socket(AF_INET, SOCK_STREAM, 0);
	rig_refused(r, (struct rig_ask){.op = LINK_CALLER, .fd = tcp}, EINVAL,
	    "nor a stream of a unix socket");
	close(tcp);
}

#define TREE_TEST(f) cmocka_unit_test_setup_teardown(f, tree_setup, tree_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TREE_TEST(the_nodes_kubelet_may_call),
	    TREE_TEST(a_container_may_not),
	    TREE_TEST(others_may_not),
	    TREE_TEST(who_cannot_be_seen_may_not),
	    cmocka_unit_test(only_a_connection_has_a_caller),
	    cmocka_unit_test_setup_teardown(the_worker_is_told, volume_setup, volume_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
