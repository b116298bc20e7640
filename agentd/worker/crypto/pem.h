/* pem.h - certificates out of PEM text, for the files of this folder that use OpenSSL.
 *
 * Whatever happens the thread's OpenSSL error queue must be left empty by who calls from outside:
 * TLS connections share it.
 */
#pragma once
#include <openssl/x509.h>
#include <stddef.h>

struct err;

/* An owning local of an OpenSSL type, as auto_free is for plain memory. */
#define OWNED(name, type, release)                                                                 \
	static inline void drop_##name(__typeof__(type) **p)                                       \
	{                                                                                          \
		release(*p);                                                                       \
	}
#define owned(name) __attribute__((cleanup(drop_##name)))

enum { PEM_CERTS_MAX = 64, PEM_SIZE_MAX = 256 * 1024 }; /* of one text */

struct stack_st_X509 *pem_certs_new(void);
void pem_certs_free(struct stack_st_X509 *certs);
/* Appends the certificates of a text, 1 to `max`; there must be nothing else in it. */
int pem_certs_read(struct stack_st_X509 *out, const char *pem, size_t len, int max, struct err *e);
char *pem_bio_text(BIO *bio); /* all that is in a memory BIO */
/* Sets `e` to `what` and OpenSSL's first error, which is the cause of the others. */
int pem_fail(struct err *e, const char *what);

OWNED(bio, BIO, BIO_free)
OWNED(certs, struct stack_st_X509, pem_certs_free)
OWNED(store, X509_STORE, X509_STORE_free)
OWNED(store_ctx, X509_STORE_CTX, X509_STORE_CTX_free)
