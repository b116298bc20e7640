/* authority.c - see authority.h. */
#include "authority.h"
#include "common/mem.h"
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

static void must(bool held)
{
	if (!held)
		abort();
}

static char *text_of(BIO *bio)
{
	char *data, *text;
	long n = BIO_get_mem_data(bio, &data);

	text = mem_printf("%.*s", (int)n, data);
	BIO_free(bio);
	return text;
}

static void extend(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *ext;

	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	must(ext && X509_add_ext(cert, ext, -1));
	X509_EXTENSION_free(ext);
}

static void describe(X509 *cert, const struct authority_wish *w, X509 *issuer)
{
	static long serial = 1000;
	X509_NAME *name = X509_get_subject_name(cert);

	must(X509_set_version(cert, X509_VERSION_3) &&
	     ASN1_INTEGER_set(X509_get_serialNumber(cert), ++serial) &&
	     ASN1_TIME_set(X509_getm_notBefore(cert), w->begins) &&
	     ASN1_TIME_set(X509_getm_notAfter(cert), w->ends) &&
	     X509_NAME_add_entry_by_txt(
		 name, "CN", MBSTRING_ASC, (const unsigned char *)w->name, -1, -1, 0));
	must(X509_set_issuer_name(cert, X509_get_subject_name(issuer)));
}

struct authority authority_make(const struct authority_wish *w)
{
	struct authority a = {.cert = X509_new()};
	X509 *issuer = w->by ? w->by->cert : a.cert;
	BIO *bio = BIO_new(BIO_s_mem());

	a.key = w->again ? w->again->key : EVP_EC_gen("P-256");
	if (w->again)
		EVP_PKEY_up_ref(a.key);
	describe(a.cert, w, issuer);
	must(X509_set_pubkey(a.cert, a.key));
	if (!w->no_key_id)
		extend(a.cert, issuer, NID_subject_key_identifier, "hash");
	extend(a.cert, issuer, NID_basic_constraints,
	    w->leaf ? "critical,CA:FALSE" : "critical,CA:TRUE");
	extend(a.cert, issuer, NID_key_usage,
	    w->usage  ? w->usage
	    : w->leaf ? "critical,digitalSignature"
		      : "critical,keyCertSign,cRLSign");
	must(X509_sign(a.cert, w->by ? w->by->key : a.key, EVP_sha256()) > 0);
	must(PEM_write_bio_X509(bio, a.cert));
	a.pem = text_of(bio);
	return a;
}

void authority_drop(struct authority *a)
{
	EVP_PKEY_free(a->key);
	X509_free(a->cert);
	free(a->pem);
	*a = (struct authority){NULL};
}

static void add_serial(X509_CRL *list, int64_t at, long serial)
{
	X509_REVOKED *r = X509_REVOKED_new();
	ASN1_INTEGER *number = ASN1_INTEGER_new();
	ASN1_TIME *date = ASN1_TIME_set(NULL, at);

	must(ASN1_INTEGER_set(number, serial) && X509_REVOKED_set_serialNumber(r, number) &&
	     X509_REVOKED_set_revocationDate(r, date) && X509_CRL_add0_revoked(list, r));
	ASN1_INTEGER_free(number);
	ASN1_TIME_free(date);
}

char *authority_list(const struct authority *a, int64_t begin, int64_t end, long serial)
{
	X509_CRL *list = X509_CRL_new();
	ASN1_TIME *from = ASN1_TIME_set(NULL, begin), *until = ASN1_TIME_set(NULL, end);
	BIO *bio = BIO_new(BIO_s_mem());

	must(X509_CRL_set_version(list, X509_CRL_VERSION_2) &&
	     X509_CRL_set_issuer_name(list, X509_get_subject_name(a->cert)) &&
	     X509_CRL_set1_lastUpdate(list, from) &&
	     (!end || X509_CRL_set1_nextUpdate(list, until)));
	if (serial)
		add_serial(list, begin, serial);
	must(X509_CRL_sign(list, a->key, EVP_sha256()) > 0 && PEM_write_bio_X509_CRL(bio, list));
	ASN1_TIME_free(from);
	ASN1_TIME_free(until);
	X509_CRL_free(list);
	return text_of(bio);
}
