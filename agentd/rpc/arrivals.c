/* arrivals.c - a request with a mark goes out -> its stream is known -> DATA of that stream comes
 * in: five bytes of prefix, so many of a message, five bytes, ... -> its end, or a reset by either
 * side: forgotten.
 *
 * The mark is looked for as grpc core writes it (RFC 7541 6.2.2: a literal with a new name, not
 * Huffman's code).  Another way of writing would be a stream that is not known, which channel.c
 * notices.
 */
#include "arrivals.h"
#include "common/mem.h"
#include "frames.h"

enum { PREFIX_SIZE = 5 };

static const char before_mark[] = RPC_ARRIVALS_HEADER "\x10"; /* its length */
_Static_assert(RPC_ARRIVALS_DIGITS == 0x10, "before_mark has it");
enum { BEFORE_MARK = sizeof(before_mark) - 1 };

struct stream {
	uint32_t id;
	uint64_t mark;
	uint8_t prefix[PREFIX_SIZE];
	unsigned nprefix;
	uint32_t left; /* of the message under way */
};

struct rpc_arrivals {
	rpc_arrival_tell tell;
	void *ctx;
	struct rpc_frames in, out;
	unsigned matched; /* bytes of before_mark and the mark */
	uint64_t mark;
	bool pad_comes;   /* the next byte is the length of this frame's padding */
	uint32_t content; /* of this DATA frame, still to come */
	struct stream *streams;
	size_t nstreams, room;
};

/* --- streams --- */

static struct stream *find(struct rpc_arrivals *a, uint32_t id)
{
	for (size_t i = a->nstreams; i-- > 0;)
		if (a->streams[i].id == id)
			return &a->streams[i];
	return NULL;
}

static void open_stream(struct rpc_arrivals *a, uint32_t id)
{
	if (find(a, id))
		return;
	if (a->nstreams == a->room) {
		a->room = a->room ? 2 * a->room : 4;
		a->streams = mem_realloc(a->streams, a->room * sizeof(*a->streams));
	}
	a->streams[a->nstreams++] = (struct stream){.id = id, .mark = a->mark};
	a->tell(a->ctx, a->mark, RPC_ARRIVAL_OPENED, 0);
}

static void end_stream(struct rpc_arrivals *a, uint32_t id)
{
	struct stream *s = find(a, id);

	if (!s)
		return;
	a->tell(a->ctx, s->mark, RPC_ARRIVAL_END, 0);
	*s = a->streams[--a->nstreams];
}

/* --- out --- */

static int digit(uint8_t c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void look_for_mark(struct rpc_arrivals *a, const uint8_t *p, size_t n)
{
	for (; n > 0; n--, p++) {
		if (a->matched < BEFORE_MARK) {
			bool fits = *p == (uint8_t)before_mark[a->matched];

			a->matched = fits ? a->matched + 1 : *p == (uint8_t)before_mark[0];
			a->mark = 0;
		} else if (digit(*p) < 0) {
			a->matched = 0;
		} else {
			a->mark = a->mark << 4 | (unsigned)digit(*p);
			if (++a->matched < BEFORE_MARK + RPC_ARRIVALS_DIGITS)
				continue;
			a->matched = 0;
			open_stream(a, a->out.frame.stream);
		}
	}
}

void rpc_arrivals_out(struct rpc_arrivals *a, const uint8_t *bytes, size_t n)
{
	const struct rpc_frame *f = &a->out.frame;
	const uint8_t *piece;
	size_t size;

	while (rpc_frames_next(&a->out, &bytes, &n, &piece, &size)) {
		if (piece && (f->type == RPC_FRAME_HEADERS || f->type == RPC_FRAME_CONTINUATION))
			look_for_mark(a, piece, size);
		else if (!piece && f->type == RPC_FRAME_HEADERS)
			a->matched = 0;
		else if (!piece && f->type == RPC_FRAME_RST_STREAM)
			end_stream(a, f->stream);
	}
}

/* --- in --- */

static void begin_message(struct rpc_arrivals *a, struct stream *s)
{
	const uint8_t *p = s->prefix;

	s->nprefix = 0;
	s->left = (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
	a->tell(a->ctx, s->mark, RPC_ARRIVAL_MESSAGE, s->left);
}

static void on_content(struct rpc_arrivals *a, struct stream *s, const uint8_t *p, size_t n)
{
	while (n > 0) {
		size_t used = s->left < n ? s->left : n;

		if (used == 0) {
			s->prefix[s->nprefix++] = *p;
			used = 1;
		} else {
			s->left -= (uint32_t)used;
		}
		p += used;
		n -= used;
		if (s->nprefix == PREFIX_SIZE)
			begin_message(a, s);
	}
}

static void on_data(struct rpc_arrivals *a, const uint8_t *p, size_t n)
{
	struct stream *s = find(a, a->in.frame.stream);

	if (a->pad_comes) {
		a->pad_comes = false;
		a->content = a->content > *p ? a->content - *p : 0;
		p++;
		n--;
	}
	if (n > a->content)
		n = a->content;
	a->content -= (uint32_t)n;
	if (s)
		on_content(a, s, p, n);
}

/* Nothing more of it comes. */
static bool is_end(const struct rpc_frame *f)
{
	return f->type == RPC_FRAME_RST_STREAM ||
	       (f->type <= RPC_FRAME_HEADERS && f->flags & RPC_FLAG_END_STREAM);
}

void rpc_arrivals_in(struct rpc_arrivals *a, const uint8_t *bytes, size_t n)
{
	const struct rpc_frame *f = &a->in.frame;
	const uint8_t *piece;
	size_t size;

	while (rpc_frames_next(&a->in, &bytes, &n, &piece, &size)) {
		if (!piece && f->type == RPC_FRAME_DATA) {
			a->pad_comes = f->flags & RPC_FLAG_PADDED && f->size > 0;
			a->content = f->size - a->pad_comes;
		} else if (piece && f->type == RPC_FRAME_DATA) {
			on_data(a, piece, size);
		}
		if (a->in.left == 0 && is_end(f))
			end_stream(a, f->stream);
	}
}

/* --- life --- */

struct rpc_arrivals *rpc_arrivals_new(rpc_arrival_tell tell, void *ctx)
{
	struct rpc_arrivals *a = mem_zalloc(sizeof(*a));

	*a = (struct rpc_arrivals){.tell = tell, .ctx = ctx, .out.left = RPC_FRAMES_PREFACE};
	return a;
}

void rpc_arrivals_free(struct rpc_arrivals **arrivals)
{
	struct rpc_arrivals *a = take(*arrivals);

	if (!a)
		return;
	free(a->streams);
	free(a);
}
