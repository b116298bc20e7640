/* handover_test.c - two agentds in two processes: given, taken, given back, refused.
 * LINK: tests/fake/apart.c tests/unit/broker/rig.c */
#include "broker/life/handover.h"
#include "common/err.h"
#include "common/fdpass.h"
#include "tests/unit/broker/rig.h"
#include <sched.h>

struct old {
	char run[32];
	int epoll, asked;
	struct handover h;
	struct alive alive;
	struct broker_fdstore *kept;
	int one, two;
};

static void on_asked(void *ctx)
{
	((struct old *)ctx)->asked++;
}

static int setup(void **state)
{
	static struct old o;
	struct err e;

	memset(&o, 0, sizeof(o));
	strcpy(o.run, "/tmp/bhXXXXXX");
	assert_non_null(mkdtemp(o.run));
	o.epoll = broker_loop_new();
	assert_int_equal(handover_open(&o.h, o.epoll, o.run, on_asked, &o, &e), 0);
	assert_int_equal(alive_open(&o.alive, NULL, &e), 0);
	o.kept = broker_fdstore_new();
	o.one = open("/dev/null", O_RDONLY | O_CLOEXEC);
	o.two = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	broker_fdstore_put(o.kept, "lock", o.one);
	broker_fdstore_put(o.kept, "01020300-0000-0000-0000-000000000000.sds", o.two);
	*state = &o;
	return 0;
}

static int teardown(void **state)
{
	struct old *o = *state;

	handover_close(&o->h);
	handover_close(&o->h);
	broker_fdstore_free(&o->kept);
	close(o->one);
	close(o->two);
	close(o->epoll);
	rig_shell("rm -rf %s", o->run);
	return 0;
}

enum act { STAY, LEAVE, GIVE_BACK };

/* 0: it has all, and does as told. */
static int take_over(const char *run, enum act act)
{
	struct broker_fdstore *k = broker_fdstore_new();
	struct err e;
	struct stat zero, got;
	struct handover_from f;

	if (handover_take(run, 7, k, &f, &e) || f.conn < 0)
		return 1;
	if (f.pid != getppid() || !handover_is_waited_for(&f))
		return 4;
	int fd = broker_fdstore_take(k, "01020300-0000-0000-0000-000000000000.sds");
	if (stat("/dev/zero", &zero) || fstat(fd, &got) || zero.st_rdev != got.st_rdev ||
	    fcntl(fd, F_GETFD) != FD_CLOEXEC || broker_fdstore_take(k, "lock") < 0 ||
	    broker_fdstore_sweep(k) != 0)
		return 2;
	if (act == STAY)
		handover_done(&f);
	if (act == GIVE_BACK)
		handover_give_back(&f, "a/b: ads: refused");
	return act == STAY ? 0 : 3;
}

static pid_t start_new(const struct old *o, enum act act)
{
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(take_over(o->run, act));
	return pid;
}

static int status_of(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* The new agentd, when it has asked.  On a machine that stalls one may be too late to ask
 * (handover.c): then another one comes. */
static pid_t asked_by_new(struct old *o, enum act act)
{
	const int wanted = o->asked + 1;
	pid_t pid = start_new(o, act);

	for (int left = 5; o->asked < wanted;) {
		broker_loop_turn(o->epoll, 100);
		if (o->asked < wanted && waitpid(pid, NULL, WNOHANG) == pid) {
			assert_true(left-- > 0);
			pid = start_new(o, act);
		}
	}
	return pid;
}

static void test_all_is_given_and_the_old_one_may_go(void **state)
{
	struct old *o = *state;
	pid_t pid = asked_by_new(o, STAY);

	assert_int_equal(o->h.peer, pid);
	assert_int_equal(o->h.wants_s, 7);
	assert_int_equal(handover_give(&o->h, o->kept, &o->alive), BROKER_HANDED_OVER);
	assert_int_equal(status_of(pid), 0);
}

static void test_one_that_is_never_ready_gives_back(void **state)
{
	struct old *o = *state;

	for (int i = 0; i < 3; i++) { /* and another one may try */
		pid_t pid = asked_by_new(o, i ? GIVE_BACK : LEAVE);
		assert_int_equal(handover_give(&o->h, o->kept, &o->alive), BROKER_HANDED_BACK);
		assert_int_equal(status_of(pid), 3);
		assert_true(fcntl(o->one, F_GETFD) == FD_CLOEXEC);
	}
}

static void test_only_one_at_a_time(void **state)
{
	struct old *o = *state;
	pid_t first = asked_by_new(o, STAY);
	pid_t second = start_new(o, STAY);
	for (int i = 0; i < 3; i++) /* it calls, and asks */
		broker_loop_turn(o->epoll, 1000);
	assert_int_equal(status_of(second), 1);
	assert_int_equal(o->asked, 1);
	handover_refuse(&o->h, "not now");
	assert_int_equal(status_of(first), 1);
}

static void test_nobody_is_there(void **state)
{
	struct old *o = *state;
	struct err e;
	struct handover_from f = {.conn = 7};

	handover_close(&o->h);
	assert_int_equal(handover_take(o->run, 1, o->kept, &f, &e), 0); /* a dead socket */
	assert_int_equal(f.conn, -1);
	assert_int_equal(handover_take("/nonexistent", 1, o->kept, &f, &e), 0);
	assert_int_equal(f.conn, -1);
	assert_false(handover_is_waited_for(&f));
	handover_done(&f);
	handover_give_back(&f, "");
}

/* --- who may not --- */

static int call(const char *run)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/handover", run);
	return connect(fd, (struct sockaddr *)&a, sizeof(a)) ? -1 : fd;
}

/* The first packet that a stranger gets; "" for none.  Head and text as in handover.c. */
static int ask_as(const char *run, bool (*become)(void), const char *words)
{
	struct {
		char magic[12];
		uint32_t version, what, count;
		char text[LINK_WHY_SIZE];
	} p = {"agentd:give", HANDOVER_VERSION, 1, 0, ""};

	if (!become())
		return 77;
	int fd = call(run);
	if (fd < 0)
		return errno == EACCES ? 13 : 1;
	if (send(fd, &p, sizeof(p), MSG_NOSIGNAL) < 0 && errno != EPIPE)
		return 2;
	ssize_t n = recv(fd, &p, sizeof(p), 0);
	if (n < 0 && errno == ECONNRESET) /* what was asked was not read */
		n = recv(fd, &p, sizeof(p), 0);
	if (n != sizeof(p))
		return 3;
	return p.what == 2 && strstr(p.text, words) ? 0 : 4;
}

static bool nobody(void)
{
	return !setgid(1338) && !setuid(1338);
}

static bool root_of_its_own(void)
{
	int map;

	if (unshare(CLONE_NEWUSER) || (map = open("/proc/self/uid_map", O_WRONLY)) < 0)
		return false;
	return write(map, "0 0 1", 5) == 5;
}

/* As root of a pod that was given the path. */
static bool root_elsewhere(void)
{
	return !unshare(CLONE_NEWNET);
}

static bool root(void)
{
	return true;
}

#ifndef __has_feature /* clang's */
#define __has_feature(x) 0
#endif
/* ThreadSanitizer has a thread of its own, and who has threads cannot leave his user namespace. */
static const bool has_threads = __has_feature(thread_sanitizer);

static int stranger(struct old *o, bool (*become)(void), const char *words)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(ask_as(o->run, become, words));
	while (!waitpid(pid, &status, WNOHANG)) {
		broker_loop_turn(o->epoll, 20);
		if (o->h.conn >= 0)
			handover_refuse(&o->h, "but not now");
	}
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_who_is_not_the_nodes_root_may_not(void **state)
{
	struct old *o = *state;
	char path[64];

	snprintf(path, sizeof(path), "%s/handover", o->run);
	assert_int_equal(chmod(o->run, 0755), 0);
	assert_int_equal(stranger(o, nobody, ""), 13); /* the mode of the file */
	assert_int_equal(chmod(path, 0666), 0);
	assert_int_equal(stranger(o, nobody, "only root may take over, not uid 1338"), 0);
	if (!has_threads)
		assert_int_equal(
		    stranger(o, root_of_its_own, "only root of the node's user namespace"), 0);
	assert_int_equal(
	    stranger(o, root_elsewhere, "only root in agentd's own network namespace"), 0);
	assert_int_equal(o->asked, 0);
	assert_int_equal(stranger(o, root, "but not now"), 0);
	assert_int_equal(o->asked, 1);
}

/* --- who is mute, and who sends descriptors --- */

struct head {
	char magic[12];
	uint32_t version;
	char rest[300];
};

static void turn_all(const struct old *o)
{
	for (int i = 0; i < 32; i++)
		broker_loop_turn(o->epoll, 10);
}

/* Nothing is waited for, and the one who asks is heard beside any number of them. */
static void test_who_says_nothing_holds_nobody(void **state)
{
	enum { MUTE = HANDOVER_CALLERS + 3 };
	struct old *o = *state;
	int fds[MUTE];
	char byte[512];

	for (int i = 0; i < MUTE; i++) {
		fds[i] = call(o->run);
		assert_true(fds[i] >= 0);
		broker_loop_turn(o->epoll, 1000);
	}
	assert_int_equal(o->asked, 0);
	pid_t pid = asked_by_new(o, STAY);
	assert_int_equal(handover_give(&o->h, o->kept, &o->alive), BROKER_HANDED_OVER);
	assert_int_equal(status_of(pid), 0);
	assert_true(recv(fds[0], byte, sizeof(byte), MSG_DONTWAIT) > 0); /* REFUSED */
	assert_int_equal(recv(fds[0], byte, sizeof(byte), MSG_DONTWAIT), 0);
	for (int i = 0; i < MUTE; i++)
		close(fds[i]);
}

/* From Linux 6.16 on they cannot be sent; else they are closed, and the hand-over is refused. */
static void test_descriptors_are_refused(void **state)
{
	struct old *o = *state;
	const size_t whole = 12 + 3 * 4 + LINK_WHY_SIZE;
	struct head p = {"agentd:give", HANDOVER_VERSION, {1}};
	int fd = call(o->run), ends[2];
	char byte;

	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	broker_loop_turn(o->epoll, 1000);
	int rc = fdpass_send(fd, &p, whole, ends[1]);
	assert_true(rc == 0 || errno == EPERM);
	close(ends[1]);
	turn_all(o);
	assert_int_equal(o->asked, 0);
	assert_int_equal(read(ends[0], &byte, 1), 0); /* nobody has the other end */
	close(ends[0]);
	close(fd);
}

/* --- other releases --- */

static void test_another_version_is_refused_with_words(void **state)
{
	struct old *o = *state;
	struct head p = {"agentd:give", HANDOVER_VERSION + 1, ""};
	int fd = call(o->run);

	assert_int_equal(send(fd, &p, sizeof(p), 0), sizeof(p)); /* longer, too */
	broker_loop_turn(o->epoll, 1000);
	broker_loop_turn(o->epoll, 1000);
	assert_int_equal(o->asked, 0);
	assert_true(recv(fd, &p, sizeof(p), 0) > 0);
	assert_int_equal(p.version, HANDOVER_VERSION);
	assert_non_null(strstr(p.rest + 8, "the other agentd hands over in version 2"));
	close(fd);
}

/* What the new one says of an old one that answers so. */
static void answered(struct old *o, const struct head *p, size_t size, const char *words)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int l = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), c;
	struct handover_from f;
	struct err e = {0};

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/handover", o->run);
	unlink(a.sun_path);
	assert_int_equal(bind(l, (struct sockaddr *)&a, sizeof(a)) | listen(l, 1), 0);
	pid_t pid = fork();
	if (pid == 0) {
		char asked[256];
		c = accept(l, NULL, NULL);
		_exit(
		    recv(c, asked, sizeof(asked), 0) <= 0 || send(c, p, size, 0) != (ssize_t)size);
	}
	assert_int_equal(handover_take(o->run, 1, o->kept, &f, &e), -1);
	assert_int_equal(f.conn, -1);
	if (!strstr(e.msg, words))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, words);
	assert_int_equal(status_of(pid), 0);
	close(l);
}

static void test_an_old_one_of_another_version(void **state)
{
	struct old *o = *state;
	struct head p = {"agentd:give", HANDOVER_VERSION + 1, ""};
	const size_t whole = 12 + 3 * 4 + LINK_WHY_SIZE;
	const uint32_t end[2] = {4, 1}; /* END of one, and none came */

	answered(o, &p, 64, "stop one, then start the other");
	p.version = HANDOVER_VERSION;
	answered(o, &p, 64, "is damaged");
	memcpy(p.rest, end, sizeof(end));
	answered(o, &p, whole, "gave less than it announced");
	p.magic[0] = 'A';
	answered(o, &p, whole, "is no agentd");
	answered(o, &p, 3, "is no agentd");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(
		test_all_is_given_and_the_old_one_may_go, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_one_that_is_never_ready_gives_back, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_only_one_at_a_time, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_nobody_is_there, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_who_is_not_the_nodes_root_may_not, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_who_says_nothing_holds_nobody, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_descriptors_are_refused, setup, teardown),
	    cmocka_unit_test_setup_teardown(
		test_another_version_is_refused_with_words, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_an_old_one_of_another_version, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
