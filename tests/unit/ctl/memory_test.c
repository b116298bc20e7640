/* memory_test.c - what takes more than its bound ends, and says why.  LINK: agentd/ctl/memory.c */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "common/mem.h"
#include "ctl/command.h"
#include "ctl/memory.h"

enum { BOUND = 64 << 20, PIECE = 1 << 20 };

/* A sanitizer's heap then says no as libc's does. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "allocator_may_return_null=1:detect_leaks=0";
}
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
	return "allocator_may_return_null=1";
}

static void take_by_mem(size_t bytes)
{
	for (; bytes; bytes -= PIECE)
		memset(mem_zalloc(PIECE), 1, PIECE);
}

static void take_by_jansson(size_t bytes)
{
	static const char piece[PIECE];

	for (; bytes; bytes -= PIECE)
		(void)json_stringn_nocheck(piece, PIECE - 1);
}

/* In a child, what of its stderr came back in `said`; its exit status. */
static int taking(void (*taker)(size_t bytes), size_t bytes, char said[4096])
{
	int ends[2], status;
	ssize_t n;

	assert_int_equal(pipe(ends), 0);
	if (!fork()) {
		dup2(ends[1], STDERR_FILENO);
		ctl_memory_bound(BOUND, "too much of it");
		ctl_memory_bound(1, "never said");
		taker(bytes);
		_exit(CTL_OK);
	}
	close(ends[1]);
	assert_true(wait(&status) > 0);
	n = read(ends[0], said, 4095);
	said[n > 0 ? n : 0] = '\0';
	close(ends[0]);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void less_than_the_bound_is_there(void **state)
{
	char said[4096];

	(void)state;
	assert_int_equal(taking(take_by_mem, BOUND / 2, said), CTL_OK);
	assert_int_equal(taking(take_by_jansson, BOUND / 2, said), CTL_OK);
}

static void more_than_the_bound_ends_with_the_reason(void **state)
{
	char said[4096];

	(void)state;
	assert_int_equal(taking(take_by_mem, 2 * BOUND, said), CTL_PROBLEM);
	assert_non_null(strstr(said, "agentctl: too much of it\n"));
	assert_int_equal(taking(take_by_jansson, 2 * BOUND, said), CTL_PROBLEM);
	assert_non_null(strstr(said, "agentctl: too much of it\n"));
	assert_null(strstr(said, "never said"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(less_than_the_bound_is_there),
	    cmocka_unit_test(more_than_the_bound_ends_with_the_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
