/* bundle.c - a text -> its certificates -> with those that are wanted, each once -> a text. */
#include "bundle.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"

enum { TEXT_MAX = 256 << 10, CERTS_MAX = 64 };

/* DER; nobody's parser is asked whether it is a good one. */
struct cert {
	unsigned char *der;
	long len;
};

struct certs {
	struct cert cert[CERTS_MAX + BUNDLE_MUST_MAX];
	unsigned n;
};

static void certs_clear(struct certs *c)
{
	for (unsigned i = 0; i < c->n; i++)
		OPENSSL_free(c->cert[i].der);
	c->n = 0;
}

static bool certs_hold(const struct certs *c, struct cert cert)
{
	for (unsigned i = 0; i < c->n; i++)
		if (c->cert[i].len == cert.len &&
		    memcmp(c->cert[i].der, cert.der, (size_t)cert.len) == 0)
			return true;
	return false;
}

/* A SEQUENCE that fills the block. */
static bool is_cert(const char *type, const char *header, struct cert cert)
{
	const unsigned char *at = cert.der;
	int tag, class;
	long len;

	return strcmp(type, PEM_STRING_X509) == 0 && !*header &&
	       ASN1_get_object(&at, &len, &tag, &class, cert.len) == V_ASN1_CONSTRUCTED &&
	       tag == V_ASN1_SEQUENCE && at + len == cert.der + cert.len;
}

/* False: there is none.  One that cannot be read is passed over. */
static bool read_block(BIO *bio, struct certs *into)
{
	char *type = NULL, *header = NULL;
	struct cert cert = {0};

	if (!PEM_read_bio(bio, &type, &header, &cert.der, &cert.len))
		return ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE;
	if (is_cert(type, header, cert) && !certs_hold(into, cert))
		into->cert[into->n++] = cert;
	else
		OPENSSL_free(cert.der);
	OPENSSL_free(type);
	OPENSSL_free(header);
	return true;
}

static void certs_read(struct certs *into, const char *text, unsigned max)
{
	BIO *bio = BIO_new_mem_buf(text, (int)strnlen(text, TEXT_MAX));

	if (!bio)
		abort();
	while (into->n < max && !BIO_eof(bio) && read_block(bio, into))
		ERR_clear_error();
	ERR_clear_error();
	BIO_free(bio);
}

static char *certs_text(const struct certs *c)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *data, *text;
	long size;

	if (!bio)
		abort();
	for (unsigned i = 0; i < c->n; i++)
		if (!PEM_write_bio(bio, PEM_STRING_X509, "", c->cert[i].der, c->cert[i].len))
			abort();
	size = BIO_get_mem_data(bio, &data);
	text = mem_zalloc((size_t)size + 1);
	if (size > 0)
		memcpy(text, data, (size_t)size);
	BIO_free(bio);
	return text;
}

bool bundle_holds(const char *bundle, const char *crt)
{
	struct certs there = {0}, one = {0};
	bool holds = false;

	certs_read(&there, bundle, CERTS_MAX);
	certs_read(&one, crt, 1);
	if (one.n == 1 && certs_hold(&there, one.cert[0])) {
		auto_free char *plain = certs_text(&there);

		holds = strcmp(plain, bundle) == 0;
	}
	certs_clear(&there);
	certs_clear(&one);
	return holds;
}

char *bundle_mend(const char *bundle, const struct bundle_want *want)
{
	struct certs there = {0}, must = {0}, out = {0};
	auto_free char *text = NULL;

	certs_read(&there, bundle, CERTS_MAX);
	for (unsigned i = 0; i < BUNDLE_MUST_MAX; i++)
		if (want->must[i])
			certs_read(&must, want->must[i], must.n + 1);
	for (unsigned i = 0; i < there.n; i++)
		if (!want->only || certs_hold(&must, there.cert[i]))
			out.cert[out.n++] = there.cert[i]; /* lent */
	for (unsigned i = 0; i < must.n; i++)
		if (!certs_hold(&out, must.cert[i]))
			out.cert[out.n++] = must.cert[i];
	text = certs_text(&out);
	certs_clear(&there);
	certs_clear(&must);
	return strcmp(text, bundle) == 0 ? NULL : take(text);
}
