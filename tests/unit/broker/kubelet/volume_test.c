/* volume_test.c - real mounts, in a mount namespace of the test: publish and unpublish.
 * LINK: tests/unit/broker/kubelet/volume_rig.c tests/unit/broker/rig.c */
#include "broker/base/caps.h"
#include "broker/kubelet/mount.h"
#include "common/err.h"
#include "volume_rig.h"
#include <signal.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

static const unsigned long restricted = ST_RDONLY | ST_NOSUID | ST_NODEV | ST_NOEXEC;

static int often(int in_soak, int here)
{
	return getenv("AGENTD_SOAK") ? in_soak : here;
}

static int begin(void **state)
{
	volume_setup(state);
	struct rig *r = *state;
	volume_make(r, rig_pod_text, "mesh");
	rig_add(r);
	r->volume = "mesh";
	return 0;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISDIR(st.st_mode);
}

static void a_pod_sees_its_directory_and_cannot_write(void **state)
{
	struct rig *r = *state;
	struct statvfs fs;
	struct stat a, b;

	assert_false(is_directory(target_at(r)));
	rig_do(r, publish(&rig_pod));
	assert_int_equal(stat(target_at(r), &a), 0);
	assert_int_equal(stat(rig_mount(r, ""), &b), 0);
	assert_true(a.st_dev == b.st_dev && a.st_ino == b.st_ino);
	assert_int_equal(statvfs(target_at(r), &fs), 0);
	assert_int_equal(fs.f_flag & restricted, restricted);
	rig_file(rig_mount(r, "later"), "x"); /* ours is not read-only */
	assert_int_equal(access(volume_at(r, rig_pod_text, "mesh", "mount/later"), R_OK), 0);
	assert_int_equal(unlink(volume_at(r, rig_pod_text, "mesh", "mount/later")), -1);
	assert_int_equal(errno, EROFS);
	rig_do(r, unpublish(&rig_pod));
	assert_false(is_directory(target_at(r)));
	assert_int_equal(mounts_with("kubernetes.io~csi"), 0);
	assert_int_equal(access(rig_mount(r, "later"), R_OK), 0);
	unlink(rig_mount(r, "later"));
}

static void many_publishes_leave_one_mount(void **state)
{
	struct rig *r = *state;

	for (int i = often(10000, 200); i; i--)
		rig_do(r, publish(&rig_pod));
	assert_int_equal(mounts_with("kubernetes.io~csi"), 1);
	rig_do(r, unpublish(&rig_pod));
	rig_do(r, unpublish(&rig_pod));
	assert_int_equal(mounts_with("kubernetes.io~csi"), 0);
}

/* All of them are in the socket before the first answer is read. */
static void a_crowd_leaves_one_mount_each(void **state)
{
	enum { CROWD = 64 };
	struct rig *r = *state;
	uint32_t last = 0;
	struct link_packet p;

	volume_make(r, rig_other_text, "mesh");
	rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_other});
	for (int i = 0; i < CROWD; i++)
		last = rig_request(r, publish(i % 2 ? &rig_pod : &rig_other));
	do {
		p = rig_expect(r, LINK_REPLY, NULL);
		assert_int_equal(p.code, 0);
	} while (p.id != last);
	assert_int_equal(mounts_with("kubernetes.io~csi"), 2);
	assert_int_equal(mounts_with(rig_other_text), 2); /* and its own file system */
	rig_do(r, unpublish(&rig_other));
	assert_int_equal(mounts_with("kubernetes.io~csi"), 1);
}

static void nothing_to_unpublish_is_fine(void **state)
{
	struct rig *r = *state;

	rig_do(r, unpublish(&rig_pod));
	rig_do(r, unpublish(&rig_other));
	r->volume = "another";
	rig_do(r, unpublish(&rig_pod));
	rig_refused(r, publish(&rig_pod), ENOENT, "kubelet's directory");
	rig_refused(r, publish(&rig_other), ENOENT, "not added");
	r->volume = "mesh";
	rig_shell("mkdir %s", target_at(r));
	rig_do(r, unpublish(&rig_pod)); /* after a reboot */
	assert_false(is_directory(target_at(r)));
}

static void what_is_not_ours_stays(void **state)
{
	struct rig *r = *state;

	rig_shell("mkdir %s && mount -t tmpfs theirs %s", target_at(r), target_at(r));
	rig_refused(r, publish(&rig_pod), EBUSY, "not agentd's");
	rig_refused(r, unpublish(&rig_pod), EBUSY, "not agentd's");
	assert_int_equal(mounts_with(" theirs "), 1);
	/* Another pod's directory is not this one's either. */
	rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_other});
	rig_shell("umount %s && mount --bind %s %s", target_at(r),
	    rig_at(r, "run/pods/%s/mount", rig_other_text), target_at(r));
	rig_refused(r, publish(&rig_pod), EBUSY, "not agentd's");
	rig_refused(r, unpublish(&rig_pod), EBUSY, "not agentd's");
	assert_int_equal(mounts_with("kubernetes.io~csi"), 1);
	/* Theirs on top of ours: neither goes. */
	rig_shell("umount %s", target_at(r));
	rig_do(r, publish(&rig_pod));
	rig_shell("mount -t tmpfs theirs %s", target_at(r));
	rig_refused(r, publish(&rig_pod), EBUSY, "not agentd's");
	rig_refused(r, unpublish(&rig_pod), EBUSY, "not agentd's");
	assert_int_equal(mounts_with("kubernetes.io~csi"), 2);
	rig_shell("umount %s", target_at(r));
	rig_do(r, unpublish(&rig_pod));
}

/* Its process in the pod has stopped, or never meant to answer. */
static void a_server_that_never_answers_is_not_asked(void **state)
{
	struct rig *r = *state;
	char options[80];
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fuse < 0 && (errno == ENOENT || errno == ENODEV))
		skip(); /* a virtual machine's kernel without its modules */
	assert_true(fuse >= 0);
	alarm(60); /* who waits for it is ended */
	rig_shell("mkdir %s", target_at(r));
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
	    fuse);
	assert_int_equal(mount("hung", target_at(r), "fuse", MS_NOSUID | MS_NODEV, options), 0);
	/* The kubelet says whose it is, or not even that. */
	for (int i = 0; i < 2; i++) {
		rig_refused(r, publish(&rig_pod), EBUSY, "not agentd's");
		rig_refused(r, unpublish(&rig_pod), EBUSY, "not agentd's");
		unlink(volume_at(r, rig_pod_text, "mesh", "vol_data.json"));
	}
	rig_request(r, (struct rig_ask){.op = LINK_VOLUMES}); /* as the next worker asks */
	assert_int_equal(rig_expect(r, LINK_VOLUME, NULL).state, LINK_VOLUME_DIRECTORY);
	rig_expect(r, LINK_REPLY, NULL);
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	assert_int_equal(mounts_with(" hung "), 1);
	assert_int_equal(umount2(target_at(r), MNT_DETACH), 0);
	close(fuse);
	alarm(0);
}

static void what_another_driver_has_is_not_opened(void **state)
{
	struct rig *r = *state;

	rig_file(volume_at(r, rig_pod_text, "mesh", "vol_data.json"),
	    "{\"driverName\":\"gcsfuse.csi.storage.gke.io\"}");
	rig_refused(r, publish(&rig_pod), EBUSY, "not agentd's");
	rig_refused(r, unpublish(&rig_pod), EBUSY, "not agentd's");
	assert_false(is_directory(target_at(r)));
}

/* Something in the directory is somebody's, too. */
static void a_directory_that_is_not_empty_stays(void **state)
{
	struct rig *r = *state;

	rig_shell("mkdir -p %s/theirs", target_at(r));
	rig_refused(r, unpublish(&rig_pod), ENOTEMPTY, "rmdir");
	assert_true(is_directory(target_at(r)));
}

static void a_pile_of_ours_goes_at_once(void **state)
{
	struct rig *r = *state;

	rig_do(r, publish(&rig_pod));
	for (int i = 0; i < 3; i++)
		rig_shell("mount --bind %s %s", rig_mount(r, ""), target_at(r));
	assert_int_equal(mounts_with("kubernetes.io~csi"), 4);
	rig_do(r, publish(&rig_pod));
	assert_int_equal(mounts_with("kubernetes.io~csi"), 4);
	rig_do(r, unpublish(&rig_pod));
	assert_int_equal(mounts_with("kubernetes.io~csi"), 0);
	assert_false(is_directory(target_at(r)));
}

/* Somebody removed the directory in <run>: what is mounted is one that nobody can reach. */
static void a_mount_of_a_directory_that_is_gone_is_replaced(void **state)
{
	struct rig *r = *state;
	struct stat a, b;

	rig_do(r, publish(&rig_pod));
	rig_shell("rmdir %s && mkdir %s", rig_mount(r, ""), rig_mount(r, ""));
	rig_do(r, publish(&rig_pod));
	assert_int_equal(mounts_with("kubernetes.io~csi"), 1);
	assert_true(!stat(target_at(r), &a) && !stat(rig_mount(r, ""), &b));
	assert_int_equal(a.st_ino, b.st_ino);
	rig_shell("rmdir %s", rig_mount(r, ""));
	rig_do(r, unpublish(&rig_pod));
	assert_int_equal(mounts_with("kubernetes.io~csi"), 0);
}

static void a_name_is_a_label(void **state)
{
	static const char *const bad[] = {"", ".", "..", "/", "a/b", "../mesh", "-a", "a-", "A",
	    "a_b", "a.b", "a b", "mesh\n",
	    "0123456789012345678901234567890123456789012345678901234567890123"};
	struct rig *r = *state;

	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		r->volume = bad[i];
		rig_refused(r, publish(&rig_pod), EINVAL, "DNS label");
		rig_refused(r, unpublish(&rig_pod), EINVAL, "DNS label");
	}
	r->volume = "012345678901234567890123456789012345678901234567890123456789012";
	volume_make(r, rig_pod_text, r->volume);
	rig_do(r, publish(&rig_pod));
	rig_do(r, unpublish(&rig_pod));
}

static void a_published_pod_is_not_removed(void **state)
{
	struct rig *r = *state;
	const struct rig_ask remove = {.op = LINK_POD_REMOVE, .pod = &rig_pod};

	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	rig_do(r, publish(&rig_pod));
	rig_refused(r, remove, EBUSY, "unpublish it first");
	assert_int_equal(access(rig_mount(r, "socket"), F_OK), 0);
	rig_do(r, unpublish(&rig_pod));
	rig_do(r, remove);
	assert_false(is_directory(rig_mount(r, "")));
}

static void without_a_kubelet_all_is_refused(void **state)
{
	struct rig *r = *state;
	int pair[2];

	rig_stop(r);
	r->o.kubelet_root = NULL;
	r->o.manifests = r->manifests;
	rig_start(r);
	rig_add(r);
	rig_refused(r, publish(&rig_pod), EOPNOTSUPP, "--kubelet-root");
	rig_refused(r, unpublish(&rig_pod), EOPNOTSUPP, "--kubelet-root");
	rig_refused(r, (struct rig_ask){.op = LINK_VOLUMES}, EOPNOTSUPP, "--kubelet-root");
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	close(pair[0]);
	close(pair[1]);
}

/* --- links and races --- */

static void no_link_is_followed(void **state)
{
	static const char *const parts[] = {"kubelet/pods", "kubelet/pods/%s",
	    "kubelet/pods/%s/volumes", "kubelet/pods/%s/volumes/kubernetes.io~csi",
	    "kubelet/pods/%s/volumes/kubernetes.io~csi/mesh",
	    "kubelet/pods/%s/volumes/kubernetes.io~csi/mesh/mount"};
	struct rig *r = *state;

	rig_shell("cp -a %s %s && mkdir -p %s", rig_at(r, "kubelet/pods"), rig_at(r, "outside"),
	    rig_at(r, "outside/%s/volumes/kubernetes.io~csi/mesh/mount", rig_pod_text));
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		char part[256], way[512];
		snprintf(part, sizeof(part), parts[i], rig_pod_text);
		snprintf(way, sizeof(way), "%s/%s", r->top, part);
		if (i + 1 < sizeof(parts) / sizeof(*parts))
			assert_int_equal(rename(way, rig_at(r, "kubelet/aside")), 0);
		assert_int_equal(
		    symlink(rig_at(r, "outside%s", part + strlen("kubelet/pods")), way), 0);
		struct link_packet p = rig_ask(r, publish(&rig_pod), NULL);
		assert_true(p.code == ELOOP || p.code == ENOTDIR);
		p = rig_ask(r, unpublish(&rig_pod), NULL);
		assert_true(p.code == ELOOP || p.code == ENOTDIR);
		assert_int_equal(mounts_with(rig_at(r, "outside")), 0);
		assert_int_equal(unlink(way), 0);
		if (i + 1 < sizeof(parts) / sizeof(*parts))
			assert_int_equal(rename(rig_at(r, "kubelet/aside"), way), 0);
	}
	rig_do(r, publish(&rig_pod));
	assert_true(is_directory(
	    rig_at(r, "outside/%s/volumes/kubernetes.io~csi/mesh/mount", rig_pod_text)));
}

/* In a child: a component of the path and a link that leads outside change places for ever. */
static pid_t start_swapping(const struct rig *r, const char *part)
{
	char a[256], b[256];
	pid_t pid;

	snprintf(a, sizeof(a), "%s/kubelet/pods/%s%s", r->top, rig_pod_text, part);
	snprintf(b, sizeof(b), "%s/kubelet/swap", r->top);
	unlink(b);
	assert_int_equal(symlink(rig_at(r, "outside/%s%s", rig_pod_text, part), b), 0);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
}

static void stop_swapping(const struct rig *r, pid_t pid, const char *part)
{
	char a[256], b[256];
	struct stat st;

	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	snprintf(a, sizeof(a), "%s/kubelet/pods/%s%s", r->top, rig_pod_text, part);
	snprintf(b, sizeof(b), "%s/kubelet/swap", r->top);
	if (!lstat(a, &st) && S_ISLNK(st.st_mode))
		assert_int_equal(rename(a, rig_at(r, "kubelet/link")) || rename(b, a), 0);
	unlink(b);
	unlink(rig_at(r, "kubelet/link"));
}

static void a_race_leads_nowhere(void **state)
{
	static const char *const parts[] = {
	    "", "/volumes", "/volumes/kubernetes.io~csi", "/volumes/kubernetes.io~csi/mesh"};
	struct rig *r = *state;
	int mounted = 0, refused = 0;

	rig_shell("cp -a %s %s && mkdir -p %s", rig_at(r, "kubelet/pods"), rig_at(r, "outside"),
	    rig_at(r, "outside/%s/volumes/kubernetes.io~csi/mesh/mount", rig_pod_text));
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		pid_t pid = start_swapping(r, parts[i]);
		for (int n = often(10000, 300) / 4; n; n--) {
			struct link_packet p = rig_ask(r, publish(&rig_pod), NULL);
			*(p.code ? &refused : &mounted) += 1;
			assert_int_equal(mounts_with(rig_at(r, "outside")), 0);
			assert_true(mounts_with("kubernetes.io~csi/mesh/mount") <= 1);
			rig_ask(r, unpublish(&rig_pod), NULL);
			assert_int_equal(mounts_with(rig_at(r, "outside")), 0);
		}
		stop_swapping(r, pid, parts[i]);
		rig_do(r, unpublish(&rig_pod));
		assert_int_equal(mounts_with("kubernetes.io~csi"), 0);
		rig_do(r, publish(&rig_pod)); /* it all is as it was */
		rig_do(r, unpublish(&rig_pod));
	}
	assert_true(is_directory(
	    rig_at(r, "outside/%s/volumes/kubernetes.io~csi/mesh/mount", rig_pod_text)));
	print_message("mounted %d times, refused %d times\n", mounted, refused);
	assert_true(refused > 0);
}

/* --- how it is mounted --- */

/* What a kubelet in another mount namespace, which shares the place, sees of it. */
static void peers_see_it_read_only(struct rig *r, bool by_remount)
{
	struct err e = {.code = 0};
	struct statvfs fs;

	rig_shell("mkdir -p %s/a/t %s/b && mount --bind %s/a %s/a && mount --make-shared %s/a && "
		  "mount --bind %s/a %s/b",
	    r->top, r->top, r->top, r->top, r->top, r->top, r->top);
	int source = open(rig_mount(r, ""), O_PATH | O_DIRECTORY | O_CLOEXEC);
	int at = open(rig_at(r, "a/t"), O_PATH | O_DIRECTORY | O_CLOEXEC);
	int copy = by_remount ? kubelet_mount_copy_by_remount(source, rig_at(r, "run/staging"), &e)
			      : kubelet_mount_copy(source, rig_at(r, "run/staging"), &e);
	if (copy < 0 || kubelet_mount_attach(copy, at, &e))
		fail_msg("%s", e.msg);
	assert_int_equal(mounts_with("run/staging"), 0);
	assert_int_equal(statvfs(rig_at(r, "b/t"), &fs), 0);
	assert_int_equal(fs.f_flag & restricted, restricted);
	assert_int_equal(statvfs(rig_mount(r, ""), &fs), 0);
	assert_int_equal(fs.f_flag & ST_RDONLY, 0);
	assert_int_equal(kubelet_mount_detach(copy, &e), 0);
	assert_int_equal(mounts_with("/b/t "), 0);
	close(source);
	close(at);
	close(copy);
	rig_shell("umount %s/b && umount %s/a", r->top, r->top);
}

static void peers_see_it_read_only_too(void **state)
{
	peers_see_it_read_only(*state, false);
	peers_see_it_read_only(*state, true); /* as on a kernel before 5.12 */
}

/* What the node mounts where the pod's directory is, or above, is not the pod's. */
static void a_pod_sees_no_mounts_of_the_node(void **state)
{
	struct rig *r = *state;

	rig_shell("mount --rbind %s/run %s/run && mount --make-rshared %s/run && mkdir %s", r->top,
	    r->top, r->top, rig_mount(r, "x"));
	rig_do(r, publish(&rig_pod));
	rig_shell("mount -t tmpfs later %s", rig_mount(r, "x"));
	assert_int_equal(mounts_with(" later "), 1);
	rig_shell("umount %s && rmdir %s", rig_mount(r, "x"), rig_mount(r, "x"));
	rig_do(r, unpublish(&rig_pod));
	rig_shell("umount -l %s/run", r->top);
}

/* What the broker has when it serves: no capability to pass over modes, and 0750 directories. */
static void the_brokers_capabilities_suffice(void **state)
{
	struct rig *r = *state;
	struct err e;
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (broker_caps_bound(BROKER_CAPS, &e) || broker_caps_set(BROKER_CAPS, &e))
			_exit(1);
		rig_do(r, publish(&rig_pod));
		rig_do(r, publish(&rig_pod));
		rig_do(r, unpublish(&rig_pod));
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

#define VOLUME_TEST(f) cmocka_unit_test_setup_teardown(f, begin, volume_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    VOLUME_TEST(a_pod_sees_its_directory_and_cannot_write),
	    VOLUME_TEST(many_publishes_leave_one_mount),
	    VOLUME_TEST(a_crowd_leaves_one_mount_each),
	    VOLUME_TEST(nothing_to_unpublish_is_fine),
	    VOLUME_TEST(what_is_not_ours_stays),
	    VOLUME_TEST(a_server_that_never_answers_is_not_asked),
	    VOLUME_TEST(what_another_driver_has_is_not_opened),
	    VOLUME_TEST(a_directory_that_is_not_empty_stays),
	    VOLUME_TEST(a_pile_of_ours_goes_at_once),
	    VOLUME_TEST(a_mount_of_a_directory_that_is_gone_is_replaced),
	    VOLUME_TEST(a_name_is_a_label),
	    VOLUME_TEST(a_published_pod_is_not_removed),
	    VOLUME_TEST(without_a_kubelet_all_is_refused),
	    VOLUME_TEST(no_link_is_followed),
	    VOLUME_TEST(a_race_leads_nowhere),
	    VOLUME_TEST(peers_see_it_read_only_too),
	    VOLUME_TEST(a_pod_sees_no_mounts_of_the_node),
	    VOLUME_TEST(the_brokers_capabilities_suffice),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
