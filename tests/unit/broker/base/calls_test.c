/* calls_test.c - the broker's list is the unit's, and what is not on it is refused without harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "broker/base/calls.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/seccomp.h"
#include <errno.h>
#include <linux/bpf.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef SECCOMP_SANITIZED
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* --- the unit --- */

/* All names of its SystemCallFilter lines, each between blanks.  What it takes away again (~) is
 * its own affair. */
static char *unit_list(void)
{
	static const char key[] = "SystemCallFilter=";
	char *out = mem_strdup(" "), line[4096];
	FILE *f = fopen("systemd/agentd.service", "re");

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (strncmp(line, key, sizeof(key) - 1) != 0 || line[sizeof(key) - 1] == '~')
			continue;
		line[strcspn(line, "\n")] = '\0';
		char *longer = mem_printf("%s%s ", out, line + sizeof(key) - 1);
		free(out);
		out = longer;
	}
	fclose(f);
	return out;
}

static unsigned words(const char *s)
{
	unsigned n = 0;

	for (; *s; s++)
		n += s[0] != ' ' && (s[1] == ' ' || !s[1]);
	return n;
}

static void the_unit_has_the_same_list(void **state)
{
	auto_free char *unit = unit_list();
	const struct broker_call *calls;
	size_t n = broker_calls_list(&calls);

	(void)state;
	for (size_t i = 0; i < n; i++) {
		auto_free char *word = mem_printf(" %s ", calls[i].name);
		if (!strstr(unit, word))
			fail_msg("systemd/agentd.service lacks %s", calls[i].name);
	}
	assert_int_equal(words(unit), n);
}

/* --- the filter --- */

static int try_call(long rc)
{
	return rc < 0 ? errno : 0;
}

static int in_child(int (*act)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		struct err e;
		_exit(broker_calls_bound(&e) ? 255 : act());
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

#define TRY(name, ...)                                                                             \
	static int name(void)                                                                      \
	{                                                                                          \
		return try_call(__VA_ARGS__);                                                      \
	}

TRY(do_unshare, unshare(CLONE_NEWNS))
TRY(do_clone, syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0))
TRY(do_setns, setns(0, CLONE_NEWNS))
TRY(do_module, syscall(SYS_init_module, NULL, 0, ""))
TRY(do_kexec, syscall(SYS_kexec_load, 0, 0, NULL, 0))
TRY(do_ring, syscall(SYS_io_uring_setup, 1, NULL))
TRY(do_key, syscall(SYS_add_key, "user", "a", "b", 1, 0))
TRY(do_memory, syscall(SYS_process_vm_writev, getpid(), NULL, 0, NULL, 0, 0))
TRY(do_clock, syscall(SYS_clock_settime, 0, NULL))
TRY(do_swap, syscall(SYS_swapoff, ""))
TRY(do_chroot, chroot("/"))
TRY(do_ptrace, syscall(SYS_ptrace, -1, -1, 0, 0))
TRY(do_packet, socket(AF_PACKET, SOCK_RAW, 0))
TRY(do_clone3, syscall(SYS_clone3, NULL, 0))
TRY(do_unknown, syscall(SECCOMP_NEWEST + 1))
TRY(do_bpf, syscall(SYS_bpf, -1, NULL, 0) < 0 && errno == EINVAL ? 0 : -1)
TRY(do_mount, mount("", "", "", 0, NULL) < 0 && errno == ENOENT ? 0 : -1)
TRY(do_netns, setns(-1, CLONE_NEWNET) < 0 && errno == EBADF ? 0 : -1)

static int do_fork(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	return waitpid(pid, &status, 0) == pid ? status : 1;
}

static const struct {
	const char *name;
	int (*act)(void);
	int fate;
	bool sanitizers; /* may do it */
} trials[] = {
    {"unshare", do_unshare, EPERM, false},
    {"clone(NEWUSER)", do_clone, EPERM, false},
    {"setns of mounts", do_setns, EPERM, false},
    {"init_module", do_module, EPERM, false},
    {"kexec_load", do_kexec, EPERM, false},
    {"io_uring_setup", do_ring, EPERM, false},
    {"add_key", do_key, EPERM, false},
    {"process_vm_writev", do_memory, EPERM, false},
    {"clock_settime", do_clock, EPERM, false},
    {"swapoff", do_swap, EPERM, false},
    {"chroot", do_chroot, EPERM, false},
    {"ptrace", do_ptrace, EPERM, true},
    {"AF_PACKET", do_packet, EAFNOSUPPORT, false},
    {"clone3", do_clone3, ENOSYS, false},
    {"a call of a later kernel", do_unknown, ENOSYS, false},

    {"bpf", do_bpf, 0, false},
    {"mount", do_mount, 0, false},
    {"setns of a network", do_netns, 0, false},
    {"fork", do_fork, 0, false},
};

static void each_thing_has_its_fate(void **state)
{
	int wrong = 0;

	(void)state;
	for (size_t i = 0; i < sizeof(trials) / sizeof(trials[0]); i++) {
		if (SANITIZED && trials[i].sanitizers)
			continue;
		int fate = in_child(trials[i].act);
		if (fate == trials[i].fate)
			continue;
		print_error("%s: %d instead of %d\n", trials[i].name, fate, trials[i].fate);
		wrong++;
	}
	assert_int_equal(wrong, 0);
}

/* How many filters lie over this process (Linux 5.11). */
static int filters(void)
{
	int n = -1;
	char line[128];
	FILE *f = fopen("/proc/self/status", "re");

	while (fgets(line, sizeof(line), f))
		sscanf(line, "Seccomp_filters: %d", &n);
	fclose(f);
	return n;
}

static int bound_again(void)
{
	struct err e;
	int before = filters();

	return broker_calls_bound(&e) || filters() != before ||
	       prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1;
}

/* Each upgrade in place would slow every call a bit more. */
static void no_second_filter_is_laid_over_the_first(void **state)
{
	(void)state;
	assert_int_equal(in_child(bound_again), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_unit_has_the_same_list),
	    cmocka_unit_test(each_thing_has_its_fate),
	    cmocka_unit_test(no_second_filter_is_laid_over_the_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
