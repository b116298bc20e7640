/* frames.c - see frames.h.
 *
 * head (9 bytes) -> payload, in pieces -> head.  Of a block: a field begins with an integer whose
 * upper bits say its kind: an index alone, the size of the table, or an index (0: a name) and a
 * value; a string is an integer and so many bytes (RFC 7541 6).
 */
#include "frames.h"

enum { PRIORITY_SIZE = 5, SHIFT_MAX = 21 };
enum { FIELD, INDEX, STRING, LENGTH, TEXT }; /* what the next byte is part of */

bool rpc_frames_next(
    struct rpc_frames *w, const uint8_t **bytes, size_t *n, const uint8_t **piece, size_t *npiece)
{
	*piece = NULL;
	*npiece = 0;
	if (*n > 0 && w->left > 0) {
		*piece = *bytes;
		*npiece = w->left < *n ? w->left : *n;
		w->left -= (uint32_t)*npiece;
		*bytes += *npiece;
		*n -= *npiece;
		return true;
	}
	while (*n > 0) {
		w->head[w->nhead++] = **bytes;
		++*bytes;
		--*n;
		if (w->nhead < RPC_FRAMES_HEAD)
			continue;
		const uint8_t *h = w->head;

		w->nhead = 0;
		w->frame = (struct rpc_frame){
		    .size = (uint32_t)h[0] << 16 | (uint32_t)h[1] << 8 | h[2],
		    .type = h[3],
		    .flags = h[4],
		    .stream = (uint32_t)(h[5] & 127) << 24 | (uint32_t)h[6] << 16 |
			      (uint32_t)h[7] << 8 | h[8],
		};
		w->left = w->frame.size;
		return true;
	}
	return false;
}

/* --- a header block --- */

bool rpc_block_frame(struct rpc_block *b, const struct rpc_frame *f)
{
	bool begins = f->type == RPC_FRAME_HEADERS, goes_on = f->type == RPC_FRAME_CONTINUATION;

	if (b->stream)
		return goes_on && f->stream == b->stream && !(f->flags & ~RPC_FLAG_END_HEADERS);
	if (!begins)
		return !goes_on;
	if (f->stream == 0 || f->flags & RPC_FLAG_PADDED)
		return false;
	*b = (struct rpc_block){
	    .stream = f->stream, .priority = f->flags & RPC_FLAG_PRIORITY ? PRIORITY_SIZE : 0};
	return true;
}

bool rpc_block_frame_end(struct rpc_block *b, const struct rpc_frame *f)
{
	bool whole = b->at == FIELD && b->priority == 0;

	if (!(f->flags & RPC_FLAG_END_HEADERS))
		return b->priority == 0; /* it is the first frame's */
	b->stream = 0;
	return whole;
}

static void integer_is_there(struct rpc_block *b)
{
	if (b->at == INDEX) { /* of a literal: 0 is followed by a name */
		if (b->strings && b->value == 0)
			b->strings = 2;
		b->at = b->strings ? STRING : FIELD;
		return;
	}
	b->strings--;
	b->at = b->value ? TEXT : b->strings ? STRING : FIELD;
}

static void begin_integer(struct rpc_block *b, uint8_t byte, uint8_t mask, uint8_t at)
{
	b->value = byte & mask;
	b->at = at;
	b->shift = 0;
	if (b->value != mask)
		integer_is_there(b);
}

static void begin_field(struct rpc_block *b, uint8_t byte)
{
	b->fields++;
	b->strings = 0;
	if (byte & 0x80) {
		begin_integer(b, byte, 0x7f, INDEX);
	} else if (byte & 0x40) {
		b->strings = 1;
		begin_integer(b, byte, 0x3f, INDEX);
	} else if (byte & 0x20) {
		begin_integer(b, byte, 0x1f, INDEX); /* the table's size */
	} else {
		b->strings = 1;
		begin_integer(b, byte, 0x0f, INDEX);
	}
}

static bool more_of_integer(struct rpc_block *b, uint8_t byte)
{
	if (b->shift > SHIFT_MAX)
		return false;
	b->value += (uint32_t)(byte & 0x7f) << b->shift;
	b->shift += 7;
	if (!(byte & 0x80))
		integer_is_there(b);
	return true;
}

static bool take_byte(struct rpc_block *b, uint8_t byte)
{
	switch (b->at) {
	case FIELD:
		begin_field(b, byte);
		return true;
	case STRING:
		begin_integer(b, byte, 0x7f, LENGTH);
		return true;
	case INDEX:
	case LENGTH:
		return more_of_integer(b, byte);
	default:
		if (--b->value == 0)
			b->at = b->strings ? STRING : FIELD;
		return true;
	}
}

bool rpc_block_bytes(struct rpc_block *b, const uint8_t *bytes, size_t n)
{
	b->bytes += (uint32_t)n;
	for (; n > 0; n--, bytes++) {
		if (b->priority)
			b->priority--;
		else if (!take_byte(b, *bytes))
			return false;
	}
	return true;
}
