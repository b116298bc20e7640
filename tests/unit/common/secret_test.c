/* secret_test.c - what the kernel was told about a secret's pages, and what becomes of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/log.h"
#include "common/mem.h"
#include "common/secret.h"
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* The flags of the mapping that has this address; "" if none has. */
static void flags_of(const void *p, char *out, size_t size)
{
	uintptr_t start, end;
	bool inside = false;
	char line[512];
	FILE *f = fopen("/proc/self/smaps", "re");

	*out = '\0';
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &start, &end) == 2)
			inside = start <= (uintptr_t)p && (uintptr_t)p < end;
		else if (inside && !strncmp(line, "VmFlags:", 8))
			snprintf(out, size, "%s", line + 8);
	}
	fclose(f);
}

static void its_pages_are_told_from_others(void **state)
{
	char flags[512];
	char *s = secret_new("0123456789", 10);

	(void)state;
	assert_string_equal(s, "0123456789");
	flags_of(s, flags, sizeof(flags));
	assert_non_null(strstr(flags, " lo"));
	assert_non_null(strstr(flags, " dd"));
	assert_non_null(strstr(flags, " wf"));
	secret_free(s);
	flags_of(s, flags, sizeof(flags));
	assert_null(strstr(flags, " lo"));
}

static void a_child_does_not_have_it(void **state)
{
	int status;
	char *s = secret_dup("secret");

	(void)state;
	pid_t pid = fork();
	if (pid == 0)
		_exit(*s);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_string_equal(s, "secret");
	secret_free(s);
}

/* Larger than a page, and larger than two with what is before it. */
static void each_size_has_room(void **state)
{
	(void)state;
	for (size_t len = 4000; len < 9000; len += 31) {
		auto_free char *text = mem_zalloc(len + 1);
		memset(text, 'x', len);
		char *s = secret_dup(text);
		assert_string_equal(s, text);
		secret_free(s);
	}
}

static void nothing_stays_nothing(void **state)
{
	(void)state;
	assert_null(secret_dup(NULL));
	secret_free(NULL);
}

/* One line, and the secrets are there all the same. */
static int without_locks(void)
{
	const struct rlimit none = {0, 0};
	char line[256], more[8];
	int ends[2];

	if (setrlimit(RLIMIT_MEMLOCK, &none) || setgid(64001) || setuid(64001) || pipe(ends) ||
	    dup2(ends[1], STDERR_FILENO) < 0 || close(ends[1]))
		return 1;
	char *one = secret_dup("one"), *two = secret_dup("two");
	if (strcmp(one, "one") != 0 || strcmp(two, "two") != 0)
		return 2;
	close(STDERR_FILENO);
	ssize_t n = read(ends[0], line, sizeof(line) - 1);
	line[n > 0 ? n : 0] = '\0';
	char *end = strchr(line, '\n');
	bool alone = end && !end[1] && read(ends[0], more, sizeof(more)) == 0;
	return !strstr(line, "RLIMIT_MEMLOCK") + 2 * !alone;
}

static void what_cannot_be_locked_is_said_once(void **state)
{
	int status;

	(void)state;
	if (geteuid() != 0)
		skip();
	pid_t pid = fork();
	if (pid == 0)
		_exit(without_locks());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(its_pages_are_told_from_others),
	    cmocka_unit_test(a_child_does_not_have_it),
	    cmocka_unit_test(each_size_has_room),
	    cmocka_unit_test(nothing_stays_nothing),
	    cmocka_unit_test(what_cannot_be_locked_is_said_once),
	};

	log_init(false);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
