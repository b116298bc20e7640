/* pbwire.c - see pbwire.h.
 *
 * A reader is a position in somebody else's iovecs and a count of bytes left; every step works on a
 * copy of it that is stored back only when the whole field was good, so a malformed field leaves
 * the reader in front of it.  Bytes are looked at one by one only in tags, varints and fixed
 * fields; a payload is passed over by adding up iovec lengths, which is what makes finding the type
 * URL of a 20 MB push cheap (grpc-core.md 3).
 *
 * Accepted exactly what Go's and C++'s parsers accept or less, so that no peer behind us can see a
 * field that we did not: a varint has at most 10 bytes and 64 bits, padding zeroes are allowed.
 */
#include "pbwire.h"

#include <event2/buffer.h>
#include <string.h>

enum { VARINT_MAX = 10, FIELD_MAX = (1 << 29) - 1 };

void pbwire_init(struct pbwire *r, const struct iovec *iov, size_t n)
{
	*r = (struct pbwire){.iov = iov};
	for (size_t i = 0; i < n; i++)
		r->left += iov[i].iov_len;
}

/* The bytes at the reader up to the end of the iovec, at least one; `left` must not be 0. */
static const uint8_t *here(struct pbwire *r, size_t *n)
{
	while (r->at == r->iov->iov_len) {
		r->iov++;
		r->at = 0;
	}
	*n = r->iov->iov_len - r->at;
	return (const uint8_t *)r->iov->iov_base + r->at;
}

/* Go on by `size` bytes, copying them if `out` is there; the caller knows that they are there. */
static void advance(struct pbwire *r, uint8_t *out, size_t size)
{
	while (size > 0) {
		size_t n;
		const uint8_t *p = here(r, &n);

		if (n > size)
			n = size;
		if (out) {
			memcpy(out, p, n);
			out += n;
		}
		r->at += n;
		r->left -= n;
		size -= n;
	}
}

/* A walk over a push does little else. */
static uint8_t take_byte(struct pbwire *r)
{
	size_t n;
	const uint8_t *p = here(r, &n);

	r->at++;
	r->left--;
	return *p;
}

static int read_varint(struct pbwire *r, uint64_t *value)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < VARINT_MAX && r->left > 0; i++) {
		uint8_t byte = take_byte(r);

		if (i == VARINT_MAX - 1 && byte > 1)
			return -1;
		v |= (uint64_t)(byte & 0x7f) << (7 * i);
		if (!(byte & 0x80)) {
			*value = v;
			return 0;
		}
	}
	return -1;
}

static int read_fixed(struct pbwire *r, unsigned size, uint64_t *value)
{
	uint8_t bytes[8];

	if (r->left < size)
		return -1;
	advance(r, bytes, size);
	*value = 0;
	for (unsigned i = 0; i < size; i++)
		*value |= (uint64_t)bytes[i] << (8 * i);
	return 0;
}

static int read_payload(struct pbwire *r, struct pbwire *payload)
{
	uint64_t len;

	if (read_varint(r, &len) || len > r->left)
		return -1;
	*payload = *r;
	payload->left = len;
	advance(r, NULL, len);
	return 0;
}

static int read_value(struct pbwire *r, struct pbwire_field *f)
{
	switch (f->type) {
	case PBWIRE_VARINT:
		return read_varint(r, &f->value);
	case PBWIRE_FIXED64:
		return read_fixed(r, 8, &f->value);
	case PBWIRE_BYTES:
		return read_payload(r, &f->bytes);
	case PBWIRE_FIXED32:
		return read_fixed(r, 4, &f->value);
	default:
		return -1; /* groups, and the two types that do not exist */
	}
}

int pbwire_next(struct pbwire *r, struct pbwire_field *f)
{
	struct pbwire at = *r;
	uint64_t tag;

	if (r->left == 0)
		return 0;
	if (read_varint(&at, &tag) || tag >> 3 == 0 || tag >> 3 > FIELD_MAX)
		return -1;
	*f = (struct pbwire_field){.number = (uint32_t)(tag >> 3), .type = tag & 7};
	if (read_value(&at, f))
		return -1;
	f->size = r->left - at.left;
	*r = at;
	return 1;
}

int pbwire_only_field(struct pbwire msg, uint32_t number, struct pbwire_field *f)
{
	struct pbwire_field one;
	int more, found = 0;

	while ((more = pbwire_next(&msg, &one)) > 0)
		if (one.number == number) {
			*f = one;
			found++;
		}
	return more < 0 || found > 1 ? -1 : found;
}

int pbwire_only(struct pbwire msg, uint32_t number, struct pbwire *bytes)
{
	struct pbwire_field f;
	int found = pbwire_only_field(msg, number, &f);

	if (found <= 0)
		return found;
	*bytes = f.bytes;
	return f.type == PBWIRE_BYTES ? 1 : -1;
}

size_t pbwire_copy(struct pbwire payload, void *out, size_t size)
{
	size_t n = payload.left < size ? payload.left : size;

	advance(&payload, out, n);
	return n;
}

/* Length of the UTF-8 sequence at `s`, 0 if it is none: no overlong form, no surrogate, no NUL. The
 * string ends with a NUL, which no sequence can pass. */
static size_t utf8_sequence(const uint8_t *s)
{
	static const uint32_t smallest[] = {0, 1, 0x80, 0x800, 0x10000};
	size_t len = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
	uint32_t c = len == 1 ? s[0] : s[0] & (0x7fU >> len);

	if (len == 0 || s[0] >= 0xf8)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		c = c << 6 | (s[i] & 0x3f);
	}
	if (c < smallest[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
		return 0;
	return len;
}

int pbwire_string(struct pbwire payload, char *out, size_t size)
{
	size_t len = payload.left;

	if (len >= size)
		return -1;
	pbwire_copy(payload, out, len);
	out[len] = '\0';
	for (size_t i = 0; i < len;) {
		size_t n = utf8_sequence((const uint8_t *)out + i);

		if (n == 0)
			return -1;
		i += n;
	}
	return 0;
}

static void put_raw_varint(struct evbuffer *out, uint64_t v)
{
	uint8_t bytes[VARINT_MAX];
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		bytes[n++] = (uint8_t)(v | 0x80);
	bytes[n++] = (uint8_t)v;
	evbuffer_add(out, bytes, n);
}

void pbwire_put_varint(struct evbuffer *out, uint32_t number, uint64_t value)
{
	put_raw_varint(out, (uint64_t)number << 3 | PBWIRE_VARINT);
	put_raw_varint(out, value);
}

void pbwire_put_bytes(struct evbuffer *out, uint32_t number, const void *data, size_t size)
{
	put_raw_varint(out, (uint64_t)number << 3 | PBWIRE_BYTES);
	put_raw_varint(out, size);
	evbuffer_add(out, data, size);
}

void pbwire_put_message(struct evbuffer *out, uint32_t number, struct evbuffer *message)
{
	put_raw_varint(out, (uint64_t)number << 3 | PBWIRE_BYTES);
	put_raw_varint(out, evbuffer_get_length(message));
	evbuffer_add_buffer(out, message);
	evbuffer_free(message);
}

void pbwire_put_raw(struct evbuffer *out, struct pbwire from, size_t size)
{
	struct evbuffer_iovec room;

	if (!size)
		return;
	evbuffer_reserve_space(out, (ev_ssize_t)size, &room, 1);
	from.left = size;
	room.iov_len = pbwire_copy(from, room.iov_base, size);
	evbuffer_commit_space(out, &room, 1);
}
