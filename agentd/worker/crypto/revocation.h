/* revocation.h - lists of revoked certificates, and whether an Envoy that has them takes a peer.
 *
 * Envoy accepts any list that it can parse.  Then it refuses each peer for which it lacks a good
 * one: of the issuer of *each* certificate of the chain, the root's own too; signed by a CA whose
 * key usage allows it; not ended.  So a list is tried with chains before an Envoy gets it.
 */
#pragma once
#include "common/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct revocation; /* the lists of one text: immutable, counted */

/* PEM: 1 to 64 lists ("X509 CRL") and nothing else, in at most 1 MiB; the text around them is cut.
 * Returns one reference; NULL: it is none. */
struct revocation *revocation_read(const char *pem, size_t len, struct err *e);
struct revocation *revocation_ref(struct revocation *r);
void revocation_unref(struct revocation **r);
const char *revocation_pem(const struct revocation *r);
/* When the next of its lists begins or ends, Unix s; 0: none will. */
int64_t revocation_next(const struct revocation *r, int64_t now_s);

enum revocation_result {
	REVOCATION_FAILS,  /* it refuses the chain, whatever the time */
	REVOCATION_ENDED,  /* it refuses it only since a list ended */
	REVOCATION_PASSES, /* also if the list has this very certificate: that is what it is for */
};
struct revocation_trial {
	enum revocation_result result;
	struct err why;  /* unless it passes */
	int64_t ends;    /* when the first list that the chain needs ends, Unix s; 0: none does */
	int64_t warn_at; /* so much before that it should have been replaced */
};
/* `chain_pem`: the leaf, then what is between; other certificates behind do no harm. */
void revocation_try(const struct revocation *r, const char *chain_pem, const char *roots_pem,
    int64_t now_s, struct revocation_trial *t);
