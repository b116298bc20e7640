/* cert.h - an issued certificate: immutable, counted; the last unref wipes the key. */
#pragma once
#include "mesh/identity.h"
#include "roots.h"
#include "x509.h"
#include <jansson.h>

enum { CERT_ELEMENTS_MAX = 64 };

struct cert {
	unsigned refs;
	struct identity id;
	struct x509_leaf leaf;
	char *key_pem, *chain_pem; /* the chain: every element of the answer, roots too */
	size_t n, element_size[CERT_ELEMENTS_MAX]; /* of the chain's text, in bytes */
	char *root_pem;             /* the answer's last element, as roots_read() has it */
	char note[ROOTS_NOTE_SIZE]; /* of that, too */
};

/* Returns one reference, with chain and root from the elements of an answer.  The caller fills in
 * the rest before anybody else sees it. */
struct cert *cert_new(const char *const *chain, size_t n, struct err *e);
struct cert *cert_ref(struct cert *c);
void cert_unref(struct cert **c);

/* "2026-11-21T10:00:00Z" */
enum { CERT_TIME_SIZE = 24 };
char *cert_time(int64_t unix_s, char out[CERT_TIME_SIZE]);
/* serial, not_before, not_after, chain_not_after, root_not_after; empty strings of a NULL
 * certificate. */
json_t *cert_dump(const struct cert *c);
