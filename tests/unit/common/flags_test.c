/* flags_test.c - names, hints and help of the list; what each flag does is its program's test. */
#include "common/err.h"
#include "common/flags.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void test_names_are_spelt_where_they_stand(void **state)
{
	const char *value;

	(void)state;
	assert_string_equal(flags_of_argument("--log-level=a=b", &value)->name, "log-level");
	assert_string_equal(value, "a=b");
	assert_string_equal(flags_of_argument("--log-level", &value)->name, "log-level");
	assert_null(value);
	assert_non_null(flags_of_argument("--log-level=", &value));
	assert_string_equal(value, "");
	assert_null(flags_of_argument("--log_level", &value));
	assert_null(flags_of_argument("--log-leve", &value));
	assert_null(flags_of_argument("log-level", &value));
	assert_null(flags_of_argument("", &value));
	assert_null(flags_of_argument("--control-planes", &value));
	assert_string_equal(flags_of_key("log_level")->name, "log-level");
	assert_string_equal(flags_of_key("control_planes")->name, "control-planes");
	assert_null(flags_of_key("log-level"));
	assert_null(flags_of_key("log_levels"));
}

static void test_every_name_is_there_once(void **state)
{
	const char *value;
	char text[64];

	(void)state;
	for (unsigned i = 0; i < flags_count; i++) {
		snprintf(text, sizeof(text), "--%s", flags_list[i].name);
		if (flags_list[i].kind != FLAG_LIST)
			assert_ptr_equal(flags_of_argument(text, &value), &flags_list[i]);
		assert_int_equal(strspn(flags_list[i].name, "abcdefghijklmnopqrstuvwxyz-"),
		    strlen(flags_list[i].name));
	}
}

static void expect(int rc, const struct err *e, const char *said)
{
	assert_int_equal(rc, -1);
	assert_string_equal(e->msg, said);
}

static void test_hints(void **state)
{
	struct err e;

	(void)state;
	expect(flags_refuse_argument("--log-levle=x", &e), &e,
	    "--log-levle: no such flag; nearest: --log-level");
	expect(flags_refuse_argument("--kubelet-rot", &e), &e,
	    "--kubelet-rot: no such flag; nearest: --kubelet-root");
	expect(flags_refuse_argument("--\x1b[2J", &e), &e, "--?[2J: no such flag; nearest: --run");
	expect(flags_refuse_argument("--check-stat", &e), &e, /* agentd's own is no hint */
	    "--check-stat: no such flag; nearest: --check");
	expect(flags_refuse_key("control_plane", &e), &e,
	    "control_plane: no such key; nearest: control_planes");
	expect(flags_refuse_key("kubelet_root", &e), &e,
	    "kubelet_root: is no key of this file, but the flag --kubelet-root of agentd's "
	    "command line");
	expect(flags_refuse_key("metric", &e), &e,
	    "metric: no such key; nearest: the flag --metrics of agentd's command line");
}

static const char *help(enum flag_whose whose)
{
	static char text[8192];
	FILE *out = fmemopen(text, sizeof(text), "w");

	flags_help(out, whose);
	(void)fclose(out);
	return text;
}

static void test_help(void **state)
{
	(void)state;
	assert_non_null(strstr(help(FLAG_WORKER), "\n  --log-json  "));
	assert_non_null(strstr(help(FLAG_WORKER), "--certificate-linger-s N "));
	assert_non_null(strstr(help(FLAG_WORKER), "(default istio-system)"));
	assert_non_null(strstr(help(FLAG_WORKER), "--redirect[=MODE] "));
	assert_null(strstr(help(FLAG_WORKER), "--max-pods"));
	assert_null(strstr(help(FLAG_WORKER), "--control-planes"));
	assert_non_null(strstr(help(FLAG_BROKER), "--root-file INDEX=FILE "));
	assert_non_null(strstr(help(FLAG_BROKER), "(default 1024)"));
	assert_null(strstr(help(FLAG_BROKER), "--log-json"));
	assert_null(strstr(help(FLAG_BROKER), "--check-state"));
}

static int said(char *flag)
{
	return flags_log_json(3, (char *[]){"agentd", "--pcds", flag, NULL});
}

static void test_the_log_flag_is_seen_first(void **state)
{
	(void)state;
	assert_int_equal(said("--log-json"), 1);
	assert_int_equal(said("--log-json=true"), 1);
	assert_int_equal(said("--log-json=false"), 0);
	assert_int_equal(said("--log-level"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_names_are_spelt_where_they_stand),
	    cmocka_unit_test(test_every_name_is_there_once),
	    cmocka_unit_test(test_hints),
	    cmocka_unit_test(test_help),
	    cmocka_unit_test(test_the_log_flag_is_seen_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
