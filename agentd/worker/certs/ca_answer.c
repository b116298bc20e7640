/* ca_answer.c
 *
 * bytes of istiod -> too many? -> field by field, unknown ones skipped -> each element copied once
 * its size is known to be within the bound -> enough elements?
 *
 * Not unpacked with protobuf-c: it allocates before anybody can count, keeps unknown fields, and
 * lets a NUL cut a string (grpc-core.md 5).
 */
#include "ca_answer.h"
#include "base/pbwire.h"
#include "common/err.h"
#include "common/mem.h"
#include <string.h>

enum { CERT_CHAIN = 1 }; /* proto/istio/v1/auth/ca.proto */

static int add(struct ca_answer *a, const struct pbwire_field *f, struct err *e)
{
	auto_free char *text = NULL;
	size_t size = f->bytes.left + 1;

	if (f->type != PBWIRE_BYTES)
		return err_set(e, ERR_PROTOCOL, "malformed certificate chain");
	if (a->n == CA_ANSWER_ELEMENTS_MAX)
		return err_set(e, ERR_PROTOCOL, "certificate chain of more than %d elements",
		    CA_ANSWER_ELEMENTS_MAX);
	text = mem_zalloc(size);
	if (pbwire_string(f->bytes, text, size))
		return err_set(e, ERR_PROTOCOL, "certificate chain is not text");
	a->chain[a->n++] = take(text);
	return 0;
}

static int read_fields(struct ca_answer *a, const struct iovec *iov, size_t n, struct err *e)
{
	struct pbwire r;
	struct pbwire_field f;
	int more;

	pbwire_init(&r, iov, n);
	if (r.left > CA_ANSWER_SIZE_MAX)
		return err_set(e, ERR_PROTOCOL, "certificate chain of %zu bytes, more than %d",
		    r.left, CA_ANSWER_SIZE_MAX);
	while ((more = pbwire_next(&r, &f)) > 0)
		if (f.number == CERT_CHAIN && add(a, &f, e))
			return -1;
	if (more < 0)
		return err_set(e, ERR_PROTOCOL, "malformed answer");
	if (a->n <= 1) /* istio-agent.md 0.14 */
		return err_set(e, ERR_PROTOCOL, "invalid empty certificate chain");
	return 0;
}

int ca_answer_read(struct ca_answer *a, const struct iovec *iov, size_t n, struct err *e)
{
	memset(a, 0, sizeof(*a));
	if (!read_fields(a, iov, n, e))
		return 0;
	ca_answer_clear(a);
	return -1;
}

void ca_answer_clear(struct ca_answer *a)
{
	while (a->n)
		free(a->chain[--a->n]);
}
