/* revocation_test.c - what a revocation list is, what is none, and whom an Envoy refuses with it.
 *
 * LINK: tests/unit/worker/crypto/authority.c
 */
#include "authority.h"
#include "common/err.h"
#include "common/mem.h"
#include "worker/crypto/revocation.h"
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* after the four above */
#include <cmocka.h>

static char *one;    /* PEM */
static char *longer; /* with a byte behind the list */

enum { NOW = 1700000000, DAY = 86400 };
static struct authority root, between, unfit, other, leaf;

static struct authority ca(const char *name, const struct authority *by, const char *usage)
{
	return authority_make(&(struct authority_wish){
	    .name = name, .by = by, .begins = NOW - DAY, .ends = NOW + 30 * DAY, .usage = usage});
}

static char *with_a_byte_behind(const char *pem)
{
	BIO *in = BIO_new_mem_buf(pem, -1), *out = BIO_new(BIO_s_mem());
	X509_CRL *list = PEM_read_bio_X509_CRL(in, NULL, NULL, NULL);
	unsigned char *der = NULL;
	int size = i2d_X509_CRL(list, &der);
	char *data, *text;
	long n;

	der = OPENSSL_realloc(der, (size_t)size + 1);
	der[size] = 0;
	assert_true(PEM_write_bio(out, "X509 CRL", "", der, size + 1));
	n = BIO_get_mem_data(out, &data);
	text = mem_printf("%.*s", (int)n, data);
	OPENSSL_free(der);
	X509_CRL_free(list);
	BIO_free(in);
	BIO_free(out);
	return text;
}

static int make(void **state)
{
	(void)state;
	root = ca("root", NULL, NULL);
	between = ca("between", &root, NULL);
	unfit = ca("unfit", NULL, "critical,keyCertSign");
	other = ca("other", NULL, NULL);
	leaf = authority_make(&(struct authority_wish){
	    .name = "leaf", .by = &between, .begins = NOW - 1, .ends = NOW + DAY, .leaf = true});
	one = authority_list(&root, NOW - DAY, NOW + DAY, 0);
	longer = with_a_byte_behind(one);
	return 0;
}

static int drop(void **state)
{
	(void)state;
	free(one);
	free(longer);
	authority_drop(&root);
	authority_drop(&between);
	authority_drop(&unfit);
	authority_drop(&other);
	authority_drop(&leaf);
	return 0;
}

static void what_is_around_is_cut(void **state)
{
	auto_free char *text = mem_printf("a comment\n%s\nwords\n%s", one, one);
	auto_free char *twice = mem_printf("%s%s", one, one);
	struct err e = {0};
	struct revocation *got = revocation_read(text, strlen(text), &e), *same;

	(void)state;
	assert_non_null(got);
	assert_string_equal(revocation_pem(got), twice);
	same = revocation_ref(got);
	revocation_unref(&got);
	assert_string_equal(revocation_pem(same), twice);
	revocation_unref(&same);
	assert_int_equal(ERR_peek_error(), 0);
}

static void refused(const char *text, size_t size, const char *expected)
{
	struct err e = {0};

	assert_null(revocation_read(text, size, &e));
	if (!strstr(e.msg, expected))
		fail_msg("\"%s\" lacks \"%s\"", e.msg, expected);
	assert_int_equal(ERR_peek_error(), 0);
}

static void what_is_none_is_refused(void **state)
{
	auto_free char *cert = mem_strdup(one), *cut = mem_strdup(one), *behind;
	auto_free char *header = mem_printf(
	    "-----BEGIN X509 CRL-----\nProc-Type: 4,ENCRYPTED\n\n%s", strchr(one, '\n') + 1);
	char *at;

	(void)state;
	refused("", 0, "no revocation list");
	refused("words", 5, "no revocation list");
	while ((at = strstr(cert, "X509 CRL")))
		memcpy(at, "PUBL KEY", 8);
	refused(cert, strlen(cert), "not a PEM revocation list");
	behind = mem_printf("%s%s", one, cert); /* one bad block spoils it all */
	refused(behind, strlen(behind), "not a PEM revocation list");
	refused(header, strlen(header), "not a PEM revocation list");
	refused(longer, strlen(longer), "not a PEM revocation list");
	refused(one, strlen(one) - 30, "not a PEM revocation list");
	at = strchr(cut, '\n') + 1;
	memcpy(at, "AAAA", 4);
	refused(cut, strlen(cut), "not a PEM revocation list");
}

static void it_is_bounded(void **state)
{
	size_t n = strlen(one);
	auto_free char *many = mem_zalloc(65 * n + 1), *big = mem_zalloc((1 << 20) + 2);
	struct err e = {0};

	(void)state;
	for (unsigned i = 0; i < 65; i++)
		memcpy(many + i * n, one, n);
	struct revocation *all = revocation_read(many, 64 * n, &e), *most;
	assert_non_null(all);
	assert_int_equal(strlen(revocation_pem(all)), 64 * n);
	revocation_unref(&all);
	refused(many, 65 * n, "more than 64 revocation lists");
	memset(big, '\n', (1 << 20) + 1);
	memcpy(big, one, n);
	most = revocation_read(big, 1 << 20, &e);
	assert_non_null(most);
	revocation_unref(&most);
	refused(big, (1 << 20) + 1, "bytes are more than");
}

/* --- as an Envoy --- */

static struct revocation_trial try_at(
    int64_t now, const char *lists, const char *chain, const struct authority *of)
{
	struct revocation_trial t;
	struct err e;
	struct revocation *r = revocation_read(lists, strlen(lists), &e);

	assert_non_null(r);
	revocation_try(r, chain, of->pem, now, &t);
	revocation_unref(&r);
	assert_int_equal(ERR_peek_error(), 0);
	return t;
}

static void assert_fails(const struct revocation_trial *t, const char *why)
{
	assert_int_equal(t->result, REVOCATION_FAILS);
	if (!strstr(t->why.msg, why))
		fail_msg("\"%s\" lacks \"%s\"", t->why.msg, why);
}

/* The root's list is asked for, too. */
static void each_ca_of_the_chain_needs_one(void **state)
{
	auto_free char *chain = mem_printf("%s%s%s", leaf.pem, between.pem, root.pem);
	auto_free char *of_root = authority_list(&root, NOW - DAY, NOW + 9 * DAY, 0);
	auto_free char *of_between = authority_list(&between, NOW - DAY, NOW + 7 * DAY, 0);
	auto_free char *of_other = authority_list(&other, NOW - DAY, NOW + DAY, 0);
	auto_free char *both = mem_printf("%s%s%s", of_root, of_between, of_other);
	struct revocation_trial t = try_at(NOW, both, chain, &root);

	(void)state;
	assert_int_equal(t.result, REVOCATION_PASSES);
	assert_int_equal(t.ends, NOW + 7 * DAY); /* of those that it needs */
	assert_int_equal(t.warn_at, NOW + 5 * DAY);
	t = try_at(NOW, of_root, chain, &root);
	assert_fails(&t, "it has no list of the CA /CN=between");
	t = try_at(NOW, of_between, chain, &root);
	assert_fails(&t, "it has no list of the CA /CN=root");
	t = try_at(NOW, of_other, chain, &root);
	assert_fails(&t, "it has no list of the CA");
	t = try_at(NOW, both, chain, &between); /* trusted, but signed by another */
	assert_fails(&t, "the CA /CN=between is trusted without its own root: no list helps then");
	t = try_at(NOW, of_root, root.pem, &root); /* a root alone */
	assert_int_equal(t.result, REVOCATION_PASSES);
	assert_int_equal(t.ends, NOW + 9 * DAY);
}

static void it_has_a_beginning_and_an_end(void **state)
{
	auto_free char *later = authority_list(&root, NOW - DAY, NOW + 2 * DAY, 0);
	auto_free char *both = mem_printf("%s%s", one, later);
	auto_free char *for_ever = authority_list(&root, NOW - DAY, 0, 0);
	struct revocation_trial t = try_at(NOW + DAY - 1, one, root.pem, &root);
	struct revocation *r;
	struct err e;

	(void)state;
	assert_int_equal(t.result, REVOCATION_PASSES);
	t = try_at(NOW + DAY, one, root.pem, &root);
	assert_int_equal(t.result, REVOCATION_ENDED);
	assert_string_equal(t.why.msg, "the list of the CA /CN=root has ended");
	assert_int_equal(t.ends, NOW + DAY);
	t = try_at(NOW - DAY - 1, one, root.pem, &root);
	assert_fails(&t, "not yet valid");
	t = try_at(NOW + DAY, both, root.pem, &root); /* the good one of two */
	assert_int_equal(t.result, REVOCATION_PASSES);
	assert_int_equal(t.ends, NOW + 2 * DAY);
	t = try_at(NOW + 9 * DAY, for_ever, root.pem, &root);
	assert_int_equal(t.result, REVOCATION_PASSES);
	assert_int_equal(t.ends, 0);
	r = revocation_read(both, strlen(both), &e);
	assert_int_equal(revocation_next(r, NOW - 2 * DAY), NOW - DAY);
	assert_int_equal(revocation_next(r, NOW), NOW + DAY);
	assert_int_equal(revocation_next(r, NOW + DAY), NOW + 2 * DAY);
	assert_int_equal(revocation_next(r, NOW + 2 * DAY), 0);
	revocation_unref(&r);
}

static void who_signed_it_counts(void **state)
{
	auto_free char *by_unfit = authority_list(&unfit, NOW - DAY, NOW + DAY, 0);
	struct authority_wish w = {.name = "root", .begins = NOW - DAY, .ends = NOW + DAY};
	struct authority namesake = authority_make(&w);
	auto_free char *forged = authority_list(&namesake, NOW - DAY, NOW + DAY, 0);
	struct revocation_trial t = try_at(NOW, by_unfit, unfit.pem, &unfit);

	(void)state;
	assert_fails(&t, "the CA /CN=unfit may not sign a list: its key usage lacks cRLSign");
	t = try_at(NOW, forged, root.pem, &root);
	assert_fails(&t, "the list of the CA /CN=root: ");
	authority_drop(&namesake);
}

/* To refuse it is what the list is for; and what is over is not the list's fault. */
static void a_revoked_certificate_is_no_fault_of_the_list(void **state)
{
	struct authority direct = authority_make(&(struct authority_wish){
	    .name = "direct", .by = &root, .begins = NOW - 1, .ends = NOW + 9, .leaf = true});
	long serial = ASN1_INTEGER_get(X509_get0_serialNumber(direct.cert));
	auto_free char *with_it = authority_list(&root, NOW - DAY, NOW + DAY, serial);
	struct revocation_trial t = try_at(NOW, with_it, direct.pem, &root);

	(void)state;
	assert_int_equal(t.result, REVOCATION_PASSES);
	t = try_at(NOW + 10, with_it, direct.pem, &root);
	assert_int_equal(t.result, REVOCATION_PASSES);
	t = try_at(NOW + 2 * DAY, with_it, direct.pem, &root);
	assert_int_equal(t.result, REVOCATION_ENDED);
	t = try_at(NOW, with_it, "no chain", &root);
	assert_fails(&t, "no certificate in it");
	authority_drop(&direct);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_around_is_cut),
	    cmocka_unit_test(what_is_none_is_refused),
	    cmocka_unit_test(it_is_bounded),
	    cmocka_unit_test(each_ca_of_the_chain_needs_one),
	    cmocka_unit_test(it_has_a_beginning_and_an_end),
	    cmocka_unit_test(who_signed_it_counts),
	    cmocka_unit_test(a_revoked_certificate_is_no_fault_of_the_list),
	};

	return cmocka_run_group_tests(tests, make, drop);
}
