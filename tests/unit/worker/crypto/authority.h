/* authority.h - certificate authorities for tests, by OpenSSL: names, keys, ends, lists. */
#pragma once
#include <openssl/x509.h>
#include <stdbool.h>
#include <stdint.h>

struct authority {
	EVP_PKEY *key;
	X509 *cert;
	char *pem;
};

struct authority_wish {
	const char *name;              /* CN */
	const struct authority *by;    /* NULL: itself */
	const struct authority *again; /* with this one's key; NULL: a new one */
	int64_t begins, ends;
	const char *usage; /* NULL: all that a CA may do */
	bool no_key_id;
	bool leaf; /* no CA */
};
struct authority authority_make(const struct authority_wish *w);
void authority_drop(struct authority *a);

/* A list by `a`, of one serial number (0: empty); `end` 0: it has none.  The caller frees it. */
char *authority_list(const struct authority *a, int64_t begin, int64_t end, long serial);
