/* x509_crl_test.c - what a revocation list is, and what is none.
 */
#include "common/err.h"
#include "common/mem.h"
#include "worker/crypto/x509.h"
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

static int make(void **state)
{
	X509_CRL *crl = X509_CRL_new();
	X509_NAME *name = X509_NAME_new();
	ASN1_TIME *time = ASN1_TIME_set(NULL, 1700000000);
	EVP_PKEY *key = EVP_EC_gen("P-256");
	BIO *bio = BIO_new(BIO_s_mem());
	char *data;
	long n;

	(void)state;
	X509_NAME_add_entry_by_txt(
	    name, "CN", MBSTRING_ASC, (const unsigned char *)"ca", -1, -1, 0);
	assert_true(X509_CRL_set_version(crl, 1) && X509_CRL_set_issuer_name(crl, name) &&
		    X509_CRL_set1_lastUpdate(crl, time) && X509_CRL_set1_nextUpdate(crl, time) &&
		    X509_CRL_sign(crl, key, EVP_sha256()) > 0 && PEM_write_bio_X509_CRL(bio, crl));
	n = BIO_get_mem_data(bio, &data);
	one = mem_printf("%.*s", (int)n, data);
	unsigned char *der = NULL;
	int size = i2d_X509_CRL(crl, &der);
	der = OPENSSL_realloc(der, (size_t)size + 1);
	der[size] = 0;
	BIO_reset(bio);
	assert_true(PEM_write_bio(bio, "X509 CRL", "", der, size + 1));
	n = BIO_get_mem_data(bio, &data);
	longer = mem_printf("%.*s", (int)n, data);
	OPENSSL_free(der);
	BIO_free(bio);
	EVP_PKEY_free(key);
	ASN1_TIME_free(time);
	X509_NAME_free(name);
	X509_CRL_free(crl);
	return 0;
}

static int drop(void **state)
{
	(void)state;
	free(one);
	free(longer);
	return 0;
}

static void what_is_around_is_cut(void **state)
{
	auto_free char *text = mem_printf("a comment\n%s\nwords\n%s", one, one);
	auto_free char *twice = mem_printf("%s%s", one, one);
	struct err e = {0};
	auto_free char *got = x509_normalise_crl(text, strlen(text), &e);

	(void)state;
	assert_non_null(got);
	assert_string_equal(got, twice);
	assert_int_equal(ERR_peek_error(), 0);
}

static void refused(const char *text, size_t size, const char *expected)
{
	struct err e = {0};

	assert_null(x509_normalise_crl(text, size, &e));
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
	auto_free char *all = x509_normalise_crl(many, 64 * n, &e);
	assert_non_null(all);
	assert_int_equal(strlen(all), 64 * n);
	refused(many, 65 * n, "more than 64 revocation lists");
	memset(big, '\n', (1 << 20) + 1);
	memcpy(big, one, n);
	auto_free char *most = x509_normalise_crl(big, 1 << 20, &e);
	assert_non_null(most);
	refused(big, (1 << 20) + 1, "bytes are more than");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_around_is_cut),
	    cmocka_unit_test(what_is_none_is_refused),
	    cmocka_unit_test(it_is_bounded),
	};

	return cmocka_run_group_tests(tests, make, drop);
}
