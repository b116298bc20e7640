/* token_test.c - whose word a token is: the kubelet's names its pod, root's file need not.
 *
 * LINK: tests/unit/worker/pod/row_rig.c tests/unit/worker/kubelet/csi_rig.c tests/fake/link.c
 * LINK: tests/fake/link_redirect.c tests/fake/link_volume.c tests/fake/loop.c tests/unit/worker/token_rig.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "row_rig.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "tests/unit/worker/kubelet/csi_rig.h"
#include "tests/unit/worker/token_rig.h"
#include "worker/crypto/token.h"
#include "worker/pod/accounts.h"
#include "worker/pod/rows.h"
#include "worker/pod/token.h"
#include "worker/pods/pod.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct agent_shared shared;
static struct pod pod = {
    .spec.ns = "demo", .spec.name = "web-0", .spec.sa = "web", .spec.label = "demo/web-0"};
static struct pod_context context = {.shared = &shared, .pod = &pod};
static const struct pod_service *const row = &pod_token_service;
static void *t;
static unsigned told;

/* --- in place of the neighbours --- */

void pod_tell_token(struct pod_context *c, bool expired)
{
	assert_ptr_equal(c, &context);
	assert_false(expired);
	told++;
}

/* --- the tests --- */

static int setup(void **state)
{
	(void)state;
	told = 0;
	assert_true(uuid_parse(&pod.spec.uid, RIG_UID));
	shared.loop = fake_loop();
	shared.link = fake_link();
	shared.accounts = accounts_new();
	t = row_start(row, &context);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	row_stop(row, &t);
	accounts_free(&shared.accounts);
	link_free(&shared.link);
	loop_free(&shared.loop);
	return 0;
}

static void put(const char *uid, const char *sa)
{
	auto_free char *jwt = rig_token(uid, "demo", sa, INT32_MAX);

	fake_link_token(shared.link, &pod.spec.uid, jwt);
}

static void refused(const char *why)
{
	struct err e;

	assert_null(pod_token_valid(t, &e));
	if (!strstr(e.msg, why))
		fail_msg("\"%s\" does not say \"%s\"", e.msg, why);
}

static void roots_file_need_not_name_the_pod(void **state)
{
	struct err e;

	(void)state;
	row->directory(t);
	put(NULL, "web");
	assert_int_equal(told, 1);
	if (!pod_token_valid(t, &e))
		fail_msg("%s", e.msg);
	put(NULL, "other");
	refused("its service account is \"other\"");
	put(RIG_UID, "web");
	assert_non_null(pod_token_valid(t, &e));
	put("11111111-2222-3333-4444-555555555555", "web");
	refused("its pod uid is \"1111");
}

static void a_given_one_names_its_pod(void **state)
{
	auto_free char *unbound = rig_token(NULL, "demo", "web", INT32_MAX);
	auto_free char *good = rig_token(RIG_UID, "demo", "web", INT32_MAX);
	struct err e;

	(void)state;
	pod.spec.token = unbound;
	row->directory(t);
	refused("it names no pod");
	pod.spec.token = good;
	row->token_given(t);
	assert_non_null(pod_token_valid(t, &e));
	pod.spec.token = unbound;
	row->token_given(t);
	refused("it names no pod");
	pod.spec.token = NULL;
}

/* Another pod has a token of an account of the same name, which was made later. */
static void an_account_that_was_made_again(void **state)
{
	struct account *same = accounts_use(shared.accounts, "demo", "web"),
		       *other = accounts_use(shared.accounts, "demo", "db");
	const struct token later = {.account_uid = "second", .issued = 2000};
	struct err why = {0};

	(void)state;
	assert_int_equal(row->served(t, &why), SERVED_YES);
	row->directory(t);
	put(RIG_UID, "web");
	accounts_note(other, &later);
	assert_int_equal(row->served(t, &why), SERVED_YES);
	accounts_note(same, &later);
	assert_int_equal(row->served(t, &why), SERVED_HELD);
	assert_non_null(strstr(why.msg, "an account demo/web that was deleted and made again"));
	assert_non_null(strstr(why.msg, "tokenExpirationSeconds"));
	put(RIG_UID, "other"); /* it is not the account's, and says nothing of it */
	assert_int_equal(row->served(t, &why), SERVED_YES);
	accounts_drop(&same);
	accounts_drop(&other);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
	    TEST(roots_file_need_not_name_the_pod),
	    TEST(a_given_one_names_its_pod),
	    TEST(an_account_that_was_made_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
