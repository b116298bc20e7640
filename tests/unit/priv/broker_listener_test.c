/* broker_listener_test.c - a path that always leads to a listener: kept, healed, adopted. */
#include "broker_rig.h"
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
	int first = rig_listen(r, &rig_pod, PRIV_LISTEN_XDS);
	ino_t before = inode(rig_mount(r, "XDS"));
	int c = rig_connect(rig_mount(r, "XDS"));
	close(first); /* the worker died */
	int second = rig_listen(r, &rig_pod, PRIV_LISTEN_XDS);
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
	int l = rig_listen(r, &rig_pod, PRIV_LISTEN_SDS);

	assert_true(reaches(rig_mount(r, "socket"), l));
	assert_int_equal(shutdown(l, how), 0);
	assert_int_equal(rig_connect(rig_mount(r, "socket")), -1);
	assert_int_equal(errno, ECONNREFUSED);
	rig_quiet(r); /* the broker notices by itself */
	int c = rig_connect(rig_mount(r, "socket"));
	assert_true(c >= 0); /* it waits for the next who serves */
	int healthy = rig_listen(r, &rig_pod, PRIV_LISTEN_SDS);
	int a = accept(healthy, NULL, NULL);
	assert_true(a >= 0);
	close(a);
	close(c);
	close(l);
	close(healthy);
}

/* process-split.md verdict 7: the worker shares the description; listen() would not heal it. */
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
	int l = rig_listen(r, &rig_pod, PRIV_LISTEN_SDS), fd;
	struct rig_ask ask = {PRIV_LISTEN, PRIV_LISTEN_SDS, 0, &rig_pod, 0};
	uint32_t id = rig_request(r, ask);

	assert_int_equal(shutdown(l, how), 0);
	struct priv_packet p = rig_expect(r, PRIV_REPLY, &fd);
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

/* The next broker on the run directory of a dead one: same directories, sockets renamed over. */
static void test_directories_of_a_dead_broker_are_adopted(void **state)
{
	struct rig *r = *state;

	rig_add(r);
	close(rig_listen(r, &rig_pod, PRIV_LISTEN_SDS));
	ino_t dir = inode(rig_mount(r, "")), sock = inode(rig_mount(r, "socket"));
	rig_stop(r);
	assert_int_equal(rig_connect(rig_mount(r, "socket")), -1);
	assert_int_equal(errno, ECONNREFUSED);
	rig_file(rig_mount(r, ".socket.new"), "it died while it made one");
	rig_start(r);
	rig_add(r);
	int l = rig_listen(r, &rig_pod, PRIV_LISTEN_SDS);
	assert_int_equal(inode(rig_mount(r, "")), dir); /* it is mounted into a pod */
	assert_int_not_equal(inode(rig_mount(r, "socket")), sock);
	assert_true(reaches(rig_mount(r, "socket"), l));
	close(l);
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

static void test_replacing_shows_no_gap(void **state)
{
	struct rig *r = *state;
	int status;

	rig_add(r);
	close(rig_listen(r, &rig_pod, PRIV_LISTEN_SDS));
	pid_t hammer = start_hammer(rig_mount(r, "socket"));
	for (int i = 0; i < 200; i++) {
		rig_stop(r);
		rig_start(r);
		rig_add(r);
		close(rig_listen(r, &rig_pod, PRIV_LISTEN_SDS));
	}
	assert_int_equal(waitpid(hammer, &status, WNOHANG), 0); /* never ENOENT */
	kill(hammer, SIGKILL);
	waitpid(hammer, &status, 0);
}

/* The backlog is deep: 300 connects while nobody accepts. */
static void test_connections_wait_while_nobody_accepts(void **state)
{
	struct rig *r = *state;
	int c[300];

	rig_add(r);
	close(rig_listen(r, &rig_pod, PRIV_LISTEN_SDS));
	for (int i = 0; i < 300; i++)
		assert_true((c[i] = rig_connect(rig_mount(r, "socket"))) >= 0);
	int l = rig_listen(r, &rig_pod, PRIV_LISTEN_SDS);
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
	struct broker_why w = {0};
	char text[32];

	rig_add(r);
	int l = rig_listen(r, &rig_pod, PRIV_LISTEN_SDS);
	assert_null(rig_broker(r, &w));
	assert_int_equal(w.code, EBUSY);
	snprintf(text, sizeof(text), "pid %d", (int)getpid());
	assert_non_null(strstr(w.text, text));
	assert_true(reaches(rig_mount(r, "socket"), l)); /* the first one is not disturbed */
	close(l);
}

static void refuse_run(struct rig *r, const char *why)
{
	struct broker_why w = {0};

	assert_null(rig_broker(r, &w));
	if (!strstr(w.text, why))
		fail_msg("\"%s\" lacks \"%s\"", w.text, why);
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
	    T(test_directories_of_a_dead_broker_are_adopted),
	    T(test_replacing_shows_no_gap),
	    T(test_connections_wait_while_nobody_accepts),
	    T(test_a_second_broker_is_refused),
	    T(test_a_run_directory_of_others_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
