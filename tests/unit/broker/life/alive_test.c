/* alive_test.c - who asks is told at once, who is not root is not, and nobody is waited for.
 * LINK: tests/fake/apart.c tests/unit/broker/rig.c */
#include "broker/life/alive.h"
#include "common/err.h"
#include "common/pidfd.h"
#include "tests/unit/broker/rig.h"
#include <signal.h>

static char top[32], path[64];
static struct alive a;
static int epoll;

static int setup(void **state)
{
	struct err e;

	(void)state;
	strcpy(top, "/tmp/baXXXXXX");
	assert_non_null(mkdtemp(top));
	snprintf(path, sizeof(path), "%s/alive", top);
	epoll = broker_loop_new();
	assert_int_equal(alive_open(&a, path, &e), 0);
	assert_int_equal(alive_watch(&a, epoll, &e), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	alive_close(&a);
	alive_close(&a);
	close(epoll);
	rig_shell("rm -rf %s", top);
	return 0;
}

static int call(void)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(at.sun_path, path);
	return connect(fd, (struct sockaddr *)&at, sizeof(at)) ? -1 : fd;
}

/* Takes `fd`. */
static void assert_hears(int fd, const char *what)
{
	char text[ALIVE_WHY_SIZE + 64];
	ssize_t n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);

	text[n > 0 ? n : 0] = '\0';
	assert_string_equal(text, what);
	assert_int_equal(recv(fd, text, sizeof(text), MSG_DONTWAIT), 0); /* and is hung up on */
	close(fd);
}

static void test_each_word(void **state)
{
	(void)state;
	for (int i = 0; i < 4; i++) {
		static const char *const says[] = {"starting\n", "ready\n",
		    "not ready\na/b: ads: refused\n", "over\nanother has the pods"};
		int fd = call();
		if (i)
			alive_say(&a, (enum alive_word)i, strchr(says[i], '\n') + 1);
		broker_loop_turn(epoll, 1000);
		assert_hears(fd, says[i]);
	}
}

/* A kubelet would end one that says so after its startup probe. */
static void test_nothing_starts_twice(void **state)
{
	int fd = call();

	(void)state;
	alive_say(&a, ALIVE_NOT, "the next try is in 60 s");
	alive_say(&a, ALIVE_STARTING, "a/b: ads: refused");
	broker_loop_turn(epoll, 1000);
	assert_hears(fd, "not ready\na/b: ads: refused");
}

/* One that sends, one that does not read, many at once, and one that has gone. */
static void test_nobody_is_waited_for(void **state)
{
	int fds[12];

	(void)state;
	for (int i = 0; i < 12; i++) {
		fds[i] = call();
		assert_int_equal(send(fds[i], top, sizeof(top), MSG_NOSIGNAL), sizeof(top));
	}
	close(call());
	broker_loop_turn(epoll, 1000);
	for (int i = 0; i < 12; i++)
		close(fds[i]);
	int fd = call();
	broker_loop_turn(epoll, 1000);
	assert_hears(fd, "starting\n");
}

static void test_root_alone_is_told(void **state)
{
	struct stat st;
	int status;

	(void)state;
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	chmod(top, 0755);
	chmod(path, 0666);
	pid_t pid = fork();
	if (pid == 0) {
		char byte;
		int fd = setgid(1338) || setuid(1338) ? -1 : call();
		_exit(fd < 0 || recv(fd, &byte, 1, 0) != 0);
	}
	while (!waitpid(pid, &status, WNOHANG))
		broker_loop_turn(epoll, 20);
	assert_int_equal(status, 0);
}

/* Without a loop: while agentd lingers, or waits to ask again. */
static void test_it_answers_at_rest(void **state)
{
	sigset_t ends;

	(void)state;
	alive_unwatch(&a);
	int fd = call();
	alive_say(&a, ALIVE_OVER, "");
	assert_false(alive_rest(&a, -1, 50));
	assert_hears(fd, "over\n");

	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	int process = pidfd_of_number(pid);
	assert_false(alive_rest(&a, process, 600000));
	waitpid(pid, NULL, 0);
	close(process);

	sigemptyset(&ends);
	sigaddset(&ends, SIGTERM);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	raise(SIGTERM);
	assert_true(alive_rest(&a, -1, -1));
	sigwaitinfo(&ends, NULL);
	sigprocmask(SIG_UNBLOCK, &ends, NULL);
}

static void test_without_a_path_nobody_asks(void **state)
{
	struct alive none;
	struct err e;

	(void)state;
	assert_int_equal(alive_open(&none, NULL, &e), 0);
	assert_int_equal(alive_watch(&none, epoll, &e), 0);
	alive_say(&none, ALIVE_READY, "");
	assert_false(alive_rest(&none, -1, 10));
	alive_close(&none);
	assert_int_equal(alive_open(&none, "/nonexistent/alive", &e), -1);
	assert_non_null(strstr(e.msg, "--alive: bind /nonexistent/alive"));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
	    T(test_each_word),
	    T(test_nothing_starts_twice),
	    T(test_nobody_is_waited_for),
	    T(test_root_alone_is_told),
	    T(test_it_answers_at_rest),
	    T(test_without_a_path_nobody_asks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
