/* authority.h - a CA of the webhook's own, and the leaf that a replica signs with it in memory.
 *
 * Keys are P-256.  A certificate begins a day before it is made, for clocks differ.  Texts are
 * PEM; times are Unix seconds.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct authority;
struct err;

enum {
	AUTHORITY_LIFE_S = 365 * 86400,
	AUTHORITY_LEAF_S = 86400, /* from when it is signed */
	AUTHORITY_EARLY_S = 86400,
	AUTHORITY_PEM_MAX = 16 << 10, /* of a certificate or a key that is read */
};

struct authority *authority_new(int64_t now_s);
/* NULL: they are not one CA's certificate and its key.  A CA that others made will do, too: an
 * elliptic curve of 256 bits or more, or RSA of 2048.  Its life is not looked at. */
struct authority *authority_read(const char *crt, const char *key, struct err *e);
struct authority *authority_ref(struct authority *a); /* one more holder */
void authority_free(struct authority **a);

const char *authority_crt(const struct authority *a); /* the text around the PEM block is cut */
const char *authority_key(const struct authority *a); /* PKCS#8 */
int64_t authority_begin(const struct authority *a);
int64_t authority_end(const struct authority *a);

struct authority_leaf {
	char *crt, *key; /* NULL: there is none; the key is a secret */
	int64_t signed_at, end;
};
/* A new key for a server of this DNS name; what `leaf` held is freed.  It never outlives the CA. */
void authority_sign(
    const struct authority *a, const char *dns, int64_t now_s, struct authority_leaf *leaf);
void authority_leaf_clear(struct authority_leaf *leaf);
