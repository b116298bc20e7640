/* ca_client.h - IstioCertificateService: a request in, a chain out.
 *
 * One ca_sign is up to 5 attempts, 100/200/400/800 ms +-10 % apart, on CANCELLED,
 * DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED, ABORTED, INTERNAL, UNAVAILABLE; 10 s each
 * (istio-agent.md 4.1-4.3).  Attempts of one control plane are at most `per_second` (with a burst
 * of twice as many): urgent ones go first.  The answer is bounded (64 elements, 256 KiB) but not
 * believed: see x509_check_chain.
 */
#pragma once
#include "common/uuid.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ca_client;
struct ca_sign;
struct err;
struct istiod;
struct loop;

struct ca_request {
	const char *csr_pem, *token; /* copied */
	const char *cert_signer;     /* sent always, "" too */
	int64_t ttl_s;
	struct uuid pod; /* the owner of the token; it is this pod's turn */
	bool urgent;     /* a subscriber has no certificate until it is answered */
};
/* Exactly one of `e` and `chain` is set; both are valid during the callback. */
typedef void (*ca_signed)(void *ctx, const struct err *e, const char *const *chain, size_t n);

struct ca_client *ca_client_new(struct loop *l, struct istiod *i, unsigned per_second);
void ca_client_free(struct ca_client **c);
void ca_sign(struct ca_client *c, struct ca_sign **slot, const struct ca_request *r, ca_signed done,
    void *ctx);
void ca_sign_cancel(struct ca_sign **s);
