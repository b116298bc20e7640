/* requests_test.c - each row of the request table, and what is no request at all.
 * LINK: tests/fake/apart.c tests/unit/broker/rig.c tests/unit/open_fds.c */
#include "common/err.h"
#include "common/log.h"
#include "tests/unit/broker/rig.h"
#include "tests/unit/open_fds.h"
#include <sys/resource.h>

/* --- pods --- */

static void test_directories_have_their_modes(void **state)
{
	struct rig *r = *state;
	mode_t before = umask(077); /* whatever it is */

	rig_add(r);
	umask(before);
	assert_int_equal(rig_mode(r->run), 0711);
	assert_int_equal(rig_mode(rig_at(r, "run/pods")), 0700);
	assert_int_equal(rig_mode(rig_at(r, "run/pods/%s", rig_pod_text)), 0700);
	assert_int_equal(rig_mode(rig_mount(r, "")), 0755);
	assert_int_equal(rig_mode(rig_at(r, "run/admin.sock")), 0600);
}

/* The worker of a later broker adds again what is there already. */
static void test_pod_add_twice_is_one_pod(void **state)
{
	struct rig *r = *state;
	struct stat before, after;

	rig_add(r);
	assert_int_equal(stat(rig_mount(r, ""), &before), 0);
	rig_add(r);
	assert_int_equal(stat(rig_mount(r, ""), &after), 0);
	assert_int_equal(before.st_ino, after.st_ino);
}

static void test_max_pods_is_the_limit(void **state)
{
	struct rig *r = *state;

	for (uint8_t i = 0; i < 8; i++) {
		struct uuid u = {{i, 1}};
		rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &u});
	}
	rig_refused(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_pod}, EUSERS, "--max-pods");
	struct uuid first = {{0, 1}};
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &first});
	rig_add(r);
}

/* Those of an earlier broker go on, though it allowed more of them. */
static void test_max_pods_sank(void **state)
{
	struct rig *r = *state;

	for (uint8_t i = 0; i < 3; i++) {
		struct uuid u = {{i, 1}};
		rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &u});
	}
	rig_stop(r);
	r->o.max_pods = 1;
	rig_start(r);
	for (uint8_t i = 0; i < 3; i++) {
		struct uuid u = {{i, 1}};
		rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &u});
	}
	rig_refused(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_pod}, EUSERS, "--max-pods");
	struct uuid first = {{0, 1}};
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &first});
	rig_refused(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &first}, EUSERS, "--max-pods");
}

static void test_a_token_is_of_a_pod_that_was_added(void **state)
{
	struct rig *r = *state;

	static const enum link_followed kinds[] = {
	    LINK_FOLLOW_TOKEN, LINK_FOLLOW_KEY, LINK_FOLLOW_CHAIN, LINK_FOLLOW_KEPT};

	for (unsigned i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		rig_refused(r,
		    (struct rig_ask){.op = LINK_FOLLOW, .kind = kinds[i], .pod = &rig_pod}, ENOENT,
		    "not added");
}

static void test_remove_takes_all_that_was_made(void **state)
{
	struct rig *r = *state;
	int fd = rig_memfd("{}", 2, RIG_SEALS);

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	close(rig_listen(r, &rig_pod, LINK_LISTEN_XDS));
	rig_do(r, (struct rig_ask){LINK_WRITE, LINK_FILE_BOOTSTRAP, 0, &rig_pod, fd});
	rig_do(r, (struct rig_ask){LINK_WRITE, LINK_FILE_ROOT, 0, &rig_pod, fd});
	rig_file(rig_mount(r, ".XDS.new"), "left over by a death");
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	assert_int_equal(access(rig_at(r, "run/pods/%s", rig_pod_text), F_OK), -1);
	close(fd);
}

/* The broker that made it is gone, and no worker of ours has added it. */
static void test_remove_takes_what_was_left(void **state)
{
	struct rig *r = *state;
	const struct rig_ask remove = {.op = LINK_POD_REMOVE, .pod = &rig_pod};

	rig_do(r, remove);
	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	rig_stop(r);
	rig_start(r);
	assert_int_equal(access(rig_mount(r, "socket"), F_OK), 0);
	rig_do(r, remove);
	assert_int_equal(access(rig_at(r, "run/pods/%s", rig_pod_text), F_OK), -1);
}

/* Only known names: what somebody else put there is not deleted, and the reason is told. */
/* Not even what a pod could have put there, however deep. */
static void test_remove_leaves_nothing(void **state)
{
	struct rig *r = *state;
	const char *dir = rig_at(r, "run/pods/%s", rig_pod_text);

	rig_add(r);
	rig_file(rig_mount(r, "stranger"), "x");
	rig_shell("mkdir -p %s/mount/.0/a/b/c/d && touch %s/.1 && touch %s/mount/.0/a/b/c/d/.2 && "
		  "ln -s / %s/mount/link && mkfifo %s/mount/.0/fifo",
	    dir, dir, dir, dir, dir);
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	assert_int_equal(access(dir, F_OK), -1);
	assert_int_equal(access("/etc", F_OK), 0);
	rig_refused(r, (struct rig_ask){.op = LINK_LISTEN, .pod = &rig_pod}, ENOENT, "not added");
}

/* What cannot be removed is said; what is mounted there is never looked into. */
static void test_remove_ends_at_a_mount(void **state)
{
	struct rig *r = *state;
	const char *at = rig_mount(r, "elsewhere");

	rig_add(r);
	rig_shell("mkdir %s && mount -t tmpfs elsewhere %s && touch %s/kept", at, at, at);
	rig_refused(
	    r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod}, EBUSY, rig_pod_text);
	rig_shell("test -f %s/kept && umount %s", at, at);
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
}

/* It asks again, and the broker does other things meanwhile. */
static void test_a_removal_is_bounded(void **state)
{
	struct rig *r = *state;
	int calls = 1;

	rig_add(r);
	rig_shell("cd %s && seq 25000 | xargs touch", rig_mount(r, ""));
	for (; rig_ask(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod}, NULL).code;
	     calls++)
		assert_true(calls < 10);
	assert_int_equal(calls, 3);
	assert_int_equal(access(rig_at(r, "run/pods/%s", rig_pod_text), F_OK), -1);
}

/* --- listeners --- */

static void test_listeners_are_reachable_and_non_blocking(void **state)
{
	struct rig *r = *state;
	static const char *const names[] = {"socket", "XDS"};

	rig_add(r);
	for (unsigned kind = 0; kind < LINK_LISTENER_END; kind++) {
		int l = rig_listen(r, &rig_pod, kind);
		assert_int_equal(rig_mode(rig_mount(r, names[kind])), 0666);
		assert_true(fcntl(l, F_GETFL) & O_NONBLOCK);
		assert_int_equal(accept(l, NULL, NULL), -1);
		assert_int_equal(errno, EAGAIN);
		int c = rig_connect(rig_mount(r, names[kind]));
		int a = accept(l, NULL, NULL);
		assert_true(c >= 0 && a >= 0);
		close(a);
		close(c);
		close(l);
	}
	rig_refused(r, (struct rig_ask){LINK_LISTEN, LINK_LISTENER_END, 0, &rig_pod, 0}, EINVAL,
	    "no listener");
}

/* --- files of a pod --- */

static void expect_mount_file(struct rig *r, const char *name, const char *text)
{
	char got[64] = "";
	int fd = open(rig_mount(r, name), O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_true(read(fd, got, sizeof(got) - 1) >= 0);
	close(fd);
	assert_string_equal(got, text);
	assert_int_equal(rig_mode(rig_mount(r, name)), 0644);
}

static void test_write_renames_into_mount(void **state)
{
	struct rig *r = *state;
	struct stat before, after;

	rig_add(r);
	for (int i = 0; i < 2; i++) {
		int fd = rig_memfd(i ? "second" : "first", i ? 6 : 5, RIG_SEALS);
		rig_do(r, (struct rig_ask){LINK_WRITE, LINK_FILE_BOOTSTRAP, 0, &rig_pod, fd});
		close(fd);
		expect_mount_file(r, "envoy-rev.json", i ? "second" : "first");
		assert_int_equal(stat(rig_mount(r, "envoy-rev.json"), i ? &after : &before), 0);
	}
	assert_int_not_equal(before.st_ino, after.st_ino); /* a reader never sees half of it */
	int fd = rig_memfd("pem", 3, RIG_SEALS);
	rig_do(r, (struct rig_ask){LINK_WRITE, LINK_FILE_ROOT, 0, &rig_pod, fd});
	close(fd);
	expect_mount_file(r, "root-cert.pem", "pem");
	assert_int_equal(access(rig_mount(r, ".root-cert.pem.new"), F_OK), -1);
}

static void refuse_write(struct rig *r, int fd, int code, const char *text)
{
	assert_true(fd >= 0);
	rig_refused(
	    r, (struct rig_ask){LINK_WRITE, LINK_FILE_BOOTSTRAP, 0, &rig_pod, fd}, code, text);
	assert_int_equal(access(rig_mount(r, "envoy-rev.json"), F_OK), -1);
	close(fd);
}

static void test_write_takes_sealed_memory_only(void **state)
{
	struct rig *r = *state;
	static char big[LINK_FILE_SIZE_MAX + 1];
	int pipes[2];

	rig_add(r);
	refuse_write(r, rig_memfd("x", 1, 0), EINVAL, "not sealed");
	refuse_write(r, rig_memfd("x", 1, F_SEAL_SHRINK | F_SEAL_GROW), EINVAL, "not sealed");
	refuse_write(r, rig_memfd("x", 1, F_SEAL_WRITE | F_SEAL_GROW), EINVAL, "not sealed");
	refuse_write(r, rig_memfd("x", 1, F_SEAL_WRITE | F_SEAL_SHRINK), EINVAL, "not sealed");
	refuse_write(r, rig_memfd(big, sizeof(big), RIG_SEALS), EFBIG, "1024 KiB");
	refuse_write(r, open("/etc/passwd", O_RDONLY | O_CLOEXEC), EINVAL, "no memfd");
	refuse_write(r, open("/dev/zero", O_RDONLY | O_CLOEXEC), EINVAL, "no memfd");
	refuse_write(r, open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC), EINVAL, "no memfd");
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	close(pipes[1]);
	refuse_write(r, pipes[0], EINVAL, "no memfd");

	int fd = rig_memfd(big, LINK_FILE_SIZE_MAX, RIG_SEALS);
	rig_refused(
	    r, (struct rig_ask){LINK_WRITE, LINK_FILE_END, 0, &rig_pod, fd}, EINVAL, "no file");
	rig_do(r, (struct rig_ask){LINK_WRITE, LINK_FILE_BOOTSTRAP, 0, &rig_pod, fd});
	close(fd);
}

/* --- what is no request --- */

static void expect_broke(struct rig *r, const void *bytes, size_t size, const int *fds, int nfds)
{
	enum broker_turned s = BROKER_SERVING;

	rig_send(r, bytes, size, fds, nfds);
	for (int i = 0; i < RIG_TURNS && s == BROKER_SERVING; i++)
		s = broker_turn(r->b, 0);
	assert_int_equal(s, BROKER_WORKER_BROKE);
	broker_turn(r->b, 0);
	close(r->fd);
	rig_stop(r);
	rig_start(r);
}

static void test_protocol_violations_end_the_worker(void **state)
{
	struct rig *r = *state;
	struct link_request ok = {.id = 1, .op = LINK_POD_ADD}, bad;
	char longer[sizeof(ok) + 1] = {0};
	int before = open_fds();

	memcpy(longer, &ok, sizeof(ok));
	expect_broke(r, &ok, sizeof(ok) - 1, NULL, 0);
	expect_broke(r, longer, sizeof(longer), NULL, 0);
	expect_broke(r, "", 0, NULL, 0); /* an empty packet is not the end of the worker */
	expect_broke(r, "x", 1, NULL, 0);
	for (int op = 0; op < 65536; op += op < LINK_OP_END + 2 ? 1 : 9973) {
		bad = (struct link_request){.id = 1, .op = (uint16_t)op};
		if (op == 0 || op >= LINK_OP_END)
			expect_broke(r, &bad, sizeof(bad), NULL, 0);
	}
	bad = (struct link_request){.id = 0, .op = LINK_POD_ADD};
	expect_broke(r, &bad, sizeof(bad), NULL, 0);
	assert_int_equal(open_fds(), before);
}

/* An fd where none is taken, none where one is, and two where one is: CMSG_SPACE has room for it.
 */
static void test_wrong_number_of_fds_ends_the_worker(void **state)
{
	struct rig *r = *state;
	int before = open_fds();
	int pipes[2], fds[64];

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	for (int i = 0; i < 64; i++)
		fds[i] = pipes[0];
	for (int op = LINK_POD_ADD; op < LINK_OP_END; op++) {
		struct link_request q = {.id = 1, .op = (uint16_t)op};
		expect_broke(r, &q, sizeof(q), fds, !ops_row((unsigned)op)->nfds);
		expect_broke(r, &q, sizeof(q), fds, 2);
		expect_broke(r, &q, sizeof(q), fds, 5);
		expect_broke(r, &q, sizeof(q), fds, 64);
	}
	close(pipes[0]);
	close(pipes[1]);
	assert_int_equal(open_fds(), before); /* none of them stayed */
}

/* The node's limit is not the worker's crime: the request is refused, the worker lives. */
static void test_out_of_fds_is_a_refusal(void **state)
{
	struct rig *r = *state;
	struct rlimit normal, tight;
	int fd = rig_memfd("x", 1, RIG_SEALS), next = dup(fd);

	rig_add(r);
	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &normal), 0);
	tight = normal;
	tight.rlim_cur = (rlim_t)next;
	struct rig_ask ask = {LINK_WRITE, LINK_FILE_ROOT, 0, &rig_pod, fd};
	uint32_t id = rig_request(r, ask);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
	struct link_packet p = rig_expect(r, LINK_REPLY, NULL);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &normal), 0);
	assert_int_equal(p.id, id);
	assert_int_equal(p.code, EMFILE);
	rig_do(r, ask);
	close(fd);
}

/* A file that grew after it was looked at. */
static void test_copies_are_bounded(void **state)
{
	int from = rig_memfd("0123456789", 10, 0), to = rig_memfd("", 0, 0);
	struct broker_copy done;
	struct err e = {0};

	(void)state;
	assert_int_equal(broker_io_copy(from, to, 9, &done, &e), -1);
	assert_int_equal(e.code, EFBIG);
	assert_int_equal(broker_io_copy(from, to, 10, &done, &e), 0);
	assert_int_equal(done.size, 10);
	close(from);
	close(to);
}

static void add_level(void *ctx, const char *scope, const char *level)
{
	strcat(strcat(strcat(strcat(ctx, scope), ":"), level), " ");
}

static const char *levels(void)
{
	static char all[64];

	all[0] = '\0';
	log_each_scope(add_level, all);
	return all;
}

static void test_the_log_is_as_the_worker_says(void **state)
{
	struct rig *r = *state;

	assert_string_equal(levels(), "broker:info ");
	rig_do(r, (struct rig_ask){.op = LINK_LOG, .kind = LINK_LOG_JSON, .arg = LOG_DEBUG});
	assert_true(log_is_json());
	assert_string_equal(levels(), "broker:debug ");
	rig_refused(r, (struct rig_ask){.op = LINK_LOG, .kind = LINK_LOG_END}, EINVAL, "format 2");
	rig_refused(r, (struct rig_ask){.op = LINK_LOG, .arg = LOG_DEBUG + 1}, EINVAL, "level 4");
	assert_true(log_is_json());
	rig_do(r, (struct rig_ask){.op = LINK_LOG, .kind = LINK_LOG_LOGFMT, .arg = LOG_INFO});
	assert_false(log_is_json());
	assert_string_equal(levels(), "broker:info ");
}

/* --- what pods hold --- */

static unsigned wait_of(struct rig *r, const struct uuid *pod)
{
	return rig_ask(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = pod}, NULL).arg;
}

/* The broker's next worker, after the last one was killed. */
static bool killed(struct rig *r)
{
	bool blamed;
	int fd;

	close(r->fd);
	broker_turn(r->b, -1); /* it hears of the end before it knows why */
	broker_turn(r->b, 0);
	blamed = broker_blame(r->b);
	rig_attach(r);
	rig_expect(r, LINK_HELLO, NULL);
	rig_expect(r, LINK_NODE_LISTENER, &fd);
	close(fd);
	return blamed;
}

static void test_who_held_most_waits(void **state)
{
	static const struct uuid third = {{3}};
	const struct uuid *const pods[] = {&rig_pod, &rig_other, &third};
	struct rig *r = *state;

	rig_refused(
	    r, (struct rig_ask){.op = LINK_HOLDS, .pod = &rig_pod, .arg = 1}, ENOENT, "not added");
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(wait_of(r, pods[i]), 0);
	rig_do(r, (struct rig_ask){.op = LINK_HOLDS, .pod = &rig_pod, .arg = 1023});
	assert_false(killed(r)); /* that killed nobody */
	assert_int_equal(wait_of(r, &rig_pod), 0);
	assert_false(killed(r));         /* and what a dead worker said is forgotten */
	for (unsigned i = 0; i < 3; i++) /* 40, 20 and 19 MiB */
		wait_of(r, pods[i]);
	rig_do(r, (struct rig_ask){.op = LINK_HOLDS, .pod = &rig_pod, .arg = 40 << 10});
	rig_do(r, (struct rig_ask){.op = LINK_HOLDS, .pod = &rig_other, .arg = 20 << 10});
	rig_do(r, (struct rig_ask){.op = LINK_HOLDS, .pod = &third, .arg = 19 << 10});
	assert_true(killed(r));
	assert_in_range(wait_of(r, &rig_pod), 1, 10);
	assert_in_range(wait_of(r, &rig_other), 1, 10);
	assert_int_equal(wait_of(r, &third), 0);
	rig_do(r, (struct rig_ask){.op = LINK_HOLDS, .pod = &rig_pod, .arg = 40 << 10});
	assert_true(killed(r));
	assert_in_range(wait_of(r, &rig_pod), 11, 20);
	/* Who goes and comes is a new pod. */
	rig_do(r, (struct rig_ask){.op = LINK_POD_REMOVE, .pod = &rig_pod});
	assert_int_equal(wait_of(r, &rig_pod), 0);
}

/* It is served by the next worker when that has added it: nobody would mend it before. */
static void test_what_only_the_predecessor_added_was_not_added(void **state)
{
	struct rig *r = *state;
	const struct rig_ask listen = {LINK_LISTEN, LINK_LISTEN_XDS, 0, &rig_pod, 0};

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_XDS));
	killed(r);
	rig_refused(r, listen, ENOENT, "not added");
	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_XDS));
}

/* An app's own ports are nobody's business but the pod's. */
static void test_a_loopback_is_dialled_of_machines_alone(void **state)
{
	struct rig *r = *state;
	const struct rig_ask dial = {.op = LINK_DIAL,
	    .kind = LINK_DIAL_LOOPBACK,
	    .arg = AF_INET | 15020u << LINK_DIAL_PORT_SHIFT,
	    .pod = &rig_pod};

	rig_add(r);
	rig_refused(r, dial, EPERM, "no manifest");
	rig_shell("mkdir -p %s", r->manifests);
	rig_file(rig_at(r, "pods.d/%s.yaml", rig_pod_text), "uid: x\n");
	rig_refused(r, dial, ENOTCONN, "network namespace is not known");
}

/* As a manifest may write it; Envoy's other ports stay open. */
static void test_an_admin_port_of_a_manifests_own_is_closed(void **state)
{
	static const char *const manifests[] = {
	    "env:\n  PROXY_CONFIG: '{\"statusPort\": 15020, \"proxyAdminPort\": 16000}'\n",
	    "env: {PROXY_CONFIG: \"{\\\"proxyAdminPort\\\":\\\"16000\\\"}\"}\n",
	    "env:\n  PROXY_CONFIG: |\n    proxyAdminPort: 1\n    proxyAdminPort:\n      16e3\n"};
	struct rig *r = *state;
	const struct rig_ask other = {.op = LINK_DIAL,
	    .kind = LINK_DIAL_LOOPBACK,
	    .arg = AF_INET | 15020u << LINK_DIAL_PORT_SHIFT,
	    .pod = &rig_pod};
	struct rig_ask admin = other;

	admin.arg = AF_INET | 16000u << LINK_DIAL_PORT_SHIFT;
	rig_add(r);
	rig_shell("mkdir -p %s", r->manifests);
	for (unsigned i = 0; i < sizeof(manifests) / sizeof(*manifests); i++) {
		rig_file(rig_at(r, "pods.d/%s.yaml", rig_pod_text), manifests[i]);
		rig_refused(r, admin, EACCES, "admin port");
		rig_refused(r, other, ENOTCONN, "network namespace is not known");
	}
	rig_file(rig_at(r, "pods.d/%s.yaml", rig_pod_text), "uid: x\n");
	rig_refused(r, admin, ENOTCONN, "network namespace is not known");
}

/* Also when nobody reads the answers any more. */
static void test_what_a_dead_worker_asked_for_is_done(void **state)
{
	struct rig *r = *state;
	static const char other_text[] = "09080700-0000-0000-0000-000000000000";

	rig_request(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_pod});
	for (int i = 0; i < RIG_TURNS; i++)
		broker_turn(
		    r->b, 0); /* its answer stays unread: ECONNRESET comes before the rest */
	rig_request(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_other});
	rig_request(r, (struct rig_ask){.op = LINK_LISTEN, .pod = &rig_other});
	rig_next_worker(r);
	assert_true(!access(rig_at(r, "run/pods/%s", rig_pod_text), F_OK));
	int c = rig_connect(rig_at(r, "run/pods/%s/mount/socket", other_text));
	assert_true(c >= 0);
	close(c);
}

static void assert_broke(struct rig *r)
{
	enum broker_turned s = BROKER_SERVING;

	for (int i = 0; i < RIG_TURNS && s == BROKER_SERVING; i++)
		s = broker_turn(r->b, 0);
	assert_int_equal(s, BROKER_WORKER_BROKE);
}

static void test_ready_is_said_once(void **state)
{
	struct rig *r = *state;

	rig_do(r, (struct rig_ask){.op = LINK_READY});
	rig_request(r, (struct rig_ask){.op = LINK_READY});
	assert_broke(r);
}

/* --- what is served again --- */

static struct {
	int told;
	unsigned lost;
	char why[LINK_SERVED_SIZE];
} heard;

static void on_served(void *ctx, unsigned lost, const char *why)
{
	(void)ctx;
	heard.told++;
	heard.lost = lost;
	snprintf(heard.why, sizeof(heard.why), "%s", why);
}

static struct link_packet say_served(struct rig *r, unsigned lost, const char *lines)
{
	int fd = rig_memfd(lines, strlen(lines), RIG_SEALS);
	struct link_packet p =
	    rig_ask(r, (struct rig_ask){.op = LINK_SERVED, .arg = lost, .fd = fd}, NULL);

	close(fd);
	return p;
}

static void test_what_is_lost_is_heard_up_to_nothing(void **state)
{
	static const struct broker_events events = {.served = on_served};
	struct rig *r = *state;
	char many[LINK_SERVED_SIZE + 100];

	memset(&heard, 0, sizeof(heard));
	broker_observe(r->b, &events, NULL);
	rig_do(r, (struct rig_ask){.op = LINK_READY});
	assert_int_equal(say_served(r, 2, "a/b: ads: \033[1m\r\xc3\nc/d: cert: no\n").code, 0);
	assert_int_equal(heard.lost, 2);
	assert_string_equal(heard.why, "a/b: ads: ?[1m??\nc/d: cert: no\n");
	memset(many, 'x', sizeof(many));
	many[sizeof(many) - 1] = '\0';
	assert_int_equal(say_served(r, 1, many).code, 0);
	assert_int_equal(strlen(heard.why), LINK_SERVED_SIZE - 1);
	assert_int_equal(say_served(r, 0, "").code, 0);
	assert_int_equal(heard.told, 3);
	assert_int_equal(heard.lost, 0);
	/* That was the last word. */
	int fd = rig_memfd("", 0, RIG_SEALS);
	rig_request(r, (struct rig_ask){.op = LINK_SERVED, .arg = 1, .fd = fd});
	close(fd);
	assert_broke(r);
	assert_int_equal(heard.told, 3);
}

static void test_it_is_said_after_ready(void **state)
{
	struct rig *r = *state;
	int fd = rig_memfd("", 0, RIG_SEALS);

	rig_request(r, (struct rig_ask){.op = LINK_SERVED, .fd = fd});
	close(fd);
	assert_broke(r);
}

/* The agentd before this one may take it back. */
static void test_nothing_is_swept_or_forgotten_meanwhile(void **state)
{
	struct rig *r = *state;
	struct link_packet p;

	broker_hold_back(r->b, true);
	rig_shell("mkdir -p %s", rig_at(r, "pods.d")); /* else nobody can say what is swept */
	rig_shell("mkdir -p %s", rig_at(r, "run/pods/%s/mount", rig_pod_text));
	rig_do(r, (struct rig_ask){.op = LINK_READY});
	assert_int_equal(access(rig_at(r, "run/pods/%s", rig_pod_text), F_OK), 0);
	p = rig_ask(r, (struct rig_ask){.op = LINK_STATE_DEL, .kind = LINK_STATE_CERT}, NULL);
	assert_int_equal(p.code, EBUSY);
	broker_hold_back(r->b, false);
	assert_int_equal(access(rig_at(r, "run/pods/%s", rig_pod_text), F_OK), -1);
	rig_do(r, (struct rig_ask){.op = LINK_STATE_DEL, .kind = LINK_STATE_CERT});
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_directories_have_their_modes),
	    T(test_pod_add_twice_is_one_pod),
	    T(test_max_pods_is_the_limit),
	    T(test_max_pods_sank),
	    T(test_a_token_is_of_a_pod_that_was_added),
	    T(test_remove_takes_all_that_was_made),
	    T(test_remove_takes_what_was_left),
	    T(test_remove_leaves_nothing),
	    T(test_remove_ends_at_a_mount),
	    T(test_a_removal_is_bounded),
	    T(test_listeners_are_reachable_and_non_blocking),
	    T(test_write_renames_into_mount),
	    T(test_write_takes_sealed_memory_only),
	    T(test_protocol_violations_end_the_worker),
	    T(test_wrong_number_of_fds_ends_the_worker),
	    T(test_out_of_fds_is_a_refusal),
	    T(test_copies_are_bounded),
	    T(test_what_is_lost_is_heard_up_to_nothing),
	    T(test_it_is_said_after_ready),
	    T(test_nothing_is_swept_or_forgotten_meanwhile),
	    T(test_the_log_is_as_the_worker_says),
	    T(test_who_held_most_waits),
	    T(test_what_only_the_predecessor_added_was_not_added),
	    T(test_a_loopback_is_dialled_of_machines_alone),
	    T(test_an_admin_port_of_a_manifests_own_is_closed),
	    T(test_what_a_dead_worker_asked_for_is_done),
	    T(test_ready_is_said_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
