/* listener_test.c - a path that always leads to a listener: kept, healed, adopted.
 * LINK: tests/unit/broker/rig.c */
#include "broker/base/apart.h"
#include "common/err.h"
#include "tests/unit/broker/rig.h"
#include <signal.h>

static void test_the_kept_copy_is_returned_again(void **state)
{
	struct rig *r = *state;
	char buf[1];

	rig_add(r);
	int first = rig_listen(r, &rig_pod, LINK_LISTEN_XDS);
	ino_t before = rig_stat(rig_mount(r, "XDS")).st_ino;
	int c = rig_connect(rig_mount(r, "XDS"));
	close(first); /* the worker died */
	int second = rig_listen(r, &rig_pod, LINK_LISTEN_XDS);
	assert_int_equal(rig_stat(rig_mount(r, "XDS")).st_ino, before);
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

	assert_true(rig_reaches(rig_mount(r, "socket"), l));
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
	assert_true(rig_reaches(rig_mount(r, "socket"), fd));
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
	assert_true(rig_reaches(path, again));
	rig_file(rig_mount(r, "other"), "");
	assert_int_equal(rename(rig_mount(r, "other"), path), 0);
	close(l);
	l = rig_listen(r, &rig_pod, LINK_LISTEN_SDS);
	assert_true(rig_reaches(path, l));
	close(l);
	close(again);
}

/* --- the next broker --- */

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
	ino_t before = rig_stat(rig_mount(r, "XDS")).st_ino,
	      admin = rig_stat(rig_at(r, "run/admin.sock")).st_ino;
	next_broker(r);
	close(l);
	int c = rig_connect(rig_mount(r, "XDS")); /* while there is no broker at all */
	assert_true(c >= 0);
	rig_start(r);
	rig_add(r);
	l = rig_listen(r, &rig_pod, LINK_LISTEN_XDS);
	assert_int_equal(rig_stat(rig_mount(r, "XDS")).st_ino, before);
	assert_int_equal(rig_stat(rig_at(r, "run/admin.sock")).st_ino, admin);
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
	assert_true(rig_reaches(rig_mount(r, "socket"), l));
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

/* Its first name was beside the last, where a pod could have written. */
static void test_an_earlier_agentds_socket_is_taken(void **state)
{
	struct rig *r = *state;
	ino_t before;

	rig_add(r);
	int fd = bound(r, SOCK_STREAM, rig_mount(r, ".socket.new"), 5);
	assert_int_equal(rename(rig_mount(r, ".socket.new"), rig_mount(r, "socket")), 0);
	before = rig_stat(rig_mount(r, "socket")).st_ino;
	comes_as(r, fd);
	assert_int_equal(rig_stat(rig_mount(r, "socket")).st_ino, before);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, rig_setup, rig_teardown)
	    T(test_the_kept_copy_is_returned_again),
	    T(test_shutdown_by_the_worker_heals),
	    T(test_listen_never_returns_a_dead_socket),
	    T(test_kept_sockets_come_back),
	    T(test_what_is_not_the_pods_listener_is_not_taken),
	    T(test_an_earlier_agentds_socket_is_taken),
	    T(test_a_file_that_was_replaced_heals),
	    T(test_replacing_shows_no_gap),
	    T(test_connections_wait_while_nobody_accepts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
