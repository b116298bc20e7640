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
#include <pthread.h>
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

static size_t locked_kib(void)
{
	char line[256];
	size_t kib = 0;
	FILE *f = fopen("/proc/self/status", "re");

	while (fgets(line, sizeof(line), f))
		if (sscanf(line, "VmLck: %zu kB", &kib) == 1)
			break;
	fclose(f);
	return kib;
}

/* A token of Kubernetes, and the key of a certificate. */
static void many_share_pages(void **state)
{
	enum {
		PAIRS = 100,
		TOKEN = 1100,
		KEY = 241,
		AT_MOST_KIB = PAIRS * (1152 + 256) / 1024 + 32
	};
	static const char text[TOKEN];
	char *s[2 * PAIRS];
	size_t before = locked_kib();

	(void)state;
	for (size_t i = 0; i < PAIRS; i++) {
		s[2 * i] = secret_new(text, TOKEN);
		s[2 * i + 1] = secret_new(text, KEY);
	}
	assert_in_range(locked_kib() - before, 1, AT_MOST_KIB);
	for (size_t i = 0; i < 2 * PAIRS; i++)
		secret_free(s[i]);
	assert_int_equal(locked_kib(), before);
}

static void freed_it_is_wiped_and_its_room_is_used_again(void **state)
{
	char *first = secret_dup("first"), *kept = secret_dup("kept");
	const char *volatile was = first;

	(void)state;
	secret_free(first);
	for (size_t i = 0; i < sizeof("first"); i++)
		assert_int_equal(was[i], 0);
	first = secret_dup("again");
	assert_ptr_equal(first, was);
	assert_string_equal(kept, "kept");
	secret_free(first);
	secret_free(kept);
}

/* Of all sizes, freed in another order than they came: nobody's text is another's. */
static void neighbours_stay_as_they_are(void **state)
{
	enum { N = 500 };
	char *s[N] = {NULL}, text[1500], expected[1500];

	(void)state;
	for (size_t turn = 0; turn < 5 * N; turn++) {
		const size_t i = turn * 7919 % N, len = (turn * 31 + i) % (sizeof(text) - 1);

		if (s[i]) {
			memset(expected, 'a' + (char)(i % 26), sizeof(expected));
			assert_memory_equal(s[i], expected, strlen(s[i]));
			secret_free(s[i]);
		}
		memset(text, 'a' + (char)(i % 26), len);
		s[i] = secret_new(text, len);
		assert_int_equal(strlen(s[i]), len);
	}
	for (size_t i = 0; i < N; i++)
		secret_free(s[i]);
}

static void *come_and_go(void *unused)
{
	for (size_t i = 0; i < 2000; i++) {
		char *s = secret_dup("a secret of a thread"), *t = secret_dup(s);

		secret_free(s);
		assert_string_equal(t, "a secret of a thread");
		secret_free(t);
	}
	return unused;
}

static void threads_do_not_meet(void **state)
{
	pthread_t other;

	(void)state;
	assert_int_equal(pthread_create(&other, NULL, come_and_go, NULL), 0);
	come_and_go(NULL);
	pthread_join(other, NULL);
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
	    cmocka_unit_test(many_share_pages),
	    cmocka_unit_test(freed_it_is_wiped_and_its_room_is_used_again),
	    cmocka_unit_test(neighbours_stay_as_they_are),
	    cmocka_unit_test(threads_do_not_meet),
	    cmocka_unit_test(nothing_stays_nothing),
	    cmocka_unit_test(what_cannot_be_locked_is_said_once),
	};

	log_init(false);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
