/* frames.h - one direction of an HTTP/2 connection, as its bytes go by: frames, and header blocks.
 *
 * Pure, and nothing is kept but a place: bytes may come in any pieces.  A header block (HEADERS and
 * its CONTINUATIONs) is walked from field to field, since one byte can name a field of 4 KB and
 * grpc makes some 250 bytes of the shortest (RFC 7541: no value is decoded, no table kept).
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RPC_FRAMES_PREFACE = 24, RPC_FRAMES_HEAD = 9 };
enum {
	RPC_FRAME_DATA = 0,
	RPC_FRAME_HEADERS = 1,
	RPC_FRAME_RST_STREAM = 3,
	RPC_FRAME_WINDOW_UPDATE = 8,
	RPC_FRAME_CONTINUATION = 9,
};
enum {
	RPC_FLAG_END_STREAM = 1,
	RPC_FLAG_END_HEADERS = 4,
	RPC_FLAG_PADDED = 8,
	RPC_FLAG_PRIORITY = 32,
};

struct rpc_frame {
	uint32_t size, stream;
	uint8_t type, flags;
};

/* Embed it zeroed, but for `left`: a client's direction begins with the preface. */
struct rpc_frames {
	uint32_t left; /* bytes of the frame that have not come */
	struct rpc_frame frame;
	uint8_t head[RPC_FRAMES_HEAD];
	unsigned nhead;
};
/* Takes bytes from the front.  True: a frame begins, or `*piece` of its payload is there (NULL, 0:
 * it begins), and is `w->frame`'s.  False: all bytes are taken. */
bool rpc_frames_next(
    struct rpc_frames *w, const uint8_t **bytes, size_t *n, const uint8_t **piece, size_t *npiece);

/* A header block under way.  Embed it zeroed. */
struct rpc_block {
	uint32_t stream;        /* 0: none is */
	uint32_t bytes, fields; /* so far */
	/* The place in a field. */
	uint32_t value;    /* of an integer, or bytes of a string to come */
	uint8_t at, shift; /* which part; how far an integer is */
	uint8_t strings;   /* to come */
	uint8_t priority;  /* bytes of it to come */
};
/* False: no client that we know sends this (padded, interleaved, an integer without end), and grpc
 * might read it otherwise. */
bool rpc_block_frame(struct rpc_block *b, const struct rpc_frame *f); /* of any kind: it begins */
bool rpc_block_bytes(struct rpc_block *b, const uint8_t *bytes, size_t n);
/* The frame's payload is there: false: the block ends inside of a field. */
bool rpc_block_frame_end(struct rpc_block *b, const struct rpc_frame *f);
