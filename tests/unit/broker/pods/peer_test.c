/* peer_test.c - real cgroups and processes: whose connection is it, on each kind of kernel.
 *
 * Each test runs once for each of the three ways that this kernel has (tests/vm: all, two, one).
 * LINK: tests/unit/broker/pods/peer.c tests/unit/broker/rig.c */
#include "broker/base/fdstore.h"
#include "broker/base/state.h"
#include "broker/pods/cgroup.h"
#include "broker/pods/peer.h"
#include "common/err.h"
#include "common/pidfd.h"
#include "peer.h"
#include <linux/sched.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>

enum { OLD_ENOUGH_MS = 320 };

/* CLOCK_BOOTTIME stands still: a peer stays young, however slow the machine is, until it grows old.
 */
static struct timespec boot;

int clock_gettime(clockid_t id, struct timespec *t)
{
	if (id == CLOCK_BOOTTIME && boot.tv_sec) {
		*t = boot;
		return 0;
	}
	return (int)syscall(SYS_clock_gettime, id, t);
}

static void set_boot_ahead(int64_t ms)
{
	assert_int_equal(syscall(SYS_clock_gettime, CLOCK_BOOTTIME, &boot), 0);
	const int64_t ns = boot.tv_nsec + ms * 1000000;
	boot.tv_sec += ns / 1000000000;
	boot.tv_nsec = ns % 1000000000;
}

struct world {
	enum pod_peer_way way;
	char path[PATH_MAX]; /* of the cgroup for everything; below it `pod`, `pod/a/b`, `other` */
	int pod;             /* a directory */
	int listener;
	struct sockaddr_un address;
};

static const char *const cgroups[] = {"", "/pod", "/pod/a", "/pod/a/b", "/other", "/other/a"};
enum { CGROUPS = sizeof(cgroups) / sizeof(*cgroups) };

static struct world begin(enum pod_peer_way way)
{
	struct broker_options here = {.cgroup_root = NULL};
	struct world w = {.way = way, .address = {.sun_family = AF_UNIX}};
	char root[PATH_MAX], path[PATH_MAX + 32];

	set_boot_ahead(0);
	assert_int_equal(pod_cgroup_root(&here, root), 0);
	snprintf(w.path, sizeof(w.path), "%.3000s/broker_peer_test.%d", root, getpid());
	for (int i = 0; i < CGROUPS; i++) {
		snprintf(path, sizeof(path), "%s%s", w.path, cgroups[i]);
		assert_int_equal(mkdir(path, 0755), 0);
	}
	snprintf(path, sizeof(path), "%s/pod", w.path);
	w.pod = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	/* An abstract name of our own: nothing to clean up. */
	snprintf(w.address.sun_path + 1, sizeof(w.address.sun_path) - 1, "peer_test.%d", getpid());
	w.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(w.listener, (struct sockaddr *)&w.address, sizeof(w.address)), 0);
	assert_int_equal(listen(w.listener, 64), 0);
	return w;
}

static void end(struct world *w)
{
	char path[PATH_MAX + 32];

	close(w->listener);
	close(w->pod);
	for (int i = CGROUPS; i-- > 0;) {
		snprintf(path, sizeof(path), "%s%s", w->path, cgroups[i]);
		for (int n = 0; rmdir(path) && errno == EBUSY && n < 30000; n++)
			usleep(1000);
	}
	assert_int_equal(access(w->path, F_OK), -1);
}

static uint64_t id_of(const struct world *w, const char *cgroup)
{
	char path[PATH_MAX + 32];
	struct stat st;

	snprintf(path, sizeof(path), "%s%s", w->path, cgroup);
	assert_int_equal(stat(path, &st), 0);
	return st.st_ino;
}

/* As the process `pid` (0: whichever is free) in that cgroup: connects and waits. */
struct caller {
	pid_t pid;
	int conn; /* accepted */
};

static pid_t fork_as(pid_t pid)
{
	struct clone_args args = {.exit_signal = SIGCHLD};

	if (pid) {
		args.set_tid = (uintptr_t)&pid;
		args.set_tid_size = 1;
	}
	return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

static pid_t in_cgroup(const struct world *w, const char *cgroup, pid_t as, bool connects)
{
	char procs[PATH_MAX + 64];
	int ready[2];
	char byte;

	snprintf(procs, sizeof(procs), "%s%s/cgroup.procs", w->path, cgroup);
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork_as(as);
	if (pid == 0) {
		int c = socket(AF_UNIX, SOCK_STREAM, 0), procs_fd = open(procs, O_WRONLY);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (write(procs_fd, "0", 1) != 1 ||
		    (connects &&
			connect(c, (const struct sockaddr *)&w->address, sizeof(w->address))) ||
		    write(ready[1], "x", 1) != 1)
			_exit(1);
		pause();
		_exit(0);
	}
	close(ready[1]);
	assert_true(pid > 0);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static struct caller call_from(const struct world *w, const char *cgroup)
{
	struct caller c = {.pid = in_cgroup(w, cgroup, 0, true)};

	c.conn = accept4(w->listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(c.conn >= 0);
	return c;
}

static void kill_pid(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void caller_end(struct caller *c)
{
	kill_pid(c->pid);
	close(c->conn);
}

/* errno, or 0 with the id. */
static int look(const struct world *w, const struct caller *c, uint64_t *id)
{
	struct err why = {.code = 0};

	return pod_peer_cgroup(w->way, c->conn, w->pod, id, &why) ? why.code : 0;
}

static void grow_old(const struct world *w)
{
	if (w->way == POD_PEER_BY_PID)
		set_boot_ahead(OLD_ENOUGH_MS);
}

static void in_all_ways(void (*test)(struct world *w))
{
	for (int way = (int)pod_peer_best_way(); way <= POD_PEER_BY_PID; way++) {
		struct world w = begin((enum pod_peer_way)way);

		test(&w);
		end(&w);
	}
}

static void whose(struct world *w)
{
	static const struct {
		const char *cgroup;
		int code;
	} cases[] = {{"/pod", 0}, {"/pod/a", 0}, {"/pod/a/b", 0}, {"", EACCES}, {"/other", EACCES},
	    {"/other/a", EACCES}};
	enum { N = sizeof(cases) / sizeof(*cases) };
	struct caller c[N];
	uint64_t id;

	for (int i = 0; i < N; i++)
		c[i] = call_from(w, cases[i].cgroup);
	grow_old(w);
	for (int i = 0; i < N; i++) {
		assert_int_equal(look(w, &c[i], &id), cases[i].code);
		assert_int_equal(id, cases[i].code ? 0 : id_of(w, cases[i].cgroup));
	}
	for (int i = 0; i < N; i++)
		caller_end(&c[i]);
}

static void test_the_pods_cgroup_and_those_below(void **state)
{
	(void)state;
	in_all_ways(whose);
}

/* The number of the one who connected is that of a process of the pod by now. */
static void reuse(struct world *w)
{
	int rounds = getenv("AGENTD_SOAK") ? 1000 : 50;
	uint64_t id;

	for (int i = 0; i < rounds; i++) {
		struct caller c = call_from(w, "/other");

		kill_pid(c.pid);
		pid_t impostor = in_cgroup(w, "/pod", c.pid, false);
		assert_int_equal(impostor, c.pid);
		assert_int_equal(pidfd_number_of_peer(c.conn), impostor);
		assert_int_equal(look(w, &c, &id), ESRCH);
		assert_int_equal(id, 0);
		caller_end(&c);
	}
}

static void test_a_number_that_was_given_again(void **state)
{
	(void)state;
	in_all_ways(reuse);
}

static void gone(struct world *w)
{
	struct caller c = call_from(w, "/pod");
	uint64_t id;

	grow_old(w);
	kill_pid(c.pid);
	assert_int_equal(look(w, &c, &id), ESRCH);
	close(c.conn);
}

static void test_a_peer_that_has_exited(void **state)
{
	(void)state;
	in_all_ways(gone);
}

/* Where only the number is known, it must be older than the connection can be. */
static void test_a_young_peer_comes_again(void **state)
{
	(void)state;
	struct world w = begin(POD_PEER_BY_PID);
	struct caller c = call_from(&w, "/pod");
	uint64_t id;

	assert_int_equal(look(&w, &c, &id), ESRCH);
	grow_old(&w);
	assert_int_equal(look(&w, &c, &id), 0);
	caller_end(&c);
	end(&w);
}

/* In a pid namespace of its own below ours a peer has a number here; we in one of ours below the
 * peer's have none for it. */
static void from_inside(struct world *w)
{
	struct caller c = call_from(w, "/pod");
	struct err why = {.code = 0};
	int status;
	uint64_t id;

	grow_old(w);
	pid_t outer = fork();
	if (outer == 0) {
		if (unshare(CLONE_NEWPID))
			_exit(101);
		pid_t inner = fork();
		if (inner == 0)
			_exit(pod_peer_cgroup(w->way, c.conn, w->pod, &id, &why) ? why.code : 0);
		_exit(waitpid(inner, &status, 0) == inner ? WEXITSTATUS(status) : 102);
	}
	assert_int_equal(waitpid(outer, &status, 0), outer);
	assert_int_equal(WEXITSTATUS(status), ENODATA);
	caller_end(&c);
}

static void test_a_peer_that_cannot_be_seen_is_not_known(void **state)
{
	(void)state;
	in_all_ways(from_inside);
}

/* Our own cgroup namespace need not be the root: nothing is read that depends on it. */
static void from_a_cgroup_namespace(struct world *w)
{
	struct caller c = call_from(w, "/pod/a"), d = call_from(w, "/other");
	char procs[PATH_MAX + 64];
	int status;
	uint64_t id;

	grow_old(w);
	snprintf(procs, sizeof(procs), "%s/other/a/cgroup.procs", w->path);
	pid_t child = fork();
	if (child == 0) {
		rig_file(procs, "0");
		if (unshare(CLONE_NEWCGROUP))
			_exit(101);
		_exit(look(w, &c, &id) || look(w, &d, &id) != EACCES);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(WEXITSTATUS(status), 0);
	caller_end(&c);
	caller_end(&d);
}

static void test_from_another_cgroup_namespace(void **state)
{
	(void)state;
	in_all_ways(from_a_cgroup_namespace);
}

static void test_this_kernel_has_the_best_way(void **state)
{
	struct utsname u;
	int major, minor;

	(void)state;
	assert_int_equal(uname(&u), 0);
	assert_int_equal(sscanf(u.release, "%d.%d", &major, &minor), 2);
	int version = major * 100 + minor;
	assert_int_equal(pod_peer_best_way(), version >= 613   ? POD_PEER_BY_INFO
					      : version >= 605 ? POD_PEER_BY_PIDFD
							       : POD_PEER_BY_PID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_this_kernel_has_the_best_way),
	    cmocka_unit_test(test_the_pods_cgroup_and_those_below),
	    cmocka_unit_test(test_a_number_that_was_given_again),
	    cmocka_unit_test(test_a_peer_that_has_exited),
	    cmocka_unit_test(test_a_young_peer_comes_again),
	    cmocka_unit_test(test_a_peer_that_cannot_be_seen_is_not_known),
	    cmocka_unit_test(test_from_another_cgroup_namespace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
