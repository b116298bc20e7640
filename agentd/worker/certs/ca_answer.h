/* ca_answer.h - the wire form of an IstioCertificateResponse, read within bounds.
 *
 * The elements are strings (UTF-8, no NUL), not yet certificates: x509_check_chain looks at those.
 */
#pragma once
#include <stddef.h>
#include <sys/uio.h>

enum { CA_ANSWER_ELEMENTS_MAX = 64, CA_ANSWER_SIZE_MAX = 256 * 1024 };

struct err;

struct ca_answer {
	char *chain[CA_ANSWER_ELEMENTS_MAX]; /* leaf, intermediates, last the roots */
	size_t n;                            /* at least 2 */
};

/* The bytes may come in pieces.  0: clear `a` with ca_answer_clear(); -1: nothing to clear. */
int ca_answer_read(struct ca_answer *a, const struct iovec *iov, size_t n, struct err *e);
void ca_answer_clear(struct ca_answer *a);
