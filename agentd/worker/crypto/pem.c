/* pem.c - a text, block by block: each must be a certificate. */
#include "pem.h"
#include "common/err.h"
#include "common/mem.h"
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>

int pem_fail(struct err *e, const char *what)
{
	const char *reason = ERR_reason_error_string(ERR_get_error());
	ERR_clear_error();
	return err_set(e, ERR_INVALID, "%s: %s", what, reason ? reason : "not valid");
}

char *pem_bio_text(BIO *bio)
{
	char *data;
	long size = BIO_get_mem_data(bio, &data);
	char *text = mem_zalloc((size_t)size + 1);
	memcpy(text, data, (size_t)size);
	return text;
}

struct stack_st_X509 *pem_certs_new(void)
{
	struct stack_st_X509 *certs = sk_X509_new_null();
	if (!certs)
		abort();
	return certs;
}

void pem_certs_free(struct stack_st_X509 *certs)
{
	sk_X509_pop_free(certs, X509_free);
}

/* One block as a certificate; anything else in it, or behind it, is refused. */
static X509 *block_cert(const char *type, const char *header, const unsigned char *der, long len)
{
	if (strcmp(type, PEM_STRING_X509) != 0 || *header)
		return NULL;
	const unsigned char *at = der;
	X509 *cert = d2i_X509(NULL, &at, len);
	if (cert && at != der + len) {
		X509_free(cert);
		return NULL;
	}
	return cert;
}

/* 1: one more certificate is in `certs`.  0: no more blocks.  -1: something else is there. */
static int read_block(BIO *bio, struct stack_st_X509 *certs)
{
	char *type = NULL, *header = NULL;
	unsigned char *der = NULL;
	long len;
	if (!PEM_read_bio(bio, &type, &header, &der, &len))
		return ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE ? 0 : -1;
	X509 *cert = block_cert(type, header, der, len);
	OPENSSL_free(type);
	OPENSSL_free(header);
	OPENSSL_free(der);
	if (!cert)
		return -1;
	if (!sk_X509_push(certs, cert))
		abort();
	return 1;
}

int pem_certs_read(struct stack_st_X509 *out, const char *pem, size_t len, int max, struct err *e)
{
	if (len > PEM_SIZE_MAX)
		return err_set(e, ERR_INVALID, "%zu bytes are more than %d", len, PEM_SIZE_MAX);
	owned(bio) BIO *bio = BIO_new_mem_buf(pem, (int)len);
	if (!bio)
		abort();
	int more, n = 0;
	while ((more = read_block(bio, out)) > 0)
		if (++n > max)
			return err_set(
			    e, ERR_INVALID, "more than %d certificate%s", max, max > 1 ? "s" : "");
	if (more < 0)
		return pem_fail(e, "not a PEM certificate");
	if (n == 0)
		return err_set(e, ERR_INVALID, "no certificate in it");
	return 0;
}
