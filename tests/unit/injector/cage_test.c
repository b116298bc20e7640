/* cage_test.c - what is left to who takes the injector over: each call is tried by a child in the
 * cage. */
#include "common/err.h"
#include "injector/cage.h"
#include <asm/unistd.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { KILLED = 200, NO_CAGE };

static long page;

/* The errno; 0: it was done; KILLED. */
static int tried(long number, long a, long b, long c)
{
	int status;
	pid_t child = fork();

	if (!child) {
		struct err e;

		if (cage_close(&e))
			_exit(NO_CAGE);
		_exit(syscall(number, a, b, c, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) < 0 ? errno : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS)
		return KILLED;
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void an_intruders_calls_end_it(void **state)
{
	static const long calls[] = {__NR_execve, __NR_execveat, __NR_setns, __NR_unshare,
	    __NR_mount, __NR_bpf, __NR_listen, __NR_setuid, __NR_capset, __NR_init_module,
	    __NR_io_uring_setup, __NR_process_vm_writev, __NR_keyctl, __NR_perf_event_open};

	(void)state;
	for (unsigned i = 0; i < sizeof(calls) / sizeof(*calls); i++)
		if (tried(calls[i], -1, 0, 0) != KILLED)
			fail_msg("call %ld did not end it", calls[i]);
	assert_int_equal(tried(__NR_mprotect, page, 4096, PROT_READ | PROT_EXEC), KILLED);
	assert_int_equal(tried(__NR_mmap, 0, 4096, PROT_READ | PROT_EXEC), KILLED);
}

static void others_are_refused(void **state)
{
	static const char file[] = "/proc/self/comm";

	(void)state;
	assert_int_equal(tried(__NR_memfd_create, (long)file, 0, 0), ENOSYS);
	assert_int_equal(tried(__NR_unlinkat, AT_FDCWD, (long)file, 0), ENOSYS);
	assert_int_equal(tried(400, -1, -1, -1), ENOSYS);
	assert_int_equal(tried(__NR_openat, AT_FDCWD, (long)file, O_WRONLY), EACCES);
	assert_int_equal(tried(__NR_openat, AT_FDCWD, (long)file, O_RDWR), EACCES);
	assert_int_equal(tried(__NR_socket, AF_UNIX, SOCK_STREAM, 0), EAFNOSUPPORT);
	assert_int_equal(tried(__NR_socket, AF_NETLINK, SOCK_RAW, 0), EAFNOSUPPORT);
}

static void what_it_needs_is_there(void **state)
{
	static const char file[] = "/proc/self/comm";

	(void)state;
	assert_int_equal(tried(__NR_openat, AT_FDCWD, (long)file, O_RDONLY), 0);
	assert_int_equal(tried(__NR_socket, AF_INET, SOCK_STREAM, 0), 0);
	assert_int_equal(tried(__NR_mmap, 0, 4096, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(tried(__NR_getpid, 0, 0, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_intruders_calls_end_it),
	    cmocka_unit_test(others_are_refused),
	    cmocka_unit_test(what_it_needs_is_there),
	};

	page = (long)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
