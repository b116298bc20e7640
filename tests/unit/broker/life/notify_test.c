/* notify_test.c - what a service manager hears, and what it gives back.
 * LINK: tests/unit/broker/rig.c */
#include "broker/life/notify.h"
#include "tests/unit/broker/rig.h"
#include <time.h>

struct manager {
	char dir[32], path[64];
	int fd;
};

static int listen_as(const char *name, size_t n)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	memcpy(a.sun_path, name, n);
	assert_int_equal(bind(fd, (struct sockaddr *)&a,
			     (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)),
	    0);
	return fd;
}

static int setup(void **state)
{
	static struct manager m;

	strcpy(m.dir, "/tmp/bnXXXXXX");
	assert_non_null(mkdtemp(m.dir));
	snprintf(m.path, sizeof(m.path), "%s/notify", m.dir);
	m.fd = listen_as(m.path, strlen(m.path) + 1);
	setenv("NOTIFY_SOCKET", m.path, 1);
	*state = &m;
	return 0;
}

static int teardown(void **state)
{
	struct manager *m = *state;

	notify_close();
	close(m->fd);
	rig_shell("rm -rf %s", m->dir);
	static const char *const all[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID",
	    "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"};
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		unsetenv(all[i]);
	return 0;
}

/* The next message; "": there is none.  *fd (or NULL: there must be none) came with it. */
static const char *heard(int sock, int *fd)
{
	static char text[1024];
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec iov = {.iov_base = text, .iov_len = sizeof(text) - 1};
	struct msghdr msg = {.msg_iov = &iov,
	    .msg_iovlen = 1,
	    .msg_control = &control,
	    .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(sock, &msg, MSG_CMSG_CLOEXEC);

	text[n > 0 ? n : 0] = '\0';
	struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&msg) : NULL;
	assert_int_equal(fd != NULL, c != NULL);
	if (fd) {
		assert_int_equal(c->cmsg_len, CMSG_LEN(sizeof(int)));
		memcpy(fd, CMSG_DATA(c), sizeof(int));
	}
	return text;
}

static void test_it_is_told_at_a_path(void **state)
{
	struct manager *m = *state;
	long long us;

	notify("READY=1"); /* not open yet: nothing */
	notify_open();
	notify("READY=1\nSTATUS=%d pods", 3);
	assert_string_equal(heard(m->fd, NULL), "READY=1\nSTATUS=3 pods");
	notify_reloading();
	assert_int_equal(sscanf(heard(m->fd, NULL), "RELOADING=1\nMONOTONIC_USEC=%lld", &us), 1);
	assert_true(us > 0);
	assert_string_equal(heard(m->fd, NULL), "");
}

static void test_it_is_told_at_an_abstract_name(void **state)
{
	char name[40], at[40];

	(void)state;
	int n = snprintf(name, sizeof(name), "%cbn.%d", 0, (int)getpid());
	int fd = listen_as(name, (size_t)n);
	snprintf(at, sizeof(at), "@%s", name + 1);
	setenv("NOTIFY_SOCKET", at, 1);
	notify_open();
	notify("STOPPING=1");
	assert_string_equal(heard(fd, NULL), "STOPPING=1");
	close(fd);
}

static void test_without_one_nothing_happens(void **state)
{
	struct manager *m = *state;
	static const char *const bad[] = {"", "notify", "vsock:2:1", "/"};
	char longer[200] = "/";

	memset(longer + 1, 'x', sizeof(longer) - 2);
	longer[sizeof(longer) - 1] = '\0';
	for (size_t i = 0; i <= sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("NOTIFY_SOCKET", i < 4 ? bad[i] : longer, 1);
		notify_open();
		notify("READY=1");
	}
	unsetenv("NOTIFY_SOCKET");
	notify_open();
	notify("READY=1");
	assert_string_equal(heard(m->fd, NULL), "");
}

static void test_the_watchdog_is_ours_only(void **state)
{
	char pid[16];

	(void)state;
	assert_int_equal(notify_watchdog_ms(), 0);
	setenv("WATCHDOG_USEC", "20000000", 1);
	assert_int_equal(notify_watchdog_ms(), 20000);
	setenv("WATCHDOG_PID", "1", 1);
	assert_int_equal(notify_watchdog_ms(), 0);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	assert_int_equal(notify_watchdog_ms(), 20000);
	static const char *const bad[] = {"", "-1", "0", "20s", "99999999999999999999"};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		setenv("WATCHDOG_USEC", bad[i], 1);
		assert_int_equal(notify_watchdog_ms(), 0);
	}
	setenv("WATCHDOG_USEC", "1", 1);
	assert_int_equal(notify_watchdog_ms(), 1);
}

static void test_it_keeps_what_is_kept(void **state)
{
	struct manager *m = *state;
	struct broker_fdstore *k = broker_fdstore_new();
	int tcp = socket(AF_UNIX, SOCK_STREAM, 0), udp = socket(AF_UNIX, SOCK_DGRAM, 0), fd;
	struct stat here, there;

	notify_open();
	broker_fdstore_put(k, "lock", udp); /* never */
	broker_fdstore_put(k, "before.sds", tcp);
	notify_keep(k);
	assert_string_equal(heard(m->fd, &fd), "FDSTORE=1\nFDNAME=before.sds");
	assert_int_equal(fstat(tcp, &here) | fstat(fd, &there), 0);
	assert_int_equal(here.st_ino, there.st_ino);
	close(fd);
	broker_fdstore_put(k, "after.dns", udp);
	assert_string_equal(heard(m->fd, &fd), "FDSTORE=1\nFDNAME=after.dns\nFDPOLL=0");
	close(fd);
	broker_fdstore_drop(k, "before.sds");
	assert_string_equal(heard(m->fd, NULL), "FDSTOREREMOVE=1\nFDNAME=before.sds");
	broker_fdstore_free(&k); /* the end of this broker is not the end of what it kept */
	assert_string_equal(heard(m->fd, NULL), "");
	close(tcp);
	close(udp);
}

/* A manager that stands still is waited for once; what it should know it hears later, in order. */
static void test_a_manager_that_stands_still(void **state)
{
	struct manager *m = *state;
	struct broker_fdstore *k = broker_fdstore_new();
	int fds[200], said = 0, fd;
	char name[32], wanted[64];
	struct timespec before, after;

	notify_open();
	notify_keep(k);
	clock_gettime(CLOCK_MONOTONIC, &before);
	for (int i = 0; i < 200; i++) {
		fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		snprintf(name, sizeof(name), "%d.sds", i);
		broker_fdstore_put(k, name, fds[i]);
		notify("WATCHDOG=1");
	}
	notify("READY=1");
	clock_gettime(CLOCK_MONOTONIC, &after);
	assert_non_null(notify_problem());
	assert_true(after.tv_sec - before.tv_sec < 60); /* 200 messages, a second for one */
	for (int i = 0; i < 200; i++) {
		snprintf(wanted, sizeof(wanted), "FDSTORE=1\nFDNAME=%d.sds", i);
		for (;;) {
			const bool fits = recv(m->fd, name, sizeof(name) - 1, MSG_PEEK) > 0;
			assert_true(fits);
			if (strncmp(name, "WATCHDOG=1", 10) != 0)
				break;
			assert_string_equal(heard(m->fd, NULL), "WATCHDOG=1");
			said++;
		}
		assert_string_equal(heard(m->fd, &fd), wanted);
		close(fd);
		notify_again();
	}
	assert_true(said < 200); /* none is old */
	assert_string_equal(heard(m->fd, NULL), "READY=1");
	assert_null(notify_problem());
	notify("STOPPING=1");
	assert_string_equal(heard(m->fd, NULL), "STOPPING=1");
	broker_fdstore_free(&k);
	for (int i = 0; i < 200; i++)
		close(fds[i]);
}

enum { NONE = 1, ALL = 2, ONE = 4, LOUD = 8 };

/* In a child, where the fds from 3 on are ours to choose. */
static int receive(int fds, bool ours)
{
	struct broker_fdstore *k = broker_fdstore_new();
	char number[16];

	for (int fd = 3; fd < 3 + fds; fd++)
		dup2(STDERR_FILENO, fd); /* not close-on-exec */
	close_range((unsigned)(3 + fds), 64, 0);
	snprintf(number, sizeof(number), "%d", fds);
	setenv("LISTEN_FDS", number, 1);
	snprintf(number, sizeof(number), "%d", ours ? (int)getpid() : 1);
	setenv("LISTEN_PID", number, 1);
	notify_keep(k);
	int a = broker_fdstore_take(k, "a.sds"), b = broker_fdstore_take(k, "b.xds");
	if (getenv("LISTEN_FDS") || getenv("LISTEN_PID") || getenv("LISTEN_FDNAMES"))
		return LOUD;
	if (a == 3 && b == 4)
		return fcntl(a, F_GETFD) == FD_CLOEXEC && fcntl(5, F_GETFD) < 0 ? ALL : LOUD;
	if (a == 3 && b == -1 && broker_fdstore_sweep(k) == 2)
		return ONE;
	return a == -1 && b == -1 ? NONE : LOUD;
}

static int in_child(int fds, bool ours)
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(receive(fds, ours));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void test_it_gives_them_back(void **state)
{
	(void)state;
	setenv("LISTEN_FDNAMES", "a.sds:b.xds:", 1); /* the third has no name: closed */
	assert_int_equal(in_child(3, true), ALL);
	assert_int_equal(in_child(3, false), NONE); /* meant for somebody else */
	assert_int_equal(in_child(0, true), NONE);
	setenv("LISTEN_FDNAMES", "a.sds:b:c:d", 1);
	assert_int_equal(in_child(3, true), ONE); /* b and c are swept */
	unsetenv("LISTEN_FDNAMES");
	assert_int_equal(in_child(3, true), NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(test_it_is_told_at_a_path, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_it_is_told_at_an_abstract_name, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_without_one_nothing_happens, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_the_watchdog_is_ours_only, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_it_keeps_what_is_kept, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_it_gives_them_back, setup, teardown),
	    cmocka_unit_test_setup_teardown(test_a_manager_that_stands_still, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
