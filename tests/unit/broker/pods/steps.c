/* steps.c - see steps.h. */
#include "steps.h"

bool steps_ends(void (*step)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(SIGABRT, SIG_DFL); /* cmocka's would go on with the tests */
		step();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT)
		return true;
	assert_int_equal(status, 0);
	return false;
}
