/* frames_fuzz.c - HTTP/2 frames and their header blocks, as the guard follows them.
 *
 * Holds for every input: what is found does not depend on where the bytes are cut, no byte is taken
 * twice, and a block has as many fields as one who reads it in one go finds.
 * SOAK: 10000000 runs
 */
#include "rpc/frames.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE_MAX = 7 };

struct found {
	uint64_t digest;
	bool wrong;
};

static void mix(struct found *f, uint64_t value)
{
	f->digest = f->digest * 31 + value;
}

static void take(
    struct found *f, struct rpc_frames *w, struct rpc_block *b, const uint8_t *bytes, size_t n)
{
	const uint8_t *piece;
	size_t size;

	while (!f->wrong && rpc_frames_next(w, &bytes, &n, &piece, &size)) {
		if (!piece) {
			mix(f, w->frame.size ^ (uint64_t)w->frame.stream << 24 ^ w->frame.type);
			f->wrong = !rpc_block_frame(b, &w->frame);
		}
		if (f->wrong || !b->stream || !(piece || w->left == 0))
			continue;
		f->wrong = !rpc_block_bytes(b, piece, size) ||
			   (w->left == 0 && !rpc_block_frame_end(b, &w->frame));
	}
	if (!f->wrong && n != 0)
		abort();
}

static uint64_t walk(const uint8_t *data, size_t size, size_t cut)
{
	struct rpc_frames w = {.left = size ? data[0] % 32 : 0};
	struct rpc_block b = {0};
	struct found f = {0};

	for (size_t at = 0; at < size && !f.wrong;) {
		size_t n = size - at < cut ? size - at : cut;
		uint8_t *block = malloc(n); /* of its own, so that ASan sees its end */

		memcpy(block, data + at, n);
		take(&f, &w, &b, block, n);
		free(block);
		at += n;
	}
	mix(&f, f.wrong);
	if (!f.wrong) {
		mix(&f, b.fields);
		mix(&f, b.bytes);
		mix(&f, w.left);
	}
	return f.digest;
}

/* --- a block in one go --- */

struct reader {
	const uint8_t *at, *end;
};

static bool integer(struct reader *r, unsigned bits, uint32_t *value)
{
	uint32_t mask = (1U << bits) - 1;

	if (r->at == r->end)
		return false;
	*value = *r->at++ & mask;
	if (*value != mask)
		return true;
	for (unsigned shift = 0; shift <= 21; shift += 7) {
		if (r->at == r->end)
			return false;
		*value += (uint32_t)(*r->at & 127) << shift;
		if (!(*r->at++ & 128))
			return true;
	}
	return false;
}

static bool string(struct reader *r)
{
	uint32_t size;

	if (!integer(r, 7, &size) || size > (size_t)(r->end - r->at))
		return false;
	r->at += size;
	return true;
}

static bool field(struct reader *r)
{
	uint8_t first = *r->at;
	uint32_t index;

	if (first & 0x80)
		return integer(r, 7, &index);
	if ((first & 0xe0) == 0x20)
		return integer(r, 5, &index);
	if (!integer(r, first & 0x40 ? 6 : 4, &index))
		return false;
	return (index != 0 || string(r)) && string(r);
}

static void compare_block(const uint8_t *data, size_t size)
{
	const struct rpc_frame f = {
	    .type = RPC_FRAME_HEADERS, .flags = RPC_FLAG_END_HEADERS, .stream = 1};
	struct rpc_block b = {0};
	struct reader r = {data, data + size};
	uint32_t fields = 0;
	bool whole = true;

	while (whole && r.at < r.end) {
		whole = field(&r);
		fields++;
	}
	bool ours = rpc_block_frame(&b, &f) && rpc_block_bytes(&b, data, size) &&
		    rpc_block_frame_end(&b, &f);

	if (ours != whole || (whole && b.fields != fields))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t whole = walk(data, size, size ? size : 1);

	for (size_t cut = 1; cut <= PIECE_MAX; cut += 3)
		if (walk(data, size, cut) != whole)
			abort();
	compare_block(data, size);
	return 0;
}
