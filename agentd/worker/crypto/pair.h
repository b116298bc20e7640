/* pair.h - a private key and its certificate, which a file of this machine holds.
 *
 * istiod tells a client nothing of why it refuses one (bare-metal-identity.md 3), so it is looked
 * at here:
 * - one key, without a passphrase, and 1 to 10 certificates;
 * - the first is for that key;
 * - it names exactly the identity;
 * - it is valid now;
 * - it is no CA;
 * - it is for TLS clients and servers, or for whatever;
 * - the others lead from it to one of the control plane's roots.
 */
#pragma once
#include "mesh/identity.h"
#include "x509.h"

enum { PAIR_CERTIFICATES_MAX = 10 };

struct pair {
	char *key_pem;   /* secret; NULL: there is none */
	char *chain_pem; /* leaf and intermediates */
	struct identity id;
	struct x509_leaf leaf;
};

struct pair_wanted {
	const char *trust_domains, *ns, *sa; /* by commas; "": not known, any will do */
	const char *roots_pem;               /* NULL: not known, none will do */
	int64_t now_s;
	int64_t *begins_s; /* set: 0, or when a certificate that was refused begins to be valid */
};

/* The texts of two files.  `p` is written on success only: pair_clear(). */
struct pair_text {
	const char *key, *chain;
	size_t key_size, chain_size;
};
int pair_read(
    struct pair *p, const struct pair_text *from, const struct pair_wanted *w, struct err *e);
/* One file that holds the key, then the chain. */
int pair_read_file(
    struct pair *p, const char *text, size_t size, const struct pair_wanted *w, struct err *e);
/* Such a file; a secret, the caller's. */
char *pair_write_file(const char *key_pem, const char *chain_pem);
void pair_clear(struct pair *p); /* wipes */
