/* ca_response_fuzz.c - any bytes as istiod's answer, cut into any pieces.
 *
 * protobuf-c, which allocates before it counts, is the judge: what we both accept must have the
 * same elements.  (It accepts more: NULs, other text, too many.)
 */
#include "common/err.h"
#include "istio/v1/auth/ca.pb-c.h"
#include "worker/certs/ca_answer.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { PIECES = 4 };

static void must(int ok)
{
	if (!ok)
		abort();
}

/* The same message, unpacked by somebody else. */
static void compare(const struct ca_answer *a, const uint8_t *data, size_t size)
{
	Istio__V1__Auth__IstioCertificateResponse *r =
	    istio__v1__auth__istio_certificate_response__unpack(NULL, size, data);

	if (!r) /* it refuses lengths that are padded to more than 5 bytes; Go takes them, and so do
		   we */
		return;
	must(r->n_cert_chain == a->n);
	for (size_t i = 0; i < a->n; i++)
		must(!strcmp(r->cert_chain[i], a->chain[i]));
	istio__v1__auth__istio_certificate_response__free_unpacked(r, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct iovec iov[PIECES];
	struct ca_answer a;
	struct err e = {0};
	size_t at = 0, step;

	if (!size)
		return 0;
	step = data[0]; /* the first byte says where the rest is cut */
	data++;
	size--;
	for (int i = 0; i < PIECES; i++) {
		size_t n = i == PIECES - 1 || at + step > size ? size - at : step;

		/* Blocks of their own, so that reading over an end is seen. */
		iov[i].iov_base = malloc(n ? n : 1);
		iov[i].iov_len = n;
		must(iov[i].iov_base != NULL);
		memcpy(iov[i].iov_base, data + at, n);
		at += n;
	}
	if (!ca_answer_read(&a, iov, PIECES, &e)) {
		must(a.n >= 2 && a.n <= CA_ANSWER_ELEMENTS_MAX && size <= CA_ANSWER_SIZE_MAX);
		compare(&a, data, size);
		ca_answer_clear(&a);
	} else {
		must(e.code && *e.msg);
	}
	must(a.n == 0);
	for (int i = 0; i < PIECES; i++)
		free(iov[i].iov_base);
	return 0;
}
