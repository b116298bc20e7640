/* files_test.c - which files are looked at, and when they count as changed; how they are rotated:
 * server_test.c.
 */
#include "common/err.h"
#include "common/mem.h"
#include "worker/sds/files.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char dir[] = "/tmp/agentd-files.XXXXXX";

static int setup(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(dir);
}

static void put(const char *name, const char *text)
{
	auto_free char *path = mem_printf("%s/%s", dir, name);
	FILE *f = text ? fopen(path, "we") : NULL;

	if (!text) {
		assert_int_equal(unlink(path), 0);
		return;
	}
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

static uint64_t look(const char *directories, const char *name)
{
	struct sds_name n = {.text = NULL};
	struct err e;
	uint64_t seen;

	assert_int_equal(sds_names_read(&n, name, &e), 0);
	seen = sds_files_look(directories, &n);
	sds_names_clear(&n);
	return seen;
}

/* A name comes from the mesh: it leads nowhere but to what root listed. */
static void only_listed_directories_are_looked_into(void **state)
{
	auto_free char *root = mem_printf("file-root:%s/a", dir);
	auto_free char *list = mem_printf("/nowhere,%s/,/tmp/x", dir);
	auto_free char *longer = mem_printf("%s/a/b", dir), *shorter = mem_strdup(dir);

	(void)state;
	put("a", "1");
	assert_int_not_equal(look(dir, root), 0);
	assert_int_equal(look(list, root), look(dir, root));
	assert_int_not_equal(look("/", root), 0);
	assert_int_equal(look(NULL, root), 0);
	assert_int_equal(look("", root), 0);
	assert_int_equal(look(longer, root), 0);
	shorter[sizeof(dir) - 2] = '\0'; /* a beginning of the name, and another directory */
	assert_int_equal(look(shorter, root), 0);
	assert_int_equal(look("/nowhere", root), 0);
	assert_int_equal(look(dir, "default"), 0);
	put("a", NULL);
	assert_int_equal(look(dir, root), 0);
}

static void both_files_of_a_pair_count(void **state)
{
	auto_free char *pair = mem_printf("file-cert:%s/a~%s/b", dir, dir);
	uint64_t before;

	(void)state;
	put("a", "1");
	assert_int_equal(look(dir, pair), 0); /* half of it */
	put("b", "1");
	before = look(dir, pair);
	assert_int_not_equal(before, 0);
	assert_int_equal(look(dir, pair), before);
	put("b", "22");
	assert_int_not_equal(look(dir, pair), before);
	before = look(dir, pair);
	put("a", "22");
	assert_int_not_equal(look(dir, pair), before);
	put("a", NULL);
	put("b", NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(only_listed_directories_are_looked_into),
	    cmocka_unit_test(both_files_of_a_pair_count),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
