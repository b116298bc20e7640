/* follow_test.c - files as they are, then every change, by real inotify.
 * LINK: tests/unit/broker/rig.c */
#include "common/err.h"
#include "tests/unit/broker/rig.h"
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>

/* What goes while the watch of `dir` is placed again. */
static struct {
	const char *dir, *file;
} going;

/* The kernel's, but for the moment at which a watch that is replaced sees nothing (Linux 6.18:
 * inotify_update_existing_watch() writes 0 before it writes the mask): that one is made long. */
int inotify_add_watch(int fd, const char *path, uint32_t mask)
{
	if (going.dir && !strcmp(path, going.dir)) {
		going.dir = NULL;
		if (!(mask & IN_MASK_ADD))
			assert_true(syscall(SYS_inotify_add_watch, fd, path, IN_OPEN) >= 0);
		assert_int_equal(unlink(going.file), 0);
	}
	return (int)syscall(SYS_inotify_add_watch, fd, path, mask);
}

static const struct rig_ask kubelet_pod = {LINK_FOLLOW, LINK_FOLLOW_KUBELET_POD, 0, &rig_pod, 0};

static uint32_t follow(struct rig *r, enum link_followed what, unsigned plane)
{
	bool of_pod =
	    what == LINK_FOLLOW_TOKEN || what == LINK_FOLLOW_KEY || what == LINK_FOLLOW_KUBELET_POD;

	rig_do(r, (struct rig_ask){LINK_FOLLOW, what, plane, of_pod ? &rig_pod : NULL, 0});
	return r->id;
}

/* A root file in a plain directory that is there. */
static uint32_t follow_root(struct rig *r, const char *text)
{
	rig_shell("mkdir -p %s", rig_at(r, "certs"));
	if (text)
		rig_file(r->root, text);
	return follow(r, LINK_FOLLOW_ROOT, 2);
}

static void replace(const char *path, const char *text)
{
	char temp[256];

	snprintf(temp, sizeof(temp), "%s.tmp", path);
	rig_file(temp, text);
	assert_int_equal(rename(temp, path), 0);
}

/* --- one file --- */

static void test_content_now_and_at_each_change(void **state)
{
	struct rig *r = *state;
	uint32_t id = follow_root(r, "one");

	rig_expect_content(r, id, "", "one");
	rig_quiet(r);
	replace(r->root, "two");
	rig_expect_content(r, id, "", "two");
	rig_file(r->root, "three"); /* in place: told when the writer closes */
	rig_expect_content(r, id, "", "three");
	assert_int_equal(unlink(r->root), 0);
	rig_expect_state(r, id, "", LINK_FILE_REMOVED, "root.pem is not there");
	rig_file(r->root, "four");
	rig_expect_content(r, id, "", "four");
	rig_quiet(r);
}

static void test_a_missing_file_is_told_once(void **state)
{
	struct rig *r = *state;
	uint32_t id = follow_root(r, NULL);

	rig_expect_state(r, id, "", LINK_FILE_REMOVED, "is not there");
	rig_file(rig_at(r, "certs/other.pem"), "x"); /* a neighbour is no news */
	rig_quiet(r);
}

/* By the same rules as roots, from a flag of its own. */
static void test_revocation_lists(void **state)
{
	struct rig *r = *state;
	const char *file = rig_at(r, "crl/ca.pem");
	uint32_t id;

	rig_refused(r, (struct rig_ask){LINK_FOLLOW, LINK_FOLLOW_CRL, 2, NULL, 0}, ENOENT,
	    "no --crl-file for control plane 2");
	r->o.crl_files[2] = file;
	rig_shell("mkdir -p %s", rig_at(r, "crl"));
	id = follow(r, LINK_FOLLOW_CRL, 2);
	rig_expect_state(r, id, "", LINK_FILE_REMOVED, "ca.pem is not there");
	rig_file(file, "a list");
	rig_expect_content(r, id, "", "a list");
	assert_int_equal(chmod(file, 0666), 0);
	rig_expect_state(r, id, "", LINK_FILE_REFUSED, "writable by others");
	assert_int_equal(chmod(file, 0662), 0);
	rig_quiet(r); /* the same reason is no news */
	rig_refused(r, (struct rig_ask){LINK_FOLLOW, LINK_FOLLOW_CRL, LINK_PLANES_MAX, NULL, 0},
	    ENOENT, "no --crl-file");
}

static void test_no_push_when_nothing_changed(void **state)
{
	struct rig *r = *state;
	uint32_t id = follow_root(r, "same");

	rig_expect_content(r, id, "", "same");
	replace(r->root, "same");
	rig_quiet(r);
	rig_file(r->root, "same");
	rig_quiet(r);
	assert_int_equal(chmod(r->root, 0400), 0);
	rig_quiet(r);
}

/* Sizes around the copy buffer and the limit arrive whole. */
static void test_large_files_arrive_whole(void **state)
{
	struct rig *r = *state;
	static char big[LINK_FILE_SIZE_MAX + 2], got[LINK_FILE_SIZE_MAX + 2];
	static const size_t sizes[] = {0, 1, 16384, 16385, 100000, LINK_FILE_SIZE_MAX};
	uint32_t id = follow_root(r, "first");

	rig_expect_content(r, id, "", "first");
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (size_t k = 0; k < sizes[i]; k++)
			big[k] = (char)('a' + (k * 7 + k / 1000 + i) % 26);
		big[sizes[i]] = '\0';
		replace(r->root, big);
		struct link_packet p = rig_next_file(r, id, got, sizeof(got));
		assert_int_equal(p.state, LINK_FILE_CONTENT);
		assert_string_equal(got, big);
	}
	memset(big, 'x', LINK_FILE_SIZE_MAX + 1);
	big[LINK_FILE_SIZE_MAX + 1] = '\0';
	replace(r->root, big);
	rig_expect_state(r, id, "", LINK_FILE_REFUSED, "larger than 1024 KiB");
}

static void test_rapid_rewrites_end_with_the_last(void **state)
{
	struct rig *r = *state;
	uint32_t id = follow_root(r, "start");
	char text[32], got[64] = "";
	struct link_packet p;
	int packets = 0, fd;

	rig_expect_content(r, id, "", "start");
	for (int i = 1; i <= 1000; i++) {
		snprintf(text, sizeof(text), "content %d", i);
		replace(r->root, text);
		if (i % 100 == 0)
			broker_turn(r->b, 0);
	}
	while (rig_next(r, &p, &fd)) {
		assert_int_equal(p.state, LINK_FILE_CONTENT);
		memset(got, 0, sizeof(got));
		assert_true(pread(fd, got, sizeof(got) - 1, 0) > 0);
		close(fd);
		packets++;
	}
	assert_string_equal(got, "content 1000");
	assert_in_range(packets, 1, 20); /* only the newest, not each */
}

/* A worker that does not read costs no memory: the newest content is there when it does. */
static void test_a_slow_worker_gets_the_newest(void **state)
{
	struct rig *r = *state;
	uint32_t id = follow_root(r, "start");
	char text[32], got[64];
	struct link_packet p;
	int fd, packets = 0;

	rig_expect_content(r, id, "", "start");
	for (int i = 1; i <= 3000; i++) {
		snprintf(text, sizeof(text), "content %d", i);
		replace(r->root, text);
		broker_turn(r->b, 0);
		broker_turn(r->b, 0);
	}
	for (int i = 0; i < RIG_TURNS; i++)
		broker_turn(r->b, 0);
	assert_true(rig_is_idle(r)); /* it does not spin */
	for (; rig_next(r, &p, &fd); packets++) {
		memset(got, 0, sizeof(got));
		assert_true(pread(fd, got, sizeof(got) - 1, 0) > 0);
		close(fd);
	}
	assert_string_equal(got, "content 3000");
	assert_in_range(packets, 10, 2999); /* the socket was full in between */
}

static void test_overflow_of_the_queue_is_a_rescan(void **state)
{
	struct rig *r = *state;
	uint32_t id = follow_root(r, "start");
	char noise[RIG_PATH], dir[RIG_PATH];
	int max = 16384;
	FILE *f = fopen("/proc/sys/fs/inotify/max_queued_events", "re");

	assert_true(f && fscanf(f, "%d", &max) == 1);
	fclose(f);
	rig_expect_content(r, id, "", "start");
	snprintf(dir, sizeof(dir), "%s", rig_at(r, "certs"));
	snprintf(noise, sizeof(noise), "%s", rig_at(r, "certs/noise"));
	rig_file(noise, "x");
	for (int i = 0; i <= max / 2; i++) { /* alternating: equal neighbours would be merged */
		assert_int_equal(chmod(noise, 0600 | (i & 1)), 0);
		assert_int_equal(chmod(dir, 0700), 0);
	}
	replace(r->root, "behind the overflow");
	rig_expect_content(r, id, "", "behind the overflow");
}

/* --- directories that come and go --- */

static void test_a_directory_may_appear_later(void **state)
{
	struct rig *r = *state;
	uint32_t id;

	snprintf(r->root, sizeof(r->root), "%s", rig_at(r, "a/b/c/root.pem"));
	id = follow(r, LINK_FOLLOW_ROOT, 2);
	rig_expect_state(r, id, "", LINK_FILE_REMOVED, "is not there");
	rig_shell("mkdir -p %s", rig_at(r, "a/b"));
	rig_quiet(r);
	rig_shell("mkdir %s", rig_at(r, "a/b/c"));
	rig_quiet(r);
	rig_file(r->root, "at last");
	rig_expect_content(r, id, "", "at last");

	rig_shell("rm -r %s", rig_at(r, "a")); /* and again */
	rig_expect_state(r, id, "", LINK_FILE_REMOVED, "is not there");
	rig_shell("mkdir -p %s && echo -n back > %s", rig_at(r, "a/b/c"), r->root);
	rig_expect_content(r, id, "", "back");
}

/* Renamed away and replaced: the watch must move to the new directory. */
static void test_a_directory_may_be_replaced(void **state)
{
	struct rig *r = *state;
	uint32_t id = follow_root(r, "old");

	rig_expect_content(r, id, "", "old");
	rig_shell(
	    "cd %s && mkdir new && echo -n new > new/root.pem && mv certs gone && mv new certs",
	    r->top);
	rig_expect_content(r, id, "", "new");
	rig_file(rig_at(r, "gone/root.pem"), "not ours any more");
	rig_quiet(r);
	replace(r->root, "newer");
	rig_expect_content(r, id, "", "newer");
}

/* A file where a directory should be is not there; and a link on the way is the operator's own. */
static void test_ways_to_the_directory(void **state)
{
	struct rig *r = *state;
	uint32_t id;

	rig_file(rig_at(r, "certs"), "a file");
	id = follow(r, LINK_FOLLOW_ROOT, 2);
	rig_expect_state(r, id, "", LINK_FILE_REFUSED, "cannot be opened");
	rig_shell(
	    "cd %s && mkdir real && echo -n linked > real/root.pem && ln -sfn real certs", r->top);
	rig_expect_content(r, id, "", "linked");
	replace(rig_at(r, "real/root.pem"), "linked 2");
	rig_expect_content(r, id, "", "linked 2");
}

/* Each link on the way, also one that another link leads through, may be repointed. */
static void test_a_link_on_the_way_may_be_repointed(void **state)
{
	struct rig *r = *state;
	uint32_t id;

	rig_shell("cd %s && mkdir -p releases/v1 releases/v2 later/v2 && for v in releases/v1 "
		  "releases/v2 later/v2; do echo -n $v > $v/root.pem; done && ln -s releases "
		  "all && ln -s all/v1 certs",
	    r->top);
	id = follow(r, LINK_FOLLOW_ROOT, 2);
	rig_expect_content(r, id, "", "releases/v1");
	rig_shell("cd %s && ln -s all/v2 new && mv -T new certs", r->top); /* at once */
	rig_expect_content(r, id, "", "releases/v2");
	rig_shell("cd %s && ln -s %s/later new && mv -T new all", r->top, r->top);
	rig_expect_content(r, id, "", "later/v2");
	rig_file(rig_at(r, "releases/v2/root.pem"), "not ours any more");
	rig_quiet(r);
	replace(rig_at(r, "later/v2/root.pem"), "newer");
	rig_expect_content(r, id, "", "newer");
	rig_shell("cd %s && rm certs", r->top);
	rig_shell("cd %s && ln -s releases/v1 certs", r->top); /* one after the other */
	rig_expect_content(r, id, "", "releases/v1");
	/* The file itself is never a link. */
	rig_shell("cd %s && ln -sf ../../later/v2/root.pem releases/v1/root.pem", r->top);
	rig_expect_state(r, id, "", LINK_FILE_REFUSED, "symbolic link");
}

/* A circle ends, and what has too many links is read all the same. */
static void test_ways_end(void **state)
{
	struct rig *r = *state;
	uint32_t id;

	rig_shell("cd %s && ln -s b a && ln -s a b && ln -s a certs", r->top);
	id = follow(r, LINK_FOLLOW_ROOT, 2);
	rig_expect_state(r, id, "", LINK_FILE_REFUSED, "");
	rig_shell("cd %s && rm certs && mkdir l0 && echo -n far > l0/root.pem && for i in $(seq "
		  "12); do ln -s l$((i - 1)) l$i; done && ln -s l12 certs",
	    r->top);
	rig_expect_content(r, id, "", "far");
}

/* --- Kubernetes volumes --- */

static void swap_data(
    struct rig *r, const char *dir, const char *name, const char *version, const char *text)
{
	rig_shell("cd %s && mkdir ..%s && echo -n '%s' > ..%s/%s && ln -s ..%s ..data_tmp && "
		  "mv -T ..data_tmp ..data && ln -sfn ..data/%s %s",
	    dir, version, text, version, name, version, name, name);
	(void)r;
}

static void test_data_link_is_followed_and_its_swap_seen(void **state)
{
	struct rig *r = *state;
	char version[32], text[32];
	uint32_t id;

	rig_shell("mkdir %s", rig_at(r, "certs"));
	swap_data(r, rig_at(r, "certs"), "root.pem", "2026_0", "first");
	id = follow(r, LINK_FOLLOW_ROOT, 2);
	rig_expect_content(r, id, "", "first");
	for (int i = 1; i < 20; i++) {
		snprintf(version, sizeof(version), "2026_%d", i);
		snprintf(text, sizeof(text), "version %d", i);
		swap_data(r, rig_at(r, "certs"), "root.pem", version, text);
		rig_shell(
		    "rm -r %s", rig_at(r, "certs/..2026_%d", i - 1)); /* as the kubelet does */
		rig_expect_content(r, id, "", text);
	}
	rig_quiet(r);
}

/* --- tokens --- */

static void test_token_of_a_pod(void **state)
{
	struct rig *r = *state;
	uint32_t id;

	rig_add(r);
	id = follow(r, LINK_FOLLOW_TOKEN, 0);
	rig_expect_state(r, id, "", LINK_FILE_REMOVED, "token is not there");
	rig_shell("mkdir -p %s", rig_at(r, "pods.d/%s", rig_pod_text));
	rig_file(rig_at(r, "pods.d/%s/token", rig_pod_text), "jwt");
	rig_expect_content(r, id, "", "jwt");
	swap_data(r, rig_at(r, "pods.d/%s", rig_pod_text), "token", "v1", "jwt of the kubelet");
	rig_expect_content(r, id, "", "jwt of the kubelet");
	rig_shell("mkdir %s; echo -n x > %s",
	    rig_at(r, "pods.d/09080700-0000-0000-0000-000000000000"),
	    rig_at(r, "pods.d/09080700-0000-0000-0000-000000000000/token"));
	rig_quiet(r); /* another pod's */
}

/* The directory of a pod must not be a link: it could lead to another pod's token. */
static void test_token_directory_is_no_link(void **state)
{
	struct rig *r = *state;
	uint32_t id;

	rig_add(r);
	rig_shell("cd %s && mkdir -p pods.d/victim && echo -n stolen > pods.d/victim/token && "
		  "ln -s victim pods.d/%s",
	    r->top, rig_pod_text);
	id = follow(r, LINK_FOLLOW_TOKEN, 0);
	rig_expect_state(r, id, "", LINK_FILE_REFUSED, "cannot be opened");
	rig_shell("cd %s/pods.d && rm %s && mkdir %s && echo -n own > %s/token", r->top,
	    rig_pod_text, rig_pod_text, rig_pod_text);
	rig_expect_content(r, id, "", "own");
}

static void test_pod_remove_ends_its_follows(void **state)
{
	struct rig *r = *state;

	rig_add(r);
	rig_expect_state(r, follow(r, LINK_FOLLOW_KEY, 0), "", LINK_FILE_REMOVED, "");
	rig_expect_state(r, follow(r, LINK_FOLLOW_TOKEN, 0), "", LINK_FILE_REMOVED, "");
	uint32_t ended = r->id;
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	rig_shell("mkdir -p %s", rig_at(r, "pods.d/%s", rig_pod_text));
	rig_file(rig_at(r, "pods.d/%s/token", rig_pod_text), "jwt");
	rig_file(rig_at(r, "pods.d/%s/key.pem", rig_pod_text), "key");
	rig_quiet(r);
	rig_do(r, (struct rig_ask){.op = LINK_UNFOLLOW, .arg = ended}); /* harmless */
}

/* --- the kubelet's directory of a pod --- */

/* No byte of what is in it is told: it is there, which is no file, or it is not. */
static void test_the_kubelets_directory_of_a_pod(void **state)
{
	struct rig *r = *state;
	uint32_t id;

	rig_refused(r, kubelet_pod, EOPNOTSUPP, "--kubelet-root");
	r->o.kubelet_root = rig_at(r, "kubelet");
	id = follow(r, LINK_FOLLOW_KUBELET_POD, 0);
	rig_expect_state(r, id, "", LINK_FILE_REMOVED, "is not there");
	rig_shell("mkdir -p %s", rig_at(r, "kubelet/pods/%s/volumes", rig_pod_text));
	rig_expect_state(r, id, "", LINK_FILE_REFUSED, "not a regular file");
	rig_shell("mkdir -p %s", rig_at(r, "kubelet/pods/09080700-0000-0000-0000-000000000000"));
	rig_shell("rmdir %s", rig_at(r, "kubelet/pods/%s/volumes", rig_pod_text));
	rig_quiet(r);
	rig_shell("rmdir %s", rig_at(r, "kubelet/pods/%s", rig_pod_text));
	rig_expect_state(r, id, "", LINK_FILE_REMOVED, "is not there");
}

/* --- manifests --- */

/* Order within the directory is the file system's. */
static void expect_two(struct rig *r, uint32_t id, const char *a, const char *b)
{
	char text[64];
	struct link_packet p = rig_next_file(r, id, text, sizeof(text));
	bool a_first = !strcmp(p.name, a);

	assert_string_equal(p.name, a_first ? a : b);
	assert_string_equal(text, p.name); /* the tests write the name as content */
	rig_expect_content(r, id, a_first ? b : a, a_first ? b : a);
}

static void test_manifests_then_synced_then_changes(void **state)
{
	struct rig *r = *state;
	uint32_t id;

	rig_shell("cd %s && mkdir pods.d && cd pods.d && mkdir dir && touch notes.txt .hidden.yaml "
		  ".yaml && "
		  "echo -n a.yaml > a.yaml && echo -n b.yaml > b.yaml",
	    r->top);
	id = follow(r, LINK_FOLLOW_MANIFESTS, 0);
	expect_two(r, id, "a.yaml", "b.yaml");
	rig_expect_state(r, id, "", LINK_FILE_SYNCED, "");
	rig_quiet(r);

	rig_file(rig_at(r, "pods.d/c.yaml"), "new");
	rig_expect_content(r, id, "c.yaml", "new");
	rig_file(rig_at(r, "pods.d/a.yaml"), "changed");
	rig_expect_content(r, id, "a.yaml", "changed");
	assert_int_equal(unlink(rig_at(r, "pods.d/b.yaml")), 0);
	rig_expect_state(r, id, "b.yaml", LINK_FILE_REMOVED, "b.yaml is not there");
	rig_shell("cd %s/pods.d && mv c.yaml d.yaml", r->top);
	rig_expect_state(r, id, "c.yaml", LINK_FILE_REMOVED, "");
	rig_expect_content(r, id, "d.yaml", "new");
	rig_shell("cd %s/pods.d && mkfifo e.yaml", r->top);
	rig_expect_state(r, id, "e.yaml", LINK_FILE_REFUSED, "not a regular file");
	rig_shell("cd %s/pods.d && echo x > notes.txt && echo x > .hidden.yaml", r->top);
	rig_quiet(r);
}

static void name_of_pod(char out[UUID_TEXT_SIZE], int n)
{
	snprintf(out, UUID_TEXT_SIZE, "11111111-1111-4111-8111-%012d", n);
}

/* With a manifest, and sockets of an earlier worker. */
static void make_pod(struct rig *r, int n)
{
	char uid[UUID_TEXT_SIZE], file[64];
	struct uuid pod;

	name_of_pod(uid, n);
	snprintf(file, sizeof(file), "%s.yaml", uid);
	assert_true(uuid_parse(&pod, uid));
	rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &pod});
	close(rig_listen(r, &pod, LINK_LISTEN_SDS));
	close(rig_listen(r, &pod, LINK_LISTEN_XDS));
	rig_file(rig_at(r, "pods.d/%s", file), file);
}

/* As the worker does: nobody waits any more. */
static void accept_one(struct rig *r, int n, enum link_listener kind)
{
	char uid[UUID_TEXT_SIZE];
	struct uuid pod;

	name_of_pod(uid, n);
	assert_true(uuid_parse(&pod, uid));
	rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &pod});
	int fd = rig_listen(r, &pod, kind), c = accept(fd, NULL, NULL);
	assert_true(c >= 0);
	close(c);
	close(fd);
}

/* Who knocks while there is no worker is not to wait for all others' manifests.  Each pair of pods
 * has its turn, so no order of the directory will do. */
static void test_pods_that_are_awaited_come_first(void **state)
{
	enum { PODS = 6 };
	struct rig *r = *state;
	char a[64], b[64], text[64];

	rig_shell("mkdir %s", rig_at(r, "pods.d"));
	for (int n = 0; n < PODS; n++)
		make_pod(r, n);
	for (int n = 0; n < PODS; n += 2) {
		name_of_pod(a, n);
		name_of_pod(b, n + 1);
		int to_a = rig_connect(rig_at(r, "run/pods/%s/mount/socket", a));
		int to_b = rig_connect(rig_at(r, "run/pods/%s/mount/XDS", b));
		assert_true(to_a >= 0 && to_b >= 0);
		rig_next_worker(r);
		uint32_t id = follow(r, LINK_FOLLOW_MANIFESTS, 0);
		expect_two(r, id, strcat(a, ".yaml"), strcat(b, ".yaml"));
		while (rig_next_file(r, id, text, sizeof(text)).state != LINK_FILE_SYNCED)
			;
		accept_one(r, n, LINK_LISTEN_SDS);
		accept_one(r, n + 1, LINK_LISTEN_XDS);
		close(to_a);
		close(to_b);
	}
}

/* Made, but not yet written: told when the writer closes it. */
static void test_a_half_written_manifest_waits(void **state)
{
	struct rig *r = *state;
	uint32_t id;

	rig_shell("mkdir %s", rig_at(r, "pods.d"));
	id = follow(r, LINK_FOLLOW_MANIFESTS, 0);
	rig_expect_state(r, id, "", LINK_FILE_SYNCED, "");
	int fd = open(rig_at(r, "pods.d/a.yaml"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	rig_quiet(r);
	assert_int_equal(write(fd, "all", 3), 3);
	rig_quiet(r);
	close(fd);
	rig_expect_content(r, id, "a.yaml", "all");
}

/* More changing manifests than one turn tells must not keep a root file from being told. */
static void test_no_follow_starves(void **state)
{
	struct rig *r = *state;
	struct link_packet p;
	uint32_t manifests, root;
	bool told = false;
	int fd;

	r->o.max_pods = 64;
	rig_shell("mkdir %s", rig_at(r, "pods.d"));
	manifests = follow(r, LINK_FOLLOW_MANIFESTS, 0);
	rig_expect_state(r, manifests, "", LINK_FILE_SYNCED, "");
	root = follow_root(r, "one");
	rig_expect_content(r, root, "", "one");
	replace(r->root, "two");
	for (int round = 0; round < 4 && !told; round++) {
		for (int i = 0; i < 40; i++) {
			char text[16];
			snprintf(text, sizeof(text), "%d", round);
			replace(rig_at(r, "pods.d/%d.yaml", i), text);
		}
		broker_turn(r->b, 0);
		broker_turn(r->b, 0);
		while (recv(r->fd, &p, sizeof(p), MSG_DONTWAIT | MSG_PEEK) > 0) {
			assert_true(rig_next(r, &p, &fd));
			close(fd);
			told |= p.id == root;
		}
	}
	assert_true(told);
}

/* A small socket: what does not fit is told later, all of it. */
static void test_files_wait_for_room(void **state)
{
	struct rig *r = *state;
	char text[64];
	uint32_t id;
	int admin;

	rig_shell("cd %s && mkdir pods.d && cd pods.d && for i in 1 2 3 4 5 6 7 8; do echo -n x > "
		  "$i.yaml; "
		  "done",
	    r->top);
	rig_stop(r);
	r->b = rig_broker(r, &(struct err){0});
	r->sndbuf = 8192;
	rig_attach(r);
	id = rig_request(r, (struct rig_ask){.op = LINK_FOLLOW, .kind = LINK_FOLLOW_MANIFESTS});
	for (int i = 0; i < RIG_TURNS; i++)
		assert_int_equal(broker_turn(r->b, 0), BROKER_SERVING);
	rig_expect(r, LINK_HELLO, NULL);
	rig_expect(r, LINK_NODE_LISTENER, &admin);
	close(admin);
	rig_expect(r, LINK_REPLY, NULL);
	for (int i = 0; i < 8; i++)
		assert_int_equal(rig_next_file(r, id, text, sizeof(text)).state, LINK_FILE_CONTENT);
	rig_expect_state(r, id, "", LINK_FILE_SYNCED, "");
}

/* Gone before anybody was told that it was there. */
static void test_a_short_lived_manifest_is_not_told(void **state)
{
	struct rig *r = *state;
	uint32_t id;

	rig_shell("mkdir %s", rig_at(r, "pods.d"));
	id = follow(r, LINK_FOLLOW_MANIFESTS, 0);
	rig_expect_state(r, id, "", LINK_FILE_SYNCED, "");
	rig_shell("cd %s/pods.d && echo x > a.yaml && rm a.yaml", r->top);
	rig_quiet(r);
}

/* A token's directory goes, and its follow watches the directory of the manifests again. */
static void test_a_shared_watch_misses_nothing(void **state)
{
	struct rig *r = *state;
	char file[RIG_PATH];
	uint32_t id;

	rig_add(r);
	rig_shell("mkdir -p %s", rig_at(r, "pods.d/%s", rig_pod_text));
	snprintf(file, sizeof(file), "%s", rig_at(r, "pods.d/a.yaml"));
	rig_file(file, "1");
	id = follow(r, LINK_FOLLOW_MANIFESTS, 0);
	rig_expect_content(r, id, "a.yaml", "1");
	rig_expect_state(r, id, "", LINK_FILE_SYNCED, "");
	rig_expect_state(r, follow(r, LINK_FOLLOW_TOKEN, 0), "", LINK_FILE_REMOVED, "");
	going.dir = r->manifests;
	going.file = file;
	rig_shell("rmdir %s", rig_at(r, "pods.d/%s", rig_pod_text));
	rig_expect_state(r, id, "a.yaml", LINK_FILE_REMOVED, "");
	assert_null(going.dir);
}

static void test_manifests_directory_may_come_and_go(void **state)
{
	struct rig *r = *state;
	uint32_t id = follow(r, LINK_FOLLOW_MANIFESTS, 0);

	rig_expect_state(r, id, "", LINK_FILE_SYNCED, ""); /* nothing is all there is */
	rig_shell("cd %s && mkdir pods.d && echo -n 1 > pods.d/a.yaml", r->top);
	rig_expect_content(r, id, "a.yaml", "1");
	rig_shell("cd %s && mkdir n && echo -n 2 > n/b.yaml && mv pods.d o && mv n pods.d", r->top);
	rig_expect_state(r, id, "a.yaml", LINK_FILE_REMOVED, "");
	rig_expect_content(r, id, "b.yaml", "2");
	rig_quiet(r);
}

static void test_manifests_are_bounded(void **state)
{
	struct rig *r = *state; /* max_pods is 8, which makes 16 files */
	struct link_packet p;
	char text[64], ignored[LINK_NAME_SIZE] = "", some[LINK_NAME_SIZE] = "";
	uint32_t id;

	rig_shell(
	    "mkdir %s/pods.d && cd %s/pods.d && for i in $(seq 20); do echo -n x > $i.yaml; done",
	    r->top, r->top);
	id = follow(r, LINK_FOLLOW_MANIFESTS, 0);
	for (int i = 0; i < 17; i++) {
		p = rig_next_file(r, id, text, sizeof(text));
		if (p.state == LINK_FILE_CONTENT) {
			strcpy(some, p.name);
			continue;
		}
		assert_int_equal(
		    p.state, LINK_FILE_REFUSED); /* in place of all that are too many */
		assert_non_null(strstr(p.why, "--max-pods"));
		assert_string_equal(ignored, "");
		strcpy(ignored, p.name);
	}
	assert_string_not_equal(ignored, "");
	rig_expect_state(r, id, "", LINK_FILE_SYNCED, "");
	rig_quiet(r);

	/* One goes: there is room for that one, and another one is ignored. */
	rig_shell("rm %s/pods.d/%s", r->top, some);
	rig_expect_state(r, id, some, LINK_FILE_REMOVED, "");
	rig_expect_content(r, id, ignored, "x");
	p = rig_next_file(r, id, text, sizeof(text));
	assert_int_equal(p.state, LINK_FILE_REFUSED);
	strcpy(ignored, p.name);

	/* Who is ignored may go, too: the next one is. */
	rig_shell("rm %s/pods.d/%s", r->top, ignored);
	rig_expect_state(r, id, ignored, LINK_FILE_REMOVED, "");
	p = rig_next_file(r, id, text, sizeof(text));
	assert_int_equal(p.state, LINK_FILE_REFUSED);
	assert_string_not_equal(p.name, ignored);
	strcpy(ignored, p.name);

	/* There is room for all: it is known. */
	rig_shell("cd %s/pods.d && ls | grep -vFx %s | xargs rm", r->top, ignored);
	do
		p = rig_next_file(r, id, text, sizeof(text));
	while (strcmp(p.name, ignored) != 0);
	assert_int_equal(p.state, LINK_FILE_CONTENT);
}

/* The worker hears of which pods it is that they are here, and these have room. */
static void test_manifests_of_pods_that_run(void **state)
{
	struct rig *r = *state;
	struct link_packet p;
	char text[64];
	unsigned running = 0;
	uint32_t id;

	rig_add(r);
	r->o.max_pods = 1;
	rig_shell("mkdir %s/pods.d && cd %s/pods.d && for i in 1 2 3 4; do echo -n x > $i.yaml; "
		  "done && echo -n x > %s.yaml",
	    r->top, r->top, rig_pod_text);
	id = follow(r, LINK_FOLLOW_MANIFESTS, 0);
	for (int i = 0; i < 4; i++) { /* two, the one that runs, and the refusal */
		p = rig_next_file(r, id, text, sizeof(text));
		assert_int_equal(p.arg, !strncmp(p.name, rig_pod_text, strlen(rig_pod_text)));
		running += p.arg && p.state == LINK_FILE_CONTENT;
	}
	assert_int_equal(running, 1);
	rig_expect_state(r, id, "", LINK_FILE_SYNCED, "");
	rig_shell("echo -n y > %s/pods.d/%s.yaml", r->top, rig_pod_text);
	p = rig_next_file(r, id, text, sizeof(text));
	assert_int_equal(p.arg, 0); /* it is another one now */
}

/* --- the requests --- */

static void test_what_cannot_be_followed(void **state)
{
	struct rig *r = *state;
	struct link_request again = {.op = LINK_FOLLOW, .kind = LINK_FOLLOW_MANIFESTS};

	rig_refused(
	    r, (struct rig_ask){LINK_FOLLOW, LINK_FOLLOWED_END, 0, NULL, 0}, EINVAL, "nothing");
	rig_refused(r, (struct rig_ask){LINK_FOLLOW, LINK_FOLLOW_ROOT, 0, NULL, 0}, ENOENT,
	    "no --root-file for control plane 0");
	rig_refused(r, (struct rig_ask){LINK_FOLLOW, LINK_FOLLOW_ROOT, LINK_PLANES_MAX, NULL, 0},
	    ENOENT, "no --root-file");
	rig_refused(r, (struct rig_ask){LINK_FOLLOW, LINK_FOLLOW_ROOT, 0xffffffff, NULL, 0}, ENOENT,
	    "no --root-file");

	again.id = follow(r, LINK_FOLLOW_MANIFESTS, 0);
	rig_expect_state(r, again.id, "", LINK_FILE_SYNCED, "");
	rig_send(r, &again, sizeof(again), NULL, 0);
	assert_int_equal(rig_expect(r, LINK_REPLY, NULL).code, EEXIST);
}

static void test_follows_are_bounded(void **state)
{
	struct rig *r = *state;
	struct rig_ask token = {LINK_FOLLOW, LINK_FOLLOW_TOKEN, 0, &rig_pod, 0};
	struct rig_ask manifests = {LINK_FOLLOW, LINK_FOLLOW_MANIFESTS, 0, NULL, 0};

	rig_add(r);
	for (int i = 0; i < LINK_FOLLOWS_PER_POD_MAX; i++)
		rig_expect_state(r, follow(r, LINK_FOLLOW_TOKEN, 0), "", LINK_FILE_REMOVED, "");
	rig_refused(r, token, ENOSPC, "followed already");
	rig_do(r, (struct rig_ask){.op = LINK_UNFOLLOW, .arg = r->id - 1});
	rig_expect_state(r, follow(r, LINK_FOLLOW_TOKEN, 0), "", LINK_FILE_REMOVED, "");

	for (int i = 0; i < 3 * LINK_PLANES_MAX; i++)
		rig_expect_state(r, follow(r, LINK_FOLLOW_MANIFESTS, 0), "", LINK_FILE_SYNCED, "");
	rig_refused(r, manifests, ENOSPC, "followed already");

	r->o.kubelet_root = rig_at(r, "kubelet");
	for (int i = 0; i < LINK_FOLLOWS_KUBELET_MAX; i++)
		rig_expect_state(
		    r, follow(r, LINK_FOLLOW_KUBELET_POD, 0), "", LINK_FILE_REMOVED, "");
	rig_refused(r, kubelet_pod, ENOSPC, "followed already");
}

/* Two follows of one directory share its watch; the first to end must not end it for the other. */
static void test_unfollow_leaves_the_others(void **state)
{
	struct rig *r = *state;
	uint32_t first = follow_root(r, "x");

	rig_expect_content(r, first, "", "x");
	uint32_t second = follow(r, LINK_FOLLOW_ROOT, 2);
	rig_expect_content(r, second, "", "x");
	replace(r->root, "y");
	rig_expect_content(r, first, "", "y");
	rig_expect_content(r, second, "", "y");
	rig_do(r, (struct rig_ask){.op = LINK_UNFOLLOW, .arg = first});
	replace(r->root, "z");
	rig_expect_content(r, second, "", "z");
	rig_quiet(r);
	rig_do(r, (struct rig_ask){.op = LINK_UNFOLLOW, .arg = second});
	replace(r->root, "nobody cares");
	assert_true(rig_is_idle(r));
}

/* Ids are each worker's own. */
static void test_the_next_worker_hears_of_its_own_follows_only(void **state)
{
	struct rig *r = *state;

	rig_shell("mkdir -p %s", rig_at(r, "pods.d/%s", rig_pod_text));
	rig_add(r);
	rig_do(r, (struct rig_ask){.op = LINK_FOLLOW, .kind = LINK_FOLLOW_TOKEN, .pod = &rig_pod});
	rig_expect(r, LINK_FILE, NULL); /* not there yet */
	rig_next_worker(r);
	rig_file(rig_at(r, "pods.d/%s/token", rig_pod_text), "jwt");
	rig_quiet(r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_content_now_and_at_each_change),
	    T(test_a_missing_file_is_told_once),
	    T(test_revocation_lists),
	    T(test_no_push_when_nothing_changed),
	    T(test_large_files_arrive_whole),
	    T(test_rapid_rewrites_end_with_the_last),
	    T(test_a_slow_worker_gets_the_newest),
	    T(test_overflow_of_the_queue_is_a_rescan),
	    T(test_a_directory_may_appear_later),
	    T(test_a_directory_may_be_replaced),
	    T(test_ways_to_the_directory),
	    T(test_a_link_on_the_way_may_be_repointed),
	    T(test_ways_end),
	    T(test_data_link_is_followed_and_its_swap_seen),
	    T(test_token_of_a_pod),
	    T(test_token_directory_is_no_link),
	    T(test_pod_remove_ends_its_follows),
	    T(test_the_kubelets_directory_of_a_pod),
	    T(test_manifests_then_synced_then_changes),
	    T(test_pods_that_are_awaited_come_first),
	    T(test_a_half_written_manifest_waits),
	    T(test_no_follow_starves),
	    T(test_files_wait_for_room),
	    T(test_a_short_lived_manifest_is_not_told),
	    T(test_a_shared_watch_misses_nothing),
	    T(test_manifests_directory_may_come_and_go),
	    T(test_manifests_are_bounded),
	    T(test_manifests_of_pods_that_run),
	    T(test_what_cannot_be_followed),
	    T(test_follows_are_bounded),
	    T(test_unfollow_leaves_the_others),
	    T(test_the_next_worker_hears_of_its_own_follows_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
