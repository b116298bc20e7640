/* x509.h - makes keys and certificate requests, and checks the certificates that we get.
 *
 * All functions are pure;
 * making an RSA key takes 160-540 ms and belongs on the worker thread.
 */
#pragma once
#include "mesh/key.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct identity;

struct x509_request {
	char *key_pem, *csr_pem;
};

/* As istio-agent.md 4.4: O with one empty string, no CN, critical SAN with one URI. */
int x509_make_request(struct x509_request *out, const struct x509_key_params *k,
    const struct identity *id, struct err *e);
void x509_request_clear(struct x509_request *r); /* wipes the key */

struct x509_leaf {
	char serial[64];               /* lower-case hex */
	int64_t not_before, not_after; /* Unix seconds */
	/* When the first certificate between it and its root ends, and the root: of several with
	 * one name and key the last.  0: there is none, or nobody looked (x509_read_leaf()). */
	int64_t chain_ends, root_ends;
};
/* When peers stop to accept it: its own end, or that of its path to the root if that is sooner. */
int64_t x509_usable_until(const struct x509_leaf *leaf);

struct x509_answer {
	const char *const *chain; /* leaf, intermediates, last element: the roots */
	size_t n;
	const char *key_pem;   /* ours */
	const char *expect_td; /* one trust domain, or several by commas; NULL: any */
	int64_t now_s, ttl_max_s;
};
/* Is it an answer to our request?  Checked:
 * - 2 to 64 elements, one certificate each but for the last;
 * - the leaf holds our key;
 * - it names exactly `id`, in its only SAN of any kind;
 * - it is no CA;
 * - Envoy takes it: its key may sign, and it asks for no OCSP staple;
 * - it is valid now (60 s early is fine: the CA's clock);
 * - it ends within `ttl_max_s` + 60 s;
 * - the chain leads to one of the roots.
 * Where any trust domain will do, `id` gets the one of the leaf.  `id` and `leaf` are written on
 * success only. */
int x509_check_chain(
    const struct x509_answer *from, struct identity *id, struct x509_leaf *leaf, struct err *e);

/* When the first certificate of a text lives, whatever else is to be said of it. */
int x509_read_leaf(const char *pem, size_t len, struct x509_leaf *leaf, struct err *e);

/* One to 64 certificates and nothing else; the text around the PEM blocks is cut.
 */
char *x509_normalise_pem(const char *pem, size_t len, struct err *e);
/* One private key, as PKCS#8: a secret.  Refused: one with a passphrase, for nobody is there to be
 * asked; one that is neither RSA of 2048 bits or more nor an elliptic curve of 256 or more. */
char *x509_normalise_key(const char *pem, size_t len, struct err *e);

/* Of the certificates of one text; Unix seconds. */
struct x509_life {
	unsigned n;
	unsigned alike; /* have the name of another with another key, and no key identifier */
	int64_t first_end, last_end; /* first: not of one that a later one renews, with its key */
};
void x509_pem_life(const char *pem, struct x509_life *life); /* of x509_normalise_pem() */

enum { X509_SHA256_SIZE = 32 };
void x509_sha256(const void *data, size_t size, uint8_t out[X509_SHA256_SIZE]);
