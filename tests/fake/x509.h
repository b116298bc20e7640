/* x509.h - keys and certificates as plain text, so that a test can write any answer.
 *
 * "BETWEEN until N" ends then.  A revocation list is "CRL NAME", or "CRL NAME BEGIN-END", by
 * Unix seconds: "for-x" passes with certificates of "ROOT x..." only, "of-another" with none.
 * Roots with "ODD" in them have a block that is left out.
 *
 * The n-th key is "SECRET KEY n", its request "CSR n TYPE URI".  A leaf is the text that
 * fake_x509_leaf() writes; anything that begins with "ROOT" or "BETWEEN" is another certificate,
 * with "CRL" a revocation list, and the rest is none.
 */
#pragma once
#include "worker/crypto/x509.h"

struct fake_leaf {
	int key; /* number of the request that it answers */
	const char *serial, *uri;
	int64_t not_before, not_after;
};
char *fake_x509_leaf(const struct fake_leaf *l); /* the caller frees it */
int fake_x509_key_of(const char *csr_pem);       /* n */
int fake_x509_keys(void);                        /* how many were made, ever */
void fake_x509_fail(const char *why);            /* the next x509_make_request() fails */
