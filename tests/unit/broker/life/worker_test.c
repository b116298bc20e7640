/* worker_test.c - how a worker ended, in words, and what it needs.
 * LINK: tests/unit/broker/rig.c */
#include "broker/life/worker.h"
#include "tests/unit/broker/rig.h"
#include <signal.h>

/* The status of a process that ends like this. */
static int status_of(int code, int signal)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		if (signal)
			raise(signal);
		_exit(code);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static void expect(int status, int code, const char *text)
{
	char how[BROKER_ENDED_SIZE];

	life_worker_ended(status, how);
	if (strncmp(how, text, strlen(text)) != 0)
		fail_msg("\"%s\" does not begin with \"%s\"", how, text);
	assert_int_equal(life_worker_exit_code(status), code);
}

static void test_how_it_ended(void **state)
{
	(void)state;
	expect(status_of(0, 0), 0, "exit code 0");
	expect(status_of(77, 0), 77, "exit code 77");
	expect(status_of(0, SIGKILL), 128 + SIGKILL, "signal 9 (killed: ");
	expect(status_of(0, SIGTERM), 128 + SIGTERM, "signal 15 (Terminated)");
	/* As the kernel says it; a sanitizer would catch these. */
	expect(SIGSYS, 128 + SIGSYS, "signal 31 (a forbidden system call)");
	expect(SIGABRT | 0x80, 128 + SIGABRT, "signal 6 (aborted: ");
}

/* Nothing was started yet, and nothing stays open. */
static void test_without_its_program_nothing_begins(void **state)
{
	static char user[] = "4711";
	const struct broker_options o = {.config = "/nonexistent", .worker_user = user};
	struct life_worker wk;
	struct err e = {0};

	(void)state;
	assert_int_equal(life_worker_open(&wk, &o, &e), -1);
	assert_int_equal(e.code, ENOENT); /* no agentd-worker beside this test */
	assert_non_null(strstr(e.msg, "/agentd-worker"));
	assert_int_equal(wk.exe, -1);
	assert_int_equal(wk.config, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_how_it_ended),
	    cmocka_unit_test(test_without_its_program_nothing_begins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
