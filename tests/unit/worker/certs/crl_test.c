/* crl_test.c - a followed file becomes the list in force, or does not, and when that is no more so.
 *
 * LINK: tests/fake/loop.c tests/fake/link.c tests/fake/x509.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "tests/fake/link.h"
#include "tests/fake/loop.h"
#include "worker/certs/cert_cache.h"
#include "worker/certs/crl.h"
#include "worker/crypto/revocation.h"
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { PLANE = 3, CERTS = 3 };

static struct loop *loop;
static struct link *broker;
static struct crl *crl;
static unsigned told;

/* --- in place of the cache --- */

static struct cert certs[CERTS];
static unsigned ncerts, tried;

void cert_cache_each(
    const struct cert_cache *c, void (*each)(void *ctx, const struct cert *cert), void *ctx)
{
	assert_ptr_equal(c, &certs);
	tried++;
	for (unsigned i = 0; i < ncerts; i++)
		each(ctx, &certs[i]);
}

/* Below a root, which begins with "ROOT" and is its only issuer. */
static void add_cert(const char *root)
{
	struct cert *c = &certs[ncerts++];

	*c = (struct cert){.chain_pem = mem_printf("LEAF%s", root), .root_pem = mem_strdup(root)};
	c->element_size[0] = strlen("LEAF");
	crl_try_again(crl, c);
}

static void drop_certs(void)
{
	while (ncerts) {
		struct cert *c = &certs[--ncerts];

		free(c->chain_pem);
		free(c->root_pem);
	}
}

/* --- the scene --- */

static void on_changed(void *ctx)
{
	assert_ptr_equal(ctx, &told);
	told++;
}

static int setup(void **state)
{
	struct crl_options o = {
	    .plane = PLANE, .name = "istiod", .certs = (struct cert_cache *)&certs};

	(void)state;
	o.loop = loop = fake_loop();
	o.link = broker = fake_link();
	told = tried = 0;
	crl = crl_new(&o, on_changed, &told);
	return 0;
}

/* With a certificate already. */
static int setup_served(void **state)
{
	setup(state);
	add_cert("ROOT a");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	crl_free(&crl);
	crl_free(&crl);
	drop_certs();
	assert_int_equal(fake_link_live(broker), 0);
	link_free(&broker);
	fake_loop_end(&loop);
	return 0;
}

static void refuse(int code, const char *text)
{
	struct err e;

	err_set(&e, code, "%s", text);
	fake_link_push(
	    broker, LINK_FOLLOW_CRL, NULL, PLANE, &(struct link_content){.name = "", .e = &e});
}

static int64_t now_s(void)
{
	return loop_now_ms(loop) / 1000;
}

/* Good from so many seconds from now on until then. */
static void write_list(const char *name, int from_s, int until_s)
{
	auto_free char *text =
	    mem_printf("CRL %s %" PRId64 "-%" PRId64, name, now_s() + from_s, now_s() + until_s);

	fake_link_crl(broker, PLANE, text);
}

static void later(int s)
{
	fake_loop_advance(loop, s * 1000);
}

/* "": none. */
static void in_force(const char *name)
{
	const struct revocation *r = crl_in_force(crl);
	char text[64] = "";

	if (r)
		sscanf(revocation_pem(r), "CRL %60s", text);
	assert_string_equal(text, name);
}

static const char *dumped(const char *key)
{
	static char text[2 * ERR_MSG_SIZE];
	json_t *o = crl_dump(crl);

	assert_true(json_is_true(json_object_get(o, "present")) == (crl_in_force(crl) != NULL));
	assert_true(
	    crl_has_problem(crl) == (*json_string_value(json_object_get(o, "why_not")) != '\0'));
	strcpy(text, json_string_value(json_object_get(o, key)));
	json_decref(o);
	return text;
}

static void problem(const char *why)
{
	assert_string_equal(dumped("why_not"), why);
}

/* --- a file --- */

static void it_comes_changes_and_goes(void **state)
{
	(void)state;
	in_force("");
	fake_link_crl(broker, PLANE, "CRL one");
	in_force("one");
	fake_link_crl(broker, PLANE, "CRL one"); /* the same is no news */
	assert_int_equal(told, 1);
	fake_link_crl(broker, PLANE, "CRL two");
	in_force("two");
	fake_link_crl(broker, PLANE, NULL);
	in_force("");
	fake_link_crl(broker, PLANE, NULL);
	assert_int_equal(told, 3);
	problem("");
}

/* A control plane without a list is the ordinary case. */
static void none_is_no_problem(void **state)
{
	(void)state;
	refuse(ENOENT, "there is no --crl-file for control plane 3");
	assert_int_equal(told, 0);
	problem("");
}

/* Otherwise whoever breaks the file makes revoked certificates good again. */
static void a_broken_file_changes_nothing(void **state)
{
	(void)state;
	fake_link_crl(broker, PLANE, "garbage");
	assert_int_equal(told, 0);
	problem("revocation list: not a CRL; it is not in force");
	fake_link_crl(broker, PLANE, "CRL one");
	problem("");
	fake_link_crl(broker, PLANE, "");
	problem("revocation list: not a CRL; the last good list stays in force");
	refuse(EACCES, "crl.pem: larger than 1024 KiB");
	problem(
	    "revocation list: crl.pem: larger than 1024 KiB; the last good list stays in force");
	in_force("one");
	assert_int_equal(told, 1);
}

/* --- tried with our certificates --- */

static void it_waits_for_a_certificate(void **state)
{
	(void)state;
	fake_link_crl(broker, PLANE, "CRL one");
	in_force("");
	problem("");
	add_cert("ROOT a");
	in_force("one");
	assert_int_equal(told, 1);
}

static void one_of_another_ca_never_comes_into_force(void **state)
{
	(void)state;
	fake_link_crl(broker, PLANE, "CRL of-another");
	in_force("");
	problem("revocation list: it has no list of the CA; it is not in force");
	fake_link_crl(broker, PLANE, "CRL one");
	in_force("one");
	problem("");
	fake_link_crl(broker, PLANE, "CRL of-another");
	in_force("one");
	problem("revocation list: it has no list of the CA; the last good list stays in force");
	assert_int_equal(told, 1);
	fake_link_crl(broker, PLANE, "CRL one");
	problem("");
}

static void one_that_ended_does_not_replace_a_good_one(void **state)
{
	(void)state;
	write_list("good", -10, 100);
	write_list("old", -10, -1);
	in_force("good");
	problem("revocation list: it has ended; the last good list stays in force");
	assert_int_equal(told, 1);
}

/* A restart must not make revoked certificates good again. */
static void one_that_ended_is_better_than_none(void **state)
{
	(void)state;
	write_list("old", -10, -1);
	in_force("old");
	assert_non_null(strstr(dumped("why_not"), ": Envoys refuse all peers"));
	assert_string_equal(crl_why_refused(crl), "it has ended");
	write_list("good", -10, 100);
	in_force("good");
	problem("");
	assert_null(crl_why_refused(crl));
}

/* --- times --- */

static void its_end_is_said_before_and_then(void **state)
{
	char ends[CERT_TIME_SIZE], text[ERR_MSG_SIZE];

	(void)state;
	write_list("one", -10, 100);
	assert_int_equal(crl_ends(crl), now_s() + 100);
	assert_string_equal(dumped("ends"), cert_time(crl_ends(crl), ends));
	later(89);
	assert_string_equal(dumped("warning"), "");
	later(1);
	snprintf(
	    text, sizeof(text), "the revocation list ends at %s and was not replaced yet", ends);
	assert_string_equal(dumped("warning"), text);
	problem("");
	later(10);
	snprintf(text, sizeof(text),
	    "revocation list in force: it has ended at %s: Envoys refuse all peers", ends);
	problem(text);
	assert_string_equal(dumped("warning"), "");
	in_force("one");
	assert_int_equal(told, 1);
	write_list("two", 0, 100);
	problem("");
}

static void one_of_tomorrow_comes_into_force_then(void **state)
{
	(void)state;
	write_list("today", -10, 100);
	write_list("tomorrow", 50, 200);
	in_force("today");
	assert_true(crl_has_problem(crl));
	later(50);
	in_force("tomorrow");
	problem("");
}

/* The one that waits is tried again when the other ends. */
static void a_worse_one_replaces_one_that_is_no_better_any_more(void **state)
{
	(void)state;
	add_cert("ROOT b");
	write_list("all", -10, 100);
	write_list("for-a", -10, 1000);
	in_force("all");
	later(100);
	in_force("for-a");
	problem("revocation list in force: it has no list of the CA: Envoys refuse such peers");
}

/* --- certificates change --- */

static void certificates_of_a_new_ca_are_tried(void **state)
{
	(void)state;
	fake_link_crl(broker, PLANE, "CRL for-a");
	in_force("for-a");
	add_cert("ROOT b");
	in_force("for-a"); /* it still refuses what it has to, of a */
	problem("revocation list in force: it has no list of the CA: Envoys refuse such peers");
	fake_link_crl(broker, PLANE, "CRL for-a1"); /* with more in it */
	in_force("for-a1");
	fake_link_crl(broker, PLANE, "CRL all");
	in_force("all");
	problem("");
}

/* Hundreds of accounts have one CA. */
static void what_is_above_a_leaf_is_tried_once(void **state)
{
	unsigned before;

	(void)state;
	fake_link_crl(broker, PLANE, "CRL one");
	before = tried;
	add_cert("ROOT a");
	assert_int_equal(tried, before);
	drop_certs();
	crl_try_again(crl, NULL);
	in_force("one");
	problem("");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup_served, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    TEST(it_comes_changes_and_goes),
	    TEST(none_is_no_problem),
	    TEST(a_broken_file_changes_nothing),
	    cmocka_unit_test_setup_teardown(it_waits_for_a_certificate, setup, teardown),
	    TEST(one_of_another_ca_never_comes_into_force),
	    TEST(one_that_ended_does_not_replace_a_good_one),
	    TEST(one_that_ended_is_better_than_none),
	    TEST(its_end_is_said_before_and_then),
	    TEST(one_of_tomorrow_comes_into_force_then),
	    TEST(a_worse_one_replaces_one_that_is_no_better_any_more),
	    TEST(certificates_of_a_new_ca_are_tried),
	    TEST(what_is_above_a_leaf_is_tried_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
