/* listener_test.c - a path that always leads to a listener: kept, healed, adopted.
 * LINK: tests/unit/broker/rig.c */
#include "broker/base/apart.h"
#include "common/err.h"
#include "tests/unit/broker/rig.h"
#include <signal.h>

static ino_t inode(const char *path)
{
	struct stat st;

	assert_int_equal(lstat(path, &st), 0);
	return st.st_ino;
}

/* Does a connection to `path` reach the listener `l`? */
static bool reaches(const char *path, int l)
{
	int c = rig_connect(path);
	int a = c >= 0 ? accept(l, NULL, NULL) : -1;

	close(a);
	close(c);
	return a >= 0;
}

static void test_the_kept_copy_is_returned_again(void **state)
{
	struct rig *r = *state;
	char buf[1];

	rig_add(r);
	int first = rig_listen(r, &rig_pod, LINK_LISTEN_XDS);
	ino_t before = inode(rig_mount(r, "XDS"));
	int c = rig_connect(rig_mount(r, "XDS"));
	close(first); /* the worker died */
	int second = rig_listen(r, &rig_pod, LINK_LISTEN_XDS);
	assert_int_equal(inode(rig_mount(r, "XDS")), before);
	int a = accept(second, NULL, NULL); /* who waited in the backlog is served */
	assert_true(a >= 0);
	assert_int_equal(write(a, "x", 1), 1);
	assert_int_equal(read(c, buf, 1), 1);
	close(a);
	close(c);
	close(second);
}

static void heals(struct rig *r, int how)
{
	int l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS), told;

	assert_true(reaches(rig_mount(r, "socket"), l));
	assert_int_equal(shutdown(l, how), 0);
	assert_int_equal(rig_connect(rig_mount(r, "socket")), -1);
	assert_int_equal(errno, ECONNREFUSED);
	struct link_packet p = rig_expect(r, LINK_LISTENER, &told); /* by itself */
	assert_true(p.kind == LINK_LISTEN_SDS && uuid_equal(&p.uid, &rig_pod));
	rig_quiet(r); /* once */
	int c = rig_connect(rig_mount(r, "socket"));
	assert_true(c >= 0); /* it waits for the next who serves */
	int healthy = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	int a = accept(told, NULL, NULL); /* the same socket */
	assert_true(a >= 0);
	close(a);
	close(c);
	close(told);
	close(l);
	close(healthy);
}

/* process-split.md 0.7: the worker shares the description; listen() would not heal it. */
static void test_shutdown_by_the_worker_heals(void **state)
{
	struct rig *r = *state;

	rig_add(r);
	heals(r, SHUT_RDWR);
	heals(r, SHUT_RD);
}

/* Asked before the hang-up was handled: still not the dead one. */
static void never_dead(struct rig *r, int how)
{
	int l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS), fd;
	struct rig_ask ask = {LINK_LISTEN, LINK_LISTEN_SDS, 0, &rig_pod, 0};
	uint32_t id = rig_request(r, ask);

	assert_int_equal(shutdown(l, how), 0);
	struct link_packet p = rig_expect(r, LINK_REPLY, &fd);
	assert_int_equal(p.id, id);
	assert_int_equal(p.code, 0);
	rig_quiet(r);
	assert_true(reaches(rig_mount(r, "socket"), fd));
	close(fd);
	close(l);
}

static void test_listen_never_returns_a_dead_socket(void **state)
{
	rig_add(*state);
	never_dead(*state, SHUT_RDWR);
	never_dead(*state, SHUT_RD);
}

/* By a hand-over that failed, or by root: what no name leads to is of no use to anybody. */
static void test_a_file_that_was_replaced_heals(void **state)
{
	struct rig *r = *state;
	const char *path = rig_mount(r, "socket");

	rig_add(r);
	int l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS), again;
	assert_int_equal(unlink(path), 0);
	again = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	assert_true(reaches(path, again));
	rig_file(rig_mount(r, "other"), "");
	assert_int_equal(rename(rig_mount(r, "other"), path), 0);
	close(l);
	l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	assert_true(reaches(path, l));
	close(l);
	close(again);
}

/* The next broker on the run directory of a dead one: same directories, sockets renamed over. */
static void test_directories_of_a_dead_broker_are_adopted(void **state)
{
	struct rig *r = *state;

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	ino_t dir = inode(rig_mount(r, "")), sock = inode(rig_mount(r, "socket"));
	rig_stop(r);
	assert_int_equal(rig_connect(rig_mount(r, "socket")), -1);
	assert_int_equal(errno, ECONNREFUSED);
	rig_file(rig_mount(r, ".socket.new"), "it died while it made one");
	rig_start(r);
	rig_add(r);
	int l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	assert_int_equal(inode(rig_mount(r, "")), dir); /* it is mounted into a pod */
	assert_int_not_equal(inode(rig_mount(r, "socket")), sock);
	assert_true(reaches(rig_mount(r, "socket"), l));
	close(l);
}

/* No worker of ours does that at all. */
static void test_a_worker_that_keeps_doing_it_is_killed(void **state)
{
	struct rig *r = *state;
	enum broker_turned s = BROKER_SERVING;
	int told;

	rig_add(r);
	told = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	for (int i = 0; i < 32; i++) {
		shutdown(told, SHUT_RDWR);
		close(told);
		rig_expect(r, LINK_LISTENER, &told);
	}
	shutdown(told, SHUT_RDWR);
	close(told);
	for (int i = 0; i < RIG_TURNS && s == BROKER_SERVING; i++)
		s = broker_turn(r->b, 0);
	assert_int_equal(s, BROKER_WORKER_BROKE);
	close(rig_connect(rig_mount(r, "socket"))); /* for the next one */
}

/* Which the worker has from its greeting only. */
static void test_a_worker_that_shuts_admin_down_is_killed(void **state)
{
	struct rig *r = *state;
	enum broker_turned s = BROKER_SERVING;
	int admin;

	close(r->fd);
	rig_attach(r);
	rig_expect(r, LINK_HELLO, NULL);
	rig_expect(r, LINK_NODE_LISTENER, &admin);
	shutdown(admin, SHUT_RDWR);
	for (int i = 0; i < RIG_TURNS && s == BROKER_SERVING; i++)
		s = broker_turn(r->b, 0);
	assert_int_equal(s, BROKER_WORKER_BROKE);
	close(r->fd);
	rig_attach(r);
	rig_expect(r, LINK_HELLO, NULL);
	close(admin);
	rig_expect(r, LINK_NODE_LISTENER, &admin);
	assert_true(reaches(rig_at(r, "run/admin.sock"), admin));
	close(admin);
}

/* --- the next worker, the next broker --- */

static bool has_directory(struct rig *r, const char *uid)
{
	return !access(rig_at(r, "run/pods/%s", uid), F_OK);
}

static const char other_text[] = "09080700-0000-0000-0000-000000000000",
		  third_text[] = "11111111-1111-1111-1111-111111111111";

static void test_ready_sweeps_what_was_not_added(void **state)
{
	struct rig *r = *state;

	rig_shell("mkdir -p %s %s %s", rig_at(r, "pods.d"),
	    rig_at(r, "run/pods/%s/mount", third_text),
	    rig_at(r, "run/pods/README")); /* an earlier broker's, and somebody's */
	rig_file(rig_at(r, "run/pods/%s/mount/XDS", third_text), "");
	rig_add(r);
	rig_do(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_other});
	close(rig_listen(r, &rig_other, LINK_LISTEN_SDS));
	rig_next_worker(r);
	rig_add(r);
	assert_true(has_directory(r, other_text) && has_directory(r, third_text));
	rig_do(r, (struct rig_ask){.op = LINK_READY});
	assert_true(has_directory(r, rig_pod_text) && has_directory(r, "README"));
	assert_false(has_directory(r, other_text) || has_directory(r, third_text));
	rig_refused(r, (struct rig_ask){LINK_LISTEN, LINK_LISTEN_SDS, 0, &rig_other, 0}, ENOENT,
	    "not added");
}

/* A manifest that is refused now belongs to a running pod all the same; without the directory of
 * the manifests nobody can say anything. */
static void test_ready_leaves_what_has_a_manifest(void **state)
{
	struct rig *r = *state;

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	rig_next_worker(r);
	rig_do(r, (struct rig_ask){.op = LINK_READY});
	assert_true(has_directory(r, rig_pod_text));
	rig_next_worker(r);
	rig_shell("mkdir -p %s", rig_at(r, "pods.d"));
	rig_file(rig_at(r, "pods.d/%s.yaml", rig_pod_text), "?");
	rig_do(r, (struct rig_ask){.op = LINK_READY});
	assert_true(has_directory(r, rig_pod_text));
	int c = rig_connect(rig_mount(r, "socket"));
	assert_true(c >= 0);
	close(c);
	rig_next_worker(r);
	unlink(rig_at(r, "pods.d/%s.yaml", rig_pod_text));
	rig_do(r, (struct rig_ask){.op = LINK_READY});
	assert_false(has_directory(r, rig_pod_text));
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

/* Also when nobody reads the answers any more. */
static void test_what_a_dead_worker_asked_for_is_done(void **state)
{
	struct rig *r = *state;

	rig_request(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_pod});
	for (int i = 0; i < RIG_TURNS; i++)
		broker_turn(
		    r->b, 0); /* its answer stays unread: ECONNRESET comes before the rest */
	rig_request(r, (struct rig_ask){.op = LINK_POD_ADD, .pod = &rig_other});
	rig_request(r, (struct rig_ask){.op = LINK_LISTEN, .pod = &rig_other});
	rig_next_worker(r);
	assert_true(has_directory(r, rig_pod_text) && has_directory(r, other_text));
	int c = rig_connect(rig_at(r, "run/pods/%s/mount/socket", other_text));
	assert_true(c >= 0);
	close(c);
}

static void test_ready_is_said_once(void **state)
{
	struct rig *r = *state;
	enum broker_turned s = BROKER_SERVING;

	rig_do(r, (struct rig_ask){.op = LINK_READY});
	rig_request(r, (struct rig_ask){.op = LINK_READY});
	for (int i = 0; i < RIG_TURNS && s == BROKER_SERVING; i++)
		s = broker_turn(r->b, 0);
	assert_int_equal(s, BROKER_WORKER_BROKE);
}

static void give_on(void *ctx, const char *name, int fd)
{
	broker_fdstore_found(ctx, name, fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

/* As a re-execution does it. */
static void next_broker(struct rig *r)
{
	struct broker_fdstore *next = broker_fdstore_new();

	broker_fdstore_each(r->kept, BROKER_FDSTORE, give_on, next);
	rig_stop(r);
	r->kept = next;
}

static void test_kept_sockets_come_back(void **state)
{
	struct rig *r = *state;

	rig_add(r);
	int l = rig_listen(r, &rig_pod, LINK_LISTEN_XDS);
	ino_t before = inode(rig_mount(r, "XDS")), admin = inode(rig_at(r, "run/admin.sock"));
	next_broker(r);
	close(l);
	int c = rig_connect(rig_mount(r, "XDS")); /* while there is no broker at all */
	assert_true(c >= 0);
	rig_start(r);
	rig_add(r);
	l = rig_listen(r, &rig_pod, LINK_LISTEN_XDS);
	assert_int_equal(inode(rig_mount(r, "XDS")), before);
	assert_int_equal(inode(rig_at(r, "run/admin.sock")), admin);
	int a = accept(l, NULL, NULL);
	assert_true(a >= 0);
	close(a);
	close(c);
	close(l);
}

/* The socket at that name is none of ours: a fresh one takes its place. */
static void comes_as(struct rig *r, int fd)
{
	char name[BROKER_FDSTORE_NAME];

	rig_stop(r);
	r->kept = broker_fdstore_new();
	snprintf(name, sizeof(name), "%s.sds", rig_pod_text);
	broker_fdstore_found(r->kept, name, fd);
	rig_start(r);
	rig_add(r);
	int l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	assert_true(reaches(rig_mount(r, "socket"), l));
	assert_int_equal(broker_fdstore_take(r->kept, name), -1);
	close(l);
}

static int bound(struct rig *r, int type, const char *path, int backlog)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	unlink(path);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	if (backlog)
		assert_int_equal(listen(fd, backlog), 0);
	(void)r;
	return fd;
}

static void test_what_is_not_the_pods_listener_is_not_taken(void **state)
{
	struct rig *r = *state;
	char temp[RIG_PATH];
	int dead;

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	snprintf(temp, sizeof(temp), "%s", rig_mount(r, ".socket.new"));
	comes_as(r, open("/dev/null", O_RDONLY | O_CLOEXEC));
	comes_as(r, socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	comes_as(r, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	comes_as(r, bound(r, SOCK_STREAM, temp, 0)); /* does not listen */
	comes_as(r, bound(r, SOCK_SEQPACKET, temp, 5));
	comes_as(r, bound(r, SOCK_STREAM, rig_mount(r, ".XDS.new"), 5)); /* the other kind's */
	comes_as(r, bound(r, SOCK_STREAM, rig_at(r, ".socket.new"), 5)); /* another pod's */
	dead = bound(r, SOCK_STREAM, temp, 5);
	shutdown(dead, SHUT_RDWR);
	comes_as(r, dead);
	dead = bound(r, SOCK_STREAM, temp, 5);
	unlink(rig_mount(r, "socket")); /* nothing leads to it any more */
	comes_as(r, dead);
	unlink(rig_mount(r, ".XDS.new"));
	unlink(temp);
}

/* Connects in a loop until killed; exits 1 when the path was ever missing. */
static pid_t start_hammer(const char *path)
{
	int ready[2];
	char byte;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid > 0) {
		close(ready[1]);
		assert_int_equal(read(ready[0], &byte, 1), 0);
		close(ready[0]);
		return pid;
	}
	close_range(3, ~0U, 0); /* among them the lock of the run directory */
	for (;;) {
		int c = rig_connect(path);
		if (c < 0 && errno != ECONNREFUSED && errno != EAGAIN)
			_exit(1);
		close(c);
	}
}

/* Those that close a listener with somebody in its backlog; another one that ended is the hammer.
 */
static void reap(void)
{
	for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) > 0;)
		assert_true(apart_reaped(pid));
}

static void test_replacing_shows_no_gap(void **state)
{
	struct rig *r = *state;
	int status;

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	pid_t hammer = start_hammer(rig_mount(r, "socket"));
	for (int i = 0; i < 200; i++) {
		reap();
		rig_stop(r);
		rig_start(r);
		rig_add(r);
		close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	}
	assert_int_equal(waitpid(hammer, &status, WNOHANG), 0); /* never ENOENT */
	kill(hammer, SIGKILL);
	waitpid(hammer, &status, 0);
	while (apart_is_busy())
		reap();
}

/* The backlog is deep: 300 connects while nobody accepts. */
static void test_connections_wait_while_nobody_accepts(void **state)
{
	struct rig *r = *state;
	int c[300];

	rig_add(r);
	close(rig_listen(r, &rig_pod, LINK_LISTEN_SDS));
	for (int i = 0; i < 300; i++)
		assert_true((c[i] = rig_connect(rig_mount(r, "socket"))) >= 0);
	int l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	for (int i = 0; i < 300; i++) {
		int a = accept(l, NULL, NULL);
		assert_true(a >= 0);
		close(a);
		close(c[i]);
	}
	close(l);
}

/* --- one broker at a time --- */

static void test_a_second_broker_is_refused(void **state)
{
	struct rig *r = *state;
	struct err e = {0};
	char text[32];

	rig_add(r);
	int l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	assert_null(rig_broker(r, &e));
	assert_int_equal(e.code, EBUSY);
	snprintf(text, sizeof(text), "pid %d", (int)getpid());
	assert_non_null(strstr(e.msg, text));
	assert_true(reaches(rig_mount(r, "socket"), l)); /* the first one is not disturbed */
	close(l);
}

static void refuse_run(struct rig *r, const char *why)
{
	struct err e = {0};

	assert_null(rig_broker(r, &e));
	if (!strstr(e.msg, why))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, why);
}

static void test_a_run_directory_of_others_is_refused(void **state)
{
	struct rig *r = *state;

	rig_stop(r);
	assert_int_equal(chmod(r->run, 0777), 0);
	refuse_run(r, "written by others");
	assert_int_equal(chmod(r->run, 0755) | chown(r->run, 12345, 0), 0);
	refuse_run(r, "written by others");
	assert_int_equal(chown(r->run, 0, 0), 0);
	assert_int_equal(chmod(rig_at(r, "run/pods"), 0770), 0);
	refuse_run(r, "written by others");
	umount2(rig_at(r, "run/state"), MNT_DETACH);
	rig_shell("cd %s && mv run real && ln -s real run", r->top);
	refuse_run(r, "not a directory");
	rig_shell("cd %s && rm run && touch run", r->top);
	refuse_run(r, "not a directory");
	rig_shell("cd %s && rm run", r->top);
	r->o.run = "/nonexistent/run";
	refuse_run(r, "mkdir /nonexistent/run");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_the_kept_copy_is_returned_again),
	    T(test_shutdown_by_the_worker_heals),
	    T(test_listen_never_returns_a_dead_socket),
	    T(test_a_worker_that_keeps_doing_it_is_killed),
	    T(test_a_worker_that_shuts_admin_down_is_killed),
	    T(test_ready_sweeps_what_was_not_added),
	    T(test_ready_leaves_what_has_a_manifest),
	    T(test_the_next_worker_hears_of_its_own_follows_only),
	    T(test_what_a_dead_worker_asked_for_is_done),
	    T(test_ready_is_said_once),
	    T(test_kept_sockets_come_back),
	    T(test_what_is_not_the_pods_listener_is_not_taken),
	    T(test_a_file_that_was_replaced_heals),
	    T(test_directories_of_a_dead_broker_are_adopted),
	    T(test_replacing_shows_no_gap),
	    T(test_connections_wait_while_nobody_accepts),
	    T(test_a_second_broker_is_refused),
	    T(test_a_run_directory_of_others_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
