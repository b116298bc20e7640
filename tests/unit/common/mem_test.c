/* mem_test.c - ownership helpers; a leak or double free shows under ASan, which runs this. */
#include "common/mem.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

/* LeakSanitizer would report the first block, ASan a second free of the taken one. */
static char *make(void)
{
	auto_free char *dropped = mem_strdup("dropped");
	auto_free char *kept = mem_strdup("kept");

	assert_non_null(dropped);
	return take(kept);
}

static void test_take_moves_ownership(void **state)
{
	auto_free char *s = make();

	(void)state;
	assert_string_equal(s, "kept");
	char *taken = take(s);
	assert_null(s);
	free(taken);
}

static int open_null(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void test_close_follows_ownership(void **state)
{
	int closed;
	int kept;

	(void)state;
	{
		auto_close int a = open_null();
		auto_close int b = open_null();
		auto_close int none = -1;
		closed = a;
		kept = take_fd(b);
		assert_int_equal(b, -1);
		assert_int_equal(none, -1);
	}
	assert_int_equal(fcntl(closed, F_GETFD), -1);
	assert_int_not_equal(fcntl(kept, F_GETFD), -1);
	close(kept);
}

static void test_allocators(void **state)
{
	auto_free unsigned char *zeroes = mem_zalloc(64);
	auto_free char *copy = mem_dup("a\0b", 3);
	auto_free char *nothing = mem_dup(NULL, 0);
	auto_free char *text = mem_printf("%s/%d", "ns", 5);
	char *grown = mem_realloc(NULL, 0);

	(void)state;
	for (int i = 0; i < 64; i++)
		assert_int_equal(zeroes[i], 0);
	assert_memory_equal(copy, "a\0b", 3);
	assert_non_null(nothing);
	assert_string_equal(text, "ns/5");
	assert_non_null(grown);
	grown = mem_realloc(grown, 100);
	memset(grown, 'x', 100);
	free(grown);
	assert_null(mem_strdup(NULL));
}

static void test_exhaustion_aborts(void **state)
{
	int status;

	(void)state;
	pid_t child = fork();
	if (child == 0) {
		volatile size_t much = SIZE_MAX / 4;
		close(STDERR_FILENO);
		signal(SIGABRT, SIG_DFL); /* cmocka's handler would print */
		setenv("ASAN_OPTIONS", "allocator_may_return_null=1", 1);
		free(mem_zalloc(much));
		_exit(0);
	}
	waitpid(child, &status, 0);
	/* abort(), or the sanitizer's own end: in no case it goes on. */
	assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_wipe_frees(void **state)
{
	(void)state;
	mem_wipe_free(mem_strdup("secret"));
	mem_wipe_free(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_take_moves_ownership),
	    cmocka_unit_test(test_close_follows_ownership),
	    cmocka_unit_test(test_allocators),
	    cmocka_unit_test(test_exhaustion_aborts),
	    cmocka_unit_test(test_wipe_frees),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
