/* tree_test.c - a pod's directory as a file system of its own: what it can take, who finds it
 * again, what an earlier agentd left; and a pod that writes in it all the same.
 * LINK: tests/unit/broker/kubelet/volume_rig.c tests/unit/broker/rig.c */
#include "broker/base/caps.h"
#include "common/err.h"
#include "common/mem.h"
#include "tests/unit/broker/kubelet/volume_rig.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

enum { FILES_MIB = LINK_FILE_END + 1, AGAIN = 300 };

static int begin(void **state)
{
	volume_setup(state);
	struct rig *r = *state;
	volume_make(r, rig_pod_text, "mesh");
	r->volume = "mesh";
	return 0;
}

static int end(void **state)
{
	umount2(rig_at(*state, "container"), MNT_DETACH);
	return volume_teardown(state);
}

static const char *top(const struct rig *r)
{
	static char path[RIG_PATH];

	snprintf(path, sizeof(path), "%s/pods/%s", r->run, rig_pod_text);
	return path;
}

static struct statvfs room(const char *path)
{
	struct statvfs fs;

	assert_int_equal(statvfs(path, &fs), 0);
	return fs;
}

/* As runc 1.2 and newer gives it to a container whose pod leaves readOnly out. */
static const char *writable(const struct rig *r)
{
	const char *at = rig_at(r, "container");

	rig_shell("mkdir -p %s && mount --bind %s %s && mount -o remount,bind,rw,exec,suid,dev %s",
	    at, target_at(r), at, at);
	return at;
}

/* First its bytes, then its names. */
static void fill(const char *dir)
{
	static const char block[1 << 16];
	char path[RIG_PATH];
	size_t bytes = 0;
	int names = 0, fd;

	for (snprintf(path, sizeof(path), "%s/0", dir);
	     (fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600)) >= 0;
	     snprintf(path, sizeof(path), "%s/%d", dir, ++names)) {
		while (write(fd, block, sizeof(block)) == sizeof(block))
			bytes += sizeof(block);
		assert_int_equal(errno, ENOSPC);
		close(fd);
	}
	assert_int_equal(errno, ENOSPC);
	assert_int_equal(bytes, FILES_MIB << 20);
	assert_in_range(names, 1, 63);
}

static void what_a_pod_writes_counts_against_it_alone(void **state)
{
	struct rig *r = *state;
	struct statvfs own;

	rig_add(r);
	rig_do(r, publish(&rig_pod));
	assert_int_not_equal(rig_stat(top(r)).st_dev, rig_stat(r->run).st_dev);
	own = room(top(r));
	assert_int_equal(own.f_blocks * own.f_frsize, FILES_MIB << 20);
	assert_int_equal(own.f_files, 64);
	assert_int_equal(rig_mode(top(r)), 0700);
	assert_int_equal(rig_mode(rig_mount(r, "")), 0755);
	fill(writable(r));
	assert_int_equal(umount2(rig_at(r, "container"), 0), 0);
	rig_do(r, unpublish(&rig_pod));
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	assert_int_equal(access(top(r), F_OK), -1);
	assert_int_equal(mounts_with(rig_pod_text), 0);
}

/* Its files fit, each as large as it may be, also while one of them is replaced. */
static void the_largest_files_fit(void **state)
{
	struct rig *r = *state;
	auto_free char *text = malloc(LINK_FILE_SIZE_MAX);

	memset(text, 'x', LINK_FILE_SIZE_MAX);
	rig_add(r);
	for (int i = 0; i < 2; i++)
		for (unsigned kind = 0; kind < LINK_FILE_END; kind++) {
			int fd = rig_memfd(text, LINK_FILE_SIZE_MAX, RIG_SEALS);
			rig_do(r, (struct rig_ask){LINK_WRITE, kind, 0, &rig_pod, fd});
			close(fd);
		}
	for (unsigned kind = 0; kind < LINK_LISTENER_END; kind++)
		close(rig_listen(r, &rig_pod, kind));
}

static void the_next_broker_finds_it(void **state)
{
	struct rig *r = *state;
	struct stat before;

	rig_add(r);
	rig_do(r, publish(&rig_pod));
	before = rig_stat(rig_mount(r, ""));
	rig_stop(r);
	rig_start(r);
	rig_add(r);
	assert_true(rig_stat(rig_mount(r, "")).st_dev == before.st_dev &&
		    rig_stat(rig_mount(r, "")).st_ino == before.st_ino);
	rig_do(r, publish(&rig_pod));
	assert_int_equal(mounts_with(rig_pod_text), 2);
	assert_int_equal(rig_stat(target_at(r)).st_dev, before.st_dev);
}

/* By root: the volume shows what nobody can reach, and is mounted again. */
static void one_that_was_unmounted_is_made_again(void **state)
{
	struct rig *r = *state;

	rig_add(r);
	rig_do(r, publish(&rig_pod));
	rig_shell("umount -l %s", top(r));
	rig_stop(r);
	rig_start(r);
	rig_add(r);
	rig_do(r, publish(&rig_pod));
	assert_int_equal(mounts_with(rig_pod_text), 2);
	assert_int_equal(rig_stat(target_at(r)).st_dev, rig_stat(rig_mount(r, "")).st_dev);
}

/* Nothing is mounted for a machine's pod: its unit may not (systemd/agentd.service). */
static void a_manifests_pod_has_a_plain_one(void **state)
{
	struct rig *r = *state;
	static char manifests[RIG_PATH];

	rig_stop(r);
	snprintf(manifests, sizeof(manifests), "%s/pods.d", r->top);
	rig_shell("mkdir %s && touch %s/%s.yaml", manifests, manifests, rig_pod_text);
	r->o.manifests = manifests;
	rig_start(r);
	rig_add(r);
	assert_int_equal(mounts_with(rig_pod_text), 0);
	assert_int_equal(rig_stat(rig_mount(r, "")).st_dev, rig_stat(r->run).st_dev);
}

/* --- published by an agentd before this rule --- */

static void publish_as_before(struct rig *r)
{
	rig_shell("mkdir -p -m 0700 %s && mkdir -m 0755 %s/mount && mkdir -m 0750 %s && mount "
		  "--bind %s/mount %s",
	    top(r), top(r), target_at(r), top(r), target_at(r));
}

static void an_earlier_ones_directory_stays(void **state)
{
	struct rig *r = *state;
	ino_t before;
	int fd;

	publish_as_before(r);
	before = rig_stat(rig_mount(r, "")).st_ino;
	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	rig_do(r, publish(&rig_pod));
	assert_int_equal(rig_stat(rig_mount(r, "")).st_ino, before);
	assert_int_equal(mounts_with(rig_pod_text), 1);
	assert_int_equal(access(volume_at(r, rig_pod_text, "mesh", "mount/socket"), F_OK), 0);
	/* Its containers may write there: what they take away stays away, and the row says so. */
	assert_int_equal(unlink(rig_mount(r, "socket")), 0);
	for (struct link_packet p = {0}; p.what != LINK_POD_NOTE;) {
		broker_turn(r->b, 1000);
		if (!rig_next(r, &p, &fd))
			continue;
		assert_int_equal(p.what, LINK_POD_NOTE);
		assert_int_equal(p.code, EPERM);
		assert_non_null(strstr(p.why, "restart the pod, with readOnly: true"));
	}
	assert_int_equal(access(rig_mount(r, "socket"), F_OK), -1);
	/* 300 MB of it would stay in the node's memory. */
	rig_file(volume_at(r, rig_pod_text, "mesh", "mount/stranger"), "x");
	rig_do(r, unpublish(&rig_pod));
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	assert_int_equal(access(top(r), F_OK), -1);
}

/* A program of the pod's that gives names of its own to what leads out, as fast as it can. */
static pid_t exchange_names(const char *dir, const char *victim)
{
	static const char *const names[] = {
	    "socket", ".socket.new", "root-cert.pem", ".root-cert.pem.new", ".XDS.new", "XDS"};
	pid_t pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (chdir(dir))
		_exit(1);
	for (unsigned i = 0;; i++) {
		const char *name = names[i % (sizeof(names) / sizeof(*names))];

		unlink("bait");
		if (symlink(victim, "bait") || rename("bait", name))
			rmdir(name);
	}
}

/* Whatever else is said meanwhile. */
static void done(struct rig *r, struct rig_ask a)
{
	const uint32_t id = rig_request(r, a);
	struct link_packet p = {.what = 0};
	int fd = -1;

	while (p.what != LINK_REPLY) {
		if (fd >= 0)
			close(fd);
		assert_true(rig_next(r, &p, &fd));
	}
	assert_int_equal(p.id, id);
	assert_int_equal(p.code, 0);
	if (fd >= 0)
		close(fd);
}

static void no_name_of_a_pods_leads_out(void **state)
{
	struct rig *r = *state;
	char victim[RIG_PATH];
	pid_t pid;

	snprintf(victim, sizeof(victim), "%s/victim", r->top);
	rig_file(victim, "of the node");
	chmod(victim, 0600);
	publish_as_before(r);
	pid = exchange_names(writable(r), victim);
	rig_add(r);
	for (int i = 0; i < AGAIN; i++) { /* as each next worker asks */
		int memfd = rig_memfd("root", 4, RIG_SEALS);

		for (unsigned kind = 0; kind < LINK_LISTENER_END; kind++)
			done(r, (struct rig_ask){LINK_LISTEN, kind, 0, &rig_pod, 0});
		done(r, (struct rig_ask){LINK_WRITE, LINK_FILE_ROOT, 0, &rig_pod, memfd});
		close(memfd);
		assert_int_equal(rig_mode(victim), 0600);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	rig_shell(
	    "test \"$(cat %s)\" = 'of the node' && umount %s", victim, rig_at(r, "container"));
}

static void the_brokers_capabilities_suffice(void **state)
{
	struct rig *r = *state;
	struct err e;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (broker_caps_bound(BROKER_CAPS, &e) || broker_caps_set(BROKER_CAPS, &e))
			_exit(1);
		rig_add(r);
		close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
		rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
		_exit(access(top(r), F_OK) ? 0 : 2);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, begin, end)
	    T(what_a_pod_writes_counts_against_it_alone),
	    T(the_largest_files_fit),
	    T(the_next_broker_finds_it),
	    T(one_that_was_unmounted_is_made_again),
	    T(a_manifests_pod_has_a_plain_one),
	    T(an_earlier_ones_directory_stays),
	    T(no_name_of_a_pods_leads_out),
	    T(the_brokers_capabilities_suffice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
