/* names_test.c - what each resource name means, and which mean nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "worker/sds/names.h"

static void a_plain_name_is_the_certificate_or_the_root(void **state)
{
	static const struct {
		const char *text;
		enum sds_kind kind;
	} cases[] = {{"default", SDS_CERT}, {"my-cert", SDS_CERT}, {"ROOTCA", SDS_ROOT},
	    {"ROOTCA2", SDS_CERT}, {"rootca", SDS_CERT}, {"file", SDS_CERT}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct sds_name n = {0};
		struct err e;

		assert_int_equal(sds_names_read(&n, cases[i].text, &e), 0);
		assert_int_equal(n.kind, cases[i].kind);
		assert_string_equal(n.text, cases[i].text);
		assert_ptr_not_equal(n.text, cases[i].text); /* copied */
		assert_false(sds_names_is_file(&n));
		sds_names_clear(&n);
	}
}

static void files_have_their_paths(void **state)
{
	struct sds_name n = {0};
	struct err e;

	(void)state;
	assert_int_equal(sds_names_read(&n, "file-cert:/c/cert.pem~/c/key..pem", &e), 0);
	assert_int_equal(n.kind, SDS_FILE_CERT);
	assert_string_equal(n.path, "/c/cert.pem");
	assert_string_equal(n.key_path, "/c/key..pem");
	assert_true(sds_names_is_file(&n));
	sds_names_clear(&n);
	assert_int_equal(sds_names_read(&n, "file-root:/c/..r/ca.pem", &e), 0);
	assert_int_equal(n.kind, SDS_FILE_ROOT);
	assert_string_equal(n.path, "/c/..r/ca.pem");
	assert_true(sds_names_is_file(&n));
	sds_names_clear(&n);
	assert_null(n.text);
}

static void the_systems_roots_are_a_file(void **state)
{
	struct sds_name n = {0};
	struct err e;

	(void)state;
	assert_int_equal(sds_names_read(&n, "file-root:system", &e), 0);
	assert_int_equal(n.kind, SDS_FILE_ROOT);
	assert_int_equal(n.path[0], '/');
	sds_names_clear(&n);
}

static void bad_names_are_refused(void **state)
{
	static const char *const bad[] = {"file-cert:/a", "file-cert:~", "file-cert:/a~/b~/c",
	    "file-cert:a~/b", "file-cert:/a~b", "file-cert:/a/../b~/c", "file-cert:/a~/b/..",
	    "file-cert:/a~", "file-root:", "file-root:a", "file-root:/a~/b", "file-root:/..",
	    "file-root:/a/../../b", "kubernetes://a", "sds://x", ""};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct sds_name n = {0};
		struct err e = {0};

		if (sds_names_read(&n, bad[i], &e) != -1)
			fail_msg("\"%s\" was taken", bad[i]);
		assert_int_equal(e.code, ERR_INVALID);
		sds_names_clear(&n);
	}
}

static void a_refusal_names_the_name_in_printable_characters(void **state)
{
	struct sds_name n = {0};
	struct err e;

	(void)state;
	assert_int_equal(sds_names_read(&n, "kubernetes://\n\xc3\xa4", &e), -1);
	assert_non_null(strstr(e.msg, "\"kubernetes://???\""));
	sds_names_clear(&n);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_plain_name_is_the_certificate_or_the_root),
	    cmocka_unit_test(files_have_their_paths),
	    cmocka_unit_test(the_systems_roots_are_a_file),
	    cmocka_unit_test(bad_names_are_refused),
	    cmocka_unit_test(a_refusal_names_the_name_in_printable_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
