/* arrivals_fuzz.c - both directions of a connection to a control plane, as they are followed.
 *
 * Input: pieces, each a byte (its highest bit: the direction; the rest: its length) and so many
 * bytes.  Holds for every input: what is told does not depend on where the bytes of a direction
 * are cut; a stream is opened before anything else is told of it, and nothing after its end.
 * SOAK: 10000000 runs
 */
#include "rpc/arrivals.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MARKS = 256 };

struct told {
	uint64_t digest;
	unsigned open[MARKS]; /* by the mark's low byte: several streams may claim one mark */
};

static void on_told(void *ctx, uint64_t mark, enum rpc_arrival what, uint32_t size)
{
	struct told *t = ctx;
	unsigned *open = &t->open[mark % MARKS];

	t->digest = t->digest * 31 + (mark ^ (uint64_t)what << 60 ^ (uint64_t)size << 20);
	if (what == RPC_ARRIVAL_OPENED)
		++*open;
	else if (!*open)
		abort();
	else if (what == RPC_ARRIVAL_END)
		--*open;
}

static void feed(struct rpc_arrivals *a, bool out, const uint8_t *bytes, size_t n)
{
	uint8_t *piece = malloc(n); /* of its own, so that ASan sees its end */

	memcpy(piece, bytes, n);
	(out ? rpc_arrivals_out : rpc_arrivals_in)(a, piece, n);
	free(piece);
}

static uint64_t follow(const uint8_t *data, size_t size, size_t cut)
{
	struct told t = {.digest = 0};
	struct rpc_arrivals *a = rpc_arrivals_new(on_told, &t);

	while (size > 1) {
		bool out = data[0] & 0x80;
		size_t n = data[0] & 0x7f;

		data++;
		size--;
		n = n < size ? n : size;
		for (size_t at = 0; at < n; at += cut)
			feed(a, out, data + at, n - at < cut ? n - at : cut);
		data += n;
		size -= n;
	}
	rpc_arrivals_free(&a);
	return t.digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t whole = follow(data, size, 128);

	for (size_t cut = 1; cut <= 7; cut += 3)
		if (follow(data, size, cut) != whole)
			abort();
	return 0;
}
