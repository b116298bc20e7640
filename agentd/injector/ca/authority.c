/* authority.c - a key -> a certificate that it signs itself -> leaves: a key each, signed by it.
 *
 * Whatever happens OpenSSL's error queue is left empty: TLS connections share it.  Making a
 * certificate fails for want of memory or of random bytes alone, and nothing goes on without.
 */
#include "authority.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"

enum { SERIAL_SIZE = 16, RSA_BITS_MIN = 2048, EC_BITS_MIN = 256 };

struct authority {
	unsigned holders;
	X509 *cert;
	EVP_PKEY *pkey;
	char *crt, *key;
	int64_t begin, end;
};

static void must(bool ok)
{
	if (!ok)
		abort();
}

/* --- texts --- */

static char *cert_text(X509 *cert)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *data, *text;
	long size;

	must(bio && PEM_write_bio_X509(bio, cert));
	size = BIO_get_mem_data(bio, &data);
	text = mem_zalloc((size_t)size + 1);
	memcpy(text, data, (size_t)size);
	BIO_free(bio);
	return text;
}

/* A memory BIO wipes what it frees, so the copy is the only one left. */
static char *key_text(const EVP_PKEY *pkey)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *data, *text;
	long size;

	must(bio && PEM_write_bio_PKCS8PrivateKey(bio, pkey, NULL, NULL, 0, NULL, NULL));
	size = BIO_get_mem_data(bio, &data);
	text = secret_new(data, (size_t)size);
	BIO_free(bio);
	return text;
}

/* 0: it says none that can be read. */
static int64_t time_of(const ASN1_TIME *at)
{
	struct tm tm;

	return ASN1_TIME_to_tm(at, &tm) ? timegm(&tm) : 0;
}

/* --- making --- */

static X509 *begin_cert(EVP_PKEY *pkey, int64_t now_s, int64_t end)
{
	uint8_t serial[SERIAL_SIZE];
	X509 *cert = X509_new();
	BIGNUM *number;

	must(cert && RAND_bytes(serial, sizeof(serial)) == 1);
	serial[0] = (uint8_t)((serial[0] & 0x7f) | 0x40); /* positive, and all of 16 bytes */
	number = BN_bin2bn(serial, sizeof(serial), NULL);
	must(number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)));
	BN_free(number);
	must(X509_set_version(cert, X509_VERSION_3) && X509_set_pubkey(cert, pkey) &&
	     ASN1_TIME_set(X509_getm_notBefore(cert), now_s - AUTHORITY_EARLY_S) &&
	     ASN1_TIME_set(X509_getm_notAfter(cert), end));
	return cert;
}

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509_EXTENSION *ext;
	X509V3_CTX ctx;

	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	must(ext && X509_add_ext(cert, ext, -1));
	X509_EXTENSION_free(ext);
}

static void add_name(X509_NAME *name, const char *cn)
{
	must(X509_NAME_add_entry_by_txt(
	    name, "CN", MBSTRING_ASC, (const unsigned char *)cn, -1, -1, 0));
}

/* Takes both. */
static struct authority *authority_of(X509 *cert, EVP_PKEY *pkey)
{
	struct authority *a = mem_zalloc(sizeof(*a));

	a->holders = 1;
	a->cert = cert;
	a->pkey = pkey;
	a->crt = cert_text(cert);
	a->key = key_text(pkey);
	a->begin = time_of(X509_get0_notBefore(cert));
	a->end = time_of(X509_get0_notAfter(cert));
	return a;
}

/* Each has a subject of its own: a verifier finds it among others by that. */
struct authority *authority_new(int64_t now_s)
{
	EVP_PKEY *pkey = EVP_EC_gen("P-256");
	uint8_t random[4];
	char cn[64];
	X509 *cert;

	must(pkey && RAND_bytes(random, sizeof(random)) == 1);
	cert = begin_cert(pkey, now_s, now_s + AUTHORITY_LIFE_S);
	snprintf(cn, sizeof(cn), "agentd-injector CA %02x%02x%02x%02x", random[0], random[1],
	    random[2], random[3]);
	add_name(X509_get_subject_name(cert), cn);
	must(X509_set_issuer_name(cert, X509_get_subject_name(cert)));
	add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
	add_extension(cert, cert, NID_key_usage, "critical,keyCertSign");
	add_extension(cert, cert, NID_subject_key_identifier, "hash");
	must(X509_sign(cert, pkey, EVP_sha256()) > 0);
	return authority_of(cert, pkey);
}

/* A name that is longer than a CN may be is in the SAN alone, where verifiers look. */
void authority_sign(
    const struct authority *a, const char *dns, int64_t now_s, struct authority_leaf *leaf)
{
	int64_t end = now_s + AUTHORITY_LEAF_S < a->end ? now_s + AUTHORITY_LEAF_S : a->end;
	auto_free char *san = mem_printf("DNS:%s", dns);
	EVP_PKEY *pkey = EVP_EC_gen("P-256");
	X509 *cert;

	must(pkey);
	cert = begin_cert(pkey, now_s, end);
	add_name(X509_get_subject_name(cert), "agentd-injector");
	must(X509_set_issuer_name(cert, X509_get_subject_name(a->cert)));
	add_extension(cert, a->cert, NID_basic_constraints, "critical,CA:FALSE");
	add_extension(cert, a->cert, NID_key_usage, "critical,digitalSignature");
	add_extension(cert, a->cert, NID_ext_key_usage, "serverAuth");
	add_extension(cert, a->cert, NID_subject_alt_name, san);
	add_extension(cert, a->cert, NID_authority_key_identifier, "keyid,issuer");
	must(X509_sign(cert, a->pkey, EVP_sha256()) > 0);
	authority_leaf_clear(leaf);
	*leaf = (struct authority_leaf){cert_text(cert), key_text(pkey), now_s, end};
	X509_free(cert);
	EVP_PKEY_free(pkey);
	ERR_clear_error();
}

void authority_leaf_clear(struct authority_leaf *leaf)
{
	free(leaf->crt);
	secret_free(leaf->key);
	*leaf = (struct authority_leaf){0};
}

/* --- reading --- */

/* The empty passphrase keeps OpenSSL from asking on the terminal. */
static char no_passphrase[] = "";

static BIO *text_bio(const char *text)
{
	size_t size = strlen(text);
	BIO *bio = size <= AUTHORITY_PEM_MAX ? BIO_new_mem_buf(text, (int)size) : NULL;

	must(bio || size > AUTHORITY_PEM_MAX);
	return bio;
}

static X509 *read_cert(const char *text)
{
	BIO *bio = text_bio(text);
	X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, no_passphrase) : NULL;

	BIO_free(bio);
	return cert;
}

static EVP_PKEY *read_key(const char *text)
{
	BIO *bio = text_bio(text);
	EVP_PKEY *pkey = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, no_passphrase) : NULL;

	BIO_free(bio);
	return pkey;
}

static bool strong(const EVP_PKEY *pkey)
{
	int kind = EVP_PKEY_get_base_id(pkey);

	return (kind == EVP_PKEY_EC && EVP_PKEY_get_bits(pkey) >= EC_BITS_MIN) ||
	       (kind == EVP_PKEY_RSA && EVP_PKEY_get_bits(pkey) >= RSA_BITS_MIN);
}

static const char *wrong_with(X509 *cert, EVP_PKEY *pkey)
{
	if (!cert)
		return "no certificate";
	if (!pkey)
		return "no private key";
	if (!strong(pkey))
		return "the key is neither an elliptic curve of 256 bits nor RSA of 2048";
	if (X509_check_private_key(cert, pkey) != 1)
		return "the key is another one's";
	if (X509_check_ca(cert) != 1)
		return "the certificate is no CA's";
	if (X509_verify(cert, pkey) != 1)
		return "the certificate did not sign itself";
	return NULL;
}

struct authority *authority_read(const char *crt, const char *key, struct err *e)
{
	X509 *cert = read_cert(crt);
	EVP_PKEY *pkey = read_key(key);
	const char *wrong = wrong_with(cert, pkey);
	struct authority *a = NULL;

	if (wrong) {
		err_set(e, ERR_INVALID, "%s", wrong);
		X509_free(cert);
		EVP_PKEY_free(pkey);
	} else {
		a = authority_of(cert, pkey);
	}
	ERR_clear_error();
	return a;
}

struct authority *authority_ref(struct authority *a)
{
	a->holders++;
	return a;
}

void authority_free(struct authority **authority)
{
	struct authority *a = take(*authority);

	if (!a || --a->holders > 0)
		return;
	X509_free(a->cert);
	EVP_PKEY_free(a->pkey);
	free(a->crt);
	secret_free(a->key);
	free(a);
}

const char *authority_crt(const struct authority *a)
{
	return a->crt;
}

const char *authority_key(const struct authority *a)
{
	return a->key;
}

int64_t authority_begin(const struct authority *a)
{
	return a->begin;
}

int64_t authority_end(const struct authority *a)
{
	return a->end;
}
