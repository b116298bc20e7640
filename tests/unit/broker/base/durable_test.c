/* durable_test.c - whatever fails, and whenever it dies: the old content or the new one, in full.
 */
#include "broker/base/durable.h"
#include "common/err.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LARGE = 20000, CALLS_MAX = 2000 };

static char top[32], dir[64], path[96], old[LARGE], new[LARGE];
static struct broker_place place = {.dir = dir, .name = "x.pem"};

static int memory(const char *bytes)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(write(fd, bytes, LARGE), LARGE);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

static int put(const char *bytes, struct err *e)
{
	int fd = memory(bytes), rc = broker_durable_write(&place, fd, e);

	close(fd);
	return rc;
}

static int setup(void **state)
{
	struct err e = {0};

	(void)state;
	strcpy(top, "/tmp/durableXXXXXX");
	assert_non_null(mkdtemp(top));
	snprintf(dir, sizeof(dir), "%s/a/b", top);
	snprintf(path, sizeof(path), "%s/x.pem", dir);
	memset(old, 'o', LARGE);
	memset(new, 'n', LARGE);
	if (put(old, &e))
		fail_msg("%s", e.msg);
	return 0;
}

static int teardown(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", top);
	return system(command);
}

/* 'o' or 'n': which of the two is there, all of it. */
static char there(void)
{
	static char got[LARGE + 1];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	assert_true(fd >= 0);
	assert_int_equal(read(fd, got, sizeof(got)), LARGE);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	close(fd);
	assert_memory_equal(got, *got == 'o' ? old : new, LARGE);
	return *got;
}

static void the_new_one_takes_the_place_of_the_old_one(void **state)
{
	struct err e;
	struct stat st;

	(void)state;
	assert_int_equal(there(), 'o');
	assert_int_equal(put(new, &e), 0);
	assert_int_equal(there(), 'n');
	assert_int_equal(stat(dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
}

static void a_directory_of_others_is_refused(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(chmod(dir, 0770), 0);
	assert_int_equal(put(new, &e), -1);
	assert_non_null(strstr(e.msg, "root's alone"));
	assert_int_equal(chmod(dir, 0755) | chown(dir, 65534, 0), 0);
	assert_int_equal(put(new, &e), -1);
	assert_int_equal(there(), 'o');
}

/* From now on that call fails so. */
static void forbid(unsigned nr, int code)
{
	const struct sock_filter filter[] = {
	    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)code),
	    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {4, (struct sock_filter *)filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program))
		_exit(9);
}

static void try_with(unsigned nr, int code)
{
	struct err e = {0};
	int status, fd = memory(new);
	pid_t child = fork();

	if (!child) {
		forbid(nr, code);
		_exit(broker_durable_write(&place, fd, &e) ? 1 : 0);
	}
	close(fd);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
}

static void what_fails_leaves_the_old_one(void **state)
{
	static const unsigned calls[] = {
	    SYS_write,
	    SYS_fsync,
	    SYS_openat,
#ifdef SYS_renameat
	    SYS_renameat,
#else
	    SYS_renameat2,
#endif
	};
	static const int codes[] = {ENOSPC, EIO, EROFS, EDQUOT};

	(void)state;
	for (unsigned c = 0; c < sizeof(calls) / sizeof(*calls); c++)
		for (unsigned i = 0; i < sizeof(codes) / sizeof(*codes); i++) {
			try_with(calls[c], codes[i]);
			assert_int_equal(there(), 'o');
		}
}

static void fsync_that_an_upgrade_forbids_says_so(void **state)
{
	struct err e = {0};
	char said[ERR_MSG_SIZE];
	int status, pipes[2], fd = memory(new);
	pid_t child;

	(void)state;
	assert_int_equal(pipe(pipes), 0);
	child = fork();
	if (!child) {
		forbid(SYS_fsync, EPERM);
		broker_durable_write(&place, fd, &e);
		_exit(write(pipes[1], e.msg, sizeof(e.msg)) != sizeof(e.msg));
	}
	close(fd);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(read(pipes[0], said, sizeof(said)), sizeof(said));
	assert_non_null(strstr(said, "restart agentd"));
	close(pipes[0]);
	close(pipes[1]);
}

/* It dies at the n-th entry into, or return from, a system call; false: it was done before. */
static bool die_at(unsigned n)
{
	struct err e;
	int status, fd = memory(new);
	pid_t child = fork();

	if (!child) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		broker_durable_write(&place, fd, &e);
		_exit(0);
	}
	close(fd);
	assert_int_equal(waitpid(child, &status, 0), child);
	for (unsigned i = 0; i < n && !WIFEXITED(status); i++) {
		assert_int_equal(ptrace(PTRACE_SYSCALL, child, NULL, NULL), 0);
		assert_int_equal(waitpid(child, &status, 0), child);
	}
	if (WIFEXITED(status))
		return false;
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	return true;
}

static void a_death_leaves_one_of_the_two(void **state)
{
	unsigned n = 0, news = 0;
	struct err e;

	(void)state;
	for (; n < CALLS_MAX && die_at(n); n++) {
		news += there() == 'n';
		assert_int_equal(put(old, &e), 0); /* what it left beside is no hindrance */
	}
	assert_in_range(n, 20, CALLS_MAX - 1);
	assert_in_range(news, 1, n - 1); /* both were seen */
	assert_int_equal(there(), 'n');
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(the_new_one_takes_the_place_of_the_old_one),
	    TEST(a_directory_of_others_is_refused),
	    TEST(what_fails_leaves_the_old_one),
	    TEST(fsync_that_an_upgrade_forbids_says_so),
	    TEST(a_death_leaves_one_of_the_two),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
