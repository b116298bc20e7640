/* store.h - a certificate with its key as text, for the kept state (security-rules.md 7).
 *
 *   version: 1
 *   sha256: <of all that follows>
 *   <one line for each field: what it is of, then when it was issued, then sizes>
 *
 *   <the key's PEM, the chain's PEM>
 *
 * A reader accepts exactly what a writer writes, byte for byte; so it refuses a text with one wrong
 * bit.  Our own text may still be wrong in substance: its user checks the chain again.
 */
#pragma once
#include "spec.h"
#include "worker/crypto/cert.h"
#include "worker/crypto/x509.h"
#include <stddef.h>

struct err;

/* The control plane that issued it.  Once that has another name or address, the certificate is
 * useless; under another trust domain it is looked at as a new one is. */
struct cert_origin {
	char name[64], address[264], trust_domain[256];
};

struct cert_stored {
	struct cert_origin origin;
	struct cert_spec spec;
	int64_t issued_ms, issued_uptime_ms; /* on the wall clock, on the monotonic clock */
	int64_t renew_at_ms;                 /* wall clock */
	char *key_pem;                       /* secret */
	char *chain_pem;                     /* the elements, one behind the other */
	size_t n, element_size[CERT_ELEMENTS_MAX];
};

/* NULL: more than 1 MiB.  The caller wipes it: mem_wipe_free(). */
char *cert_store_write(const struct cert_stored *s, size_t *size);
/* EPROTONOSUPPORT: another release wrote it, and may want it back; else: damaged.  Free `s` with
 * cert_stored_clear(). */
int cert_store_read(struct cert_stored *s, const char *text, size_t size, struct err *e);
void cert_stored_clear(struct cert_stored *s);               /* wipes the key */
struct cert_stored *cert_stored_take(struct cert_stored *s); /* a copy, which has its texts now */

/* The name of an entry: the digest of origin and spec. */
void cert_store_id(
    const struct cert_origin *o, const struct cert_spec *spec, uint8_t id[X509_SHA256_SIZE]);
