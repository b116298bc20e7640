/* crl_test.c - a followed file becomes the list in force, or does not.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c tests/fake/x509.c
 */
#include "common/err.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "worker/certs/crl.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { PLANE = 3 };

static struct link *link;
static struct crl *crl;
static unsigned told;
static char last[64];

static void on_changed(void *ctx, const char *pem)
{
	assert_ptr_equal(ctx, &told);
	assert_true(pem == crl_pem(crl));
	told++;
	strcpy(last, pem ? pem : "(none)");
}

static int setup(void **state)
{
	(void)state;
	link = fake_link();
	told = 0;
	crl = crl_new(link, PLANE, "istiod", on_changed, &told);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	crl_free(&crl);
	crl_free(&crl);
	assert_int_equal(fake_link_live(link), 0);
	link_free(&link);
	return 0;
}

static void refuse(int code, const char *text)
{
	struct err e;

	err_set(&e, code, "%s", text);
	fake_link_push(
	    link, LINK_FOLLOW_CRL, NULL, PLANE, &(struct link_content){.name = "", .e = &e});
}

static const char *why_not(void)
{
	static char text[ERR_MSG_SIZE];
	json_t *o = crl_dump(crl);

	assert_true(json_is_true(json_object_get(o, "present")) == (crl_pem(crl) != NULL));
	strcpy(text, json_string_value(json_object_get(o, "why_not")));
	json_decref(o);
	return text;
}

static void it_comes_changes_and_goes(void **state)
{
	(void)state;
	assert_null(crl_pem(crl));
	fake_link_crl(link, PLANE, "CRL one");
	assert_string_equal(last, "CRL one\n");
	fake_link_crl(link, PLANE, "CRL one"); /* the same is no news */
	assert_int_equal(told, 1);
	fake_link_crl(link, PLANE, "CRL two");
	assert_string_equal(last, "CRL two\n");
	fake_link_crl(link, PLANE, NULL);
	assert_string_equal(last, "(none)");
	fake_link_crl(link, PLANE, NULL);
	assert_int_equal(told, 3);
	assert_string_equal(why_not(), "");
}

/* A control plane without a list is the ordinary case. */
static void none_is_no_problem(void **state)
{
	(void)state;
	refuse(ENOENT, "there is no --crl-file for control plane 3");
	assert_int_equal(told, 0);
	assert_string_equal(why_not(), "");
}

/* Otherwise whoever breaks the file makes revoked certificates good again. */
static void a_broken_file_changes_nothing(void **state)
{
	(void)state;
	fake_link_crl(link, PLANE, "garbage");
	assert_int_equal(told, 0);
	assert_string_equal(why_not(), "revocation list: not a CRL");
	fake_link_crl(link, PLANE, "CRL one");
	assert_string_equal(why_not(), "");
	fake_link_crl(link, PLANE, "");
	assert_string_equal(why_not(), "revocation list: not a CRL");
	refuse(EACCES, "crl.pem: larger than 1024 KiB");
	assert_string_equal(why_not(), "revocation list: crl.pem: larger than 1024 KiB");
	assert_string_equal(crl_pem(crl), "CRL one\n");
	assert_int_equal(told, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(it_comes_changes_and_goes, setup, teardown),
	    cmocka_unit_test_setup_teardown(none_is_no_problem, setup, teardown),
	    cmocka_unit_test_setup_teardown(a_broken_file_changes_nothing, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
