/* cluster_env_test.c - values as a shell reads them, and all that is refused, with its line.
 * LINK: agentd/ctl/cluster_env.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "common/mem.h"
#include "ctl/cluster_env.h"

static json_t *env;

static int teardown(void **state)
{
	(void)state;
	json_decref(take(env));
	return 0;
}

static const char *value(const char *text, const char *key)
{
	struct err e = {0};

	json_decref(take(env));
	env = cluster_env_parse(text, strlen(text), &e);
	if (!env)
		fail_msg("%s", e.msg);
	return json_string_value(json_object_get(env, key));
}

static void values_are_those_of_a_shell(void **state)
{
	(void)state;
	assert_string_equal(value("A='b c'\n", "A"), "b c");
	assert_string_equal(value("# x\n\nA='*'\nB=''\n", "B"), "");
	assert_string_equal(value("A=bare:15012/x-y_z,1%", "A"), "bare:15012/x-y_z,1%");
	assert_string_equal(value("A='it'\\''s'\n", "A"), "it's");
	assert_string_equal(value("A='{\"app\":\"web\"}'", "A"), "{\"app\":\"web\"}");
	assert_string_equal(value("A='b'c'd'", "A"), "bcd");
	assert_string_equal(value("A='\xc3\xa4'", "A"), "\xc3\xa4");
	assert_null(value("A=''", "B"));
}

static void refused(const char *text, size_t len, const char *why)
{
	struct err e = {0};

	assert_null(cluster_env_parse(text, len, &e));
	if (!strstr(e.msg, why))
		fail_msg("%s", e.msg);
}

#define REFUSED(text, why) refused(text, sizeof(text) - 1, why)

static void what_is_no_such_line_is_refused(void **state)
{
	(void)state;
	REFUSED("A='b'\nnonsense\n", "line 2: not KEY='VALUE'");
	REFUSED("=b", "line 1");
	REFUSED("A B='c'", "line 1");
	REFUSED("A='b", "line 1: the value");
	REFUSED("A=$(reboot)", "line 1: the value");
	REFUSED("A=\"b\"", "line 1: the value");
	REFUSED("A='b' # c", "line 1: the value");
	REFUSED("A='b'\\", "line 1: the value");
	REFUSED("A='b'\r\n", "line 1: the value");
	REFUSED("A='b'\nA='c'", "line 2: a key that is given twice");
	REFUSED("A='b\tc'", "line 1: a control character");
	REFUSED("A='b\0c'", "line 1: a control character");
	REFUSED("A\0='b'", "line 1: not KEY");
	REFUSED("A='\xc2\x85'", "line 1: a control character");
	REFUSED("A='\xff'", "line 1: not UTF-8");
}

static void sizes_are_bounded(void **state)
{
	char key[140], text[257 * 16];
	auto_free char *large = mem_zalloc(80 << 10);
	size_t n = 0;

	(void)state;
	memset(key, 'K', 129);
	strcpy(key + 129, "='b'");
	refused(key, strlen(key), "line 1: not KEY");
	value(key + 1, "K");
	assert_int_equal(json_object_size(env), 1);
	memcpy(large, "A='", 3);
	memset(large + 3, 'x', (64 << 10) + 1);
	strcat(large, "'");
	refused(large, strlen(large), "more than 64 KiB");
	for (int i = 0; i < 257; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "K%d='v'\n", i);
	refused(text, n, "line 257: more than 256 keys");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_teardown(values_are_those_of_a_shell, teardown),
	    cmocka_unit_test(what_is_no_such_line_is_refused),
	    cmocka_unit_test_teardown(sizes_are_bounded, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
