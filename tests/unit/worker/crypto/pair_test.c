/* pair_test.c - of all pairs that a file could hold only the right one is taken, and each bad one
 * is refused for what is wrong with it (bare-metal-identity.md 3).
 */
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "worker/crypto/pair.h"
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* after the four above */
#include <cmocka.h>

enum { HOUR = 3600, MANY = 20 };
static const int64_t NOW = 1700000000;
#define WEB "spiffe://cluster.local/ns/demo/sa/web"

struct ca {
	EVP_PKEY *key;
	X509 *cert;
};
static struct ca root, other, inter;
static EVP_PKEY *ours, *another;
static struct pair pair;

/* --- a CA --- */

struct recipe {
	const char *san, *basic, *eku; /* NULL: left out */
	int64_t starts, ends;          /* relative to NOW */
};
static const struct recipe good = {"URI:" WEB, "critical,CA:FALSE", NULL, -HOUR, HOUR};

static void add(X509 *cert, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *ext;

	if (!value)
		return;
	X509V3_set_ctx(&ctx, NULL, cert, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	assert_non_null(ext);
	X509_add_ext(cert, ext, -1);
	X509_EXTENSION_free(ext);
}

static X509 *issue(const struct recipe *r, const char *cn, EVP_PKEY *key, const struct ca *by)
{
	X509 *cert = X509_new();

	X509_set_version(cert, X509_VERSION_3);
	ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
	ASN1_TIME_set(X509_getm_notBefore(cert), NOW + r->starts);
	ASN1_TIME_set(X509_getm_notAfter(cert), NOW + r->ends);
	X509_NAME_add_entry_by_txt(
	    X509_get_subject_name(cert), "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0);
	X509_set_issuer_name(cert, X509_get_subject_name(by->cert ? by->cert : cert));
	X509_set_pubkey(cert, key);
	add(cert, NID_basic_constraints, r->basic);
	add(cert, NID_ext_key_usage, r->eku);
	add(cert, NID_subject_alt_name, r->san);
	assert_true(X509_sign(cert, by->key, EVP_sha256()));
	return cert;
}

static struct ca make_ca(const char *cn, const struct ca *by)
{
	const struct recipe r = {NULL, "critical,CA:TRUE", NULL, -24 * HOUR, 240 * HOUR};
	struct ca ca = {.key = EVP_EC_gen("P-256")}, self = {.key = ca.key};

	ca.cert = issue(&r, cn, ca.key, by ? by : &self);
	return ca;
}

static void drop_ca(struct ca *ca)
{
	EVP_PKEY_free(ca->key);
	X509_free(ca->cert);
}

static int setup(void **state)
{
	(void)state;
	root = make_ca("root", NULL);
	other = make_ca("root", NULL);
	inter = make_ca("inter", &root);
	ours = EVP_EC_gen("P-256");
	another = EVP_EC_gen("P-256");
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	drop_ca(&root);
	drop_ca(&other);
	drop_ca(&inter);
	EVP_PKEY_free(ours);
	EVP_PKEY_free(another);
	return 0;
}

/* --- texts --- */

static char *text_of(BIO *bio)
{
	char *data;
	long n = BIO_get_mem_data(bio, &data);
	char *text = mem_printf("%.*s", (int)n, data);

	BIO_free(bio);
	return text;
}

static char *cert_text(X509 *cert)
{
	BIO *bio = BIO_new(BIO_s_mem());

	PEM_write_bio_X509(bio, cert);
	return text_of(bio);
}

static char *key_text(EVP_PKEY *key, const char *passphrase)
{
	BIO *bio = BIO_new(BIO_s_mem());

	PEM_write_bio_PrivateKey(bio, key, passphrase ? EVP_aes_128_cbc() : NULL,
	    (const unsigned char *)passphrase, passphrase ? (int)strlen(passphrase) : 0, NULL,
	    NULL);
	return text_of(bio);
}

static char *leaf_text(const struct recipe *r, EVP_PKEY *key, const struct ca *by)
{
	X509 *leaf = issue(r, "leaf", key, by);
	char *text = cert_text(leaf);

	X509_free(leaf);
	return text;
}

static int64_t begins;

static int read_texts(const char *key, const char *chain, const char *td, struct err *e)
{
	auto_free char *roots = cert_text(root.cert);
	const struct pair_wanted w = {td, "demo", "web", roots, NOW, &begins};
	const struct pair_text t = {key, chain, strlen(key), strlen(chain)};

	pair_clear(&pair);
	return pair_read(&pair, &t, &w, e);
}

static void refused(const char *key, const char *chain, const char *why)
{
	struct err e = {0};

	assert_int_equal(read_texts(key, chain, "cluster.local", &e), -1);
	assert_null(pair.key_pem);
	if (!strstr(e.msg, why))
		fail_msg("\"%s\" does not say \"%s\"", e.msg, why);
}

/* --- the tests --- */

static void a_good_one_is_taken(void **state)
{
	auto_free char *key = key_text(ours, NULL), *leaf = leaf_text(&good, ours, &root);
	struct err e = {0};

	(void)state;
	if (read_texts(key, leaf, "cluster.local", &e))
		fail_msg("%s", e.msg);
	assert_int_equal(pair.leaf.not_after, NOW + HOUR);
	assert_string_equal(pair.id.sa, "web");
	assert_string_equal(pair.chain_pem, leaf);
	assert_non_null(strstr(pair.key_pem, "-----BEGIN PRIVATE KEY-----"));
	assert_int_equal(read_texts(key, leaf, "", &e), 0); /* its trust domain is not known */
	pair_clear(&pair);
}

static void an_intermediate_comes_along(void **state)
{
	auto_free char *key = key_text(ours, NULL), *leaf = leaf_text(&good, ours, &inter);
	auto_free char *between = cert_text(inter.cert), *chain = mem_printf("%s%s", leaf, between);
	struct err e = {0};

	(void)state;
	if (read_texts(key, chain, "cluster.local", &e))
		fail_msg("%s", e.msg);
	pair_clear(&pair);
	refused(key, leaf, "does not lead to its roots");
}

static void one_file_holds_both(void **state)
{
	auto_free char *key = key_text(ours, NULL), *leaf = leaf_text(&good, ours, &root);
	auto_free char *roots = cert_text(root.cert), *swapped = mem_printf("%s%s", leaf, key);
	const struct pair_wanted w = {"cluster.local", "demo", "web", roots, NOW, &begins};
	struct err e = {0};
	char *file = pair_write_file(key, leaf);

	(void)state;
	assert_int_equal(pair_read_file(&pair, file, strlen(file), &w, &e), 0);
	assert_string_equal(pair.chain_pem, leaf);
	pair_clear(&pair);
	for (size_t n = 0; n < strlen(file) - 1; n++) /* a torn one */
		assert_int_equal(pair_read_file(&pair, file, n, &w, &e), -1);
	secret_free(file);
	assert_int_equal(pair_read_file(&pair, swapped, strlen(swapped), &w, &e), -1);
}

static void bad_keys_are_refused(void **state)
{
	auto_free char *leaf = leaf_text(&good, ours, &root), *key = key_text(ours, NULL);
	auto_free char *encrypted = key_text(ours, "secret"), *other_key = key_text(another, NULL);
	auto_free char *two = mem_printf("%s%s", key, other_key);
	auto_free char *endless = mem_zalloc((1 << 20) + 1);
	EVP_PKEY *weak = EVP_RSA_gen(1024), *curve = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
	auto_free char *weak_key = key_text(weak, NULL), *weak_leaf = leaf_text(&good, weak, &root);
	auto_free char *edwards = key_text(curve, NULL);

	(void)state;
	refused(encrypted, leaf, "passphrase");
	refused(other_key, leaf, "for another key");
	refused(two, leaf, "not one PEM private key");
	refused("", leaf, "not one PEM private key");
	refused(leaf, leaf, "not one PEM private key");
	refused(weak_key, weak_leaf, "1024 bits are fewer than 2048");
	refused(edwards, leaf, "neither an RSA key");
	memset(endless, 'x', 1 << 20);
	refused(endless, leaf, "key: not the PEM");
	refused(key, endless, "certificate: ");
	EVP_PKEY_free(weak);
	EVP_PKEY_free(curve);
}

static void bad(const struct recipe *r, const struct ca *by, const char *why)
{
	auto_free char *key = key_text(ours, NULL), *leaf = leaf_text(r, ours, by);

	refused(key, leaf, why);
}

static void bad_certificates_are_refused(void **state)
{
	struct recipe r;

	(void)state;
	bad(&good, &other, "does not lead to its roots");
#define BAD(why, ...)                                                                              \
	do {                                                                                       \
		r = good;                                                                          \
		__VA_ARGS__;                                                                       \
		bad(&r, &root, why);                                                               \
	} while (0)
	BAD("not for our identity", r.san = "URI:spiffe://cluster.local/ns/demo/sa/other");
	BAD("not for our identity", r.san = "URI:spiffe://cluster.local/ns/x/sa/web");
	BAD("its trust domain is", r.san = "URI:spiffe://other.td/ns/demo/sa/web");
	BAD("exactly one subject", r.san = "URI:" WEB ",URI:" WEB "x");
	BAD("exactly one subject", r.san = "URI:" WEB ",DNS:web");
	BAD("exactly one subject", r.san = NULL);
	BAD("CA certificate", r.basic = "critical,CA:TRUE");
	BAD("both TLS servers and clients", r.eku = "clientAuth");
	BAD("both TLS servers and clients", r.eku = "serverAuth");
	BAD("expired", r.ends = -1);
	BAD("not valid yet", r.starts = 30);
	assert_int_equal(begins, NOW + 30); /* worth another look */
}

static void chains_are_short(void **state)
{
	auto_free char *key = key_text(ours, NULL), *leaf = leaf_text(&good, ours, &root);
	auto_free char *many = mem_zalloc(strlen(leaf) * MANY + 1);

	(void)state;
	for (int i = 0; i < MANY; i++)
		strcat(many, leaf);
	refused(key, many, "more than 10 certificates");
}

static void without_roots_nothing_is_taken(void **state)
{
	auto_free char *key = key_text(ours, NULL), *leaf = leaf_text(&good, ours, &root);
	const struct pair_wanted w = {"cluster.local", "demo", "web", NULL, NOW, &begins};
	const struct pair_text t = {key, leaf, strlen(key), strlen(leaf)};
	struct err e = {0};

	(void)state;
	assert_int_equal(pair_read(&pair, &t, &w, &e), -1);
	assert_int_equal(e.code, ERR_UNAVAILABLE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_good_one_is_taken),
	    cmocka_unit_test(an_intermediate_comes_along),
	    cmocka_unit_test(one_file_holds_both),
	    cmocka_unit_test(bad_keys_are_refused),
	    cmocka_unit_test(bad_certificates_are_refused),
	    cmocka_unit_test(chains_are_short),
	    cmocka_unit_test(without_roots_nothing_is_taken),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
