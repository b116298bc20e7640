/* pbwire_fuzz.c - the walker over hostile bytes, cut into iovecs where the input says.
 *
 * Holds for every input: the result does not depend on the cuts, sizes of fields add up, and
 * nothing outside of the input is read (ASan: every piece is a block of its own).
 */
#include "base/pbwire.h"

#include <stdlib.h>
#include <string.h>

enum { DEPTH_MAX = 8, PIECES_MAX = 8 };

/* A digest of all that a walk tells, to the given depth. */
static uint64_t walk(struct pbwire r, unsigned depth)
{
	struct pbwire_field f;
	uint64_t sum = 0;
	size_t before = r.left;
	int rc;

	while ((rc = pbwire_next(&r, &f)) == 1) {
		char text[32] = "";

		if (f.size == 0 || f.size != before - r.left)
			abort();
		before = r.left;
		sum = sum * 31 + f.number * 8 + f.type + f.value + f.size;
		if (f.type != PBWIRE_BYTES)
			continue;
		sum = sum * 31 + (uint64_t)(pbwire_string(f.bytes, text, sizeof(text)) + 2);
		for (size_t i = 0; i < pbwire_copy(f.bytes, text, sizeof(text)); i++)
			sum = sum * 31 + (unsigned char)text[i];
		if (depth < DEPTH_MAX)
			sum = sum * 31 + walk(f.bytes, depth + 1);
	}
	if (rc == -1 && (pbwire_next(&r, &f) != -1 || r.left != before))
		abort();
	return sum * 31 + (uint64_t)(rc + 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct iovec whole = {.iov_base = (void *)data, .iov_len = size}, pieces[PIECES_MAX];
	struct pbwire a, b;
	size_t at = 0;

	for (unsigned i = 0; i < PIECES_MAX; i++) {
		size_t n = i < size ? data[i] % 16 : 0;

		if (i == PIECES_MAX - 1 || n > size - at)
			n = size - at;
		pieces[i].iov_len = n;
		pieces[i].iov_base = malloc(n);
		if (n)
			memcpy(pieces[i].iov_base, data + at, n);
		at += n;
	}
	pbwire_init(&a, &whole, 1);
	pbwire_init(&b, pieces, PIECES_MAX);
	if (walk(a, 0) != walk(b, 0))
		abort();
	for (unsigned i = 0; i < PIECES_MAX; i++)
		free(pieces[i].iov_base);
	return 0;
}
