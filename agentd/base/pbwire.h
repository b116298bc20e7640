/* pbwire.h - a bounded walker over protobuf wire bytes that need not be contiguous.
 *
 * For what must be read without being decoded: the type URL of a 20 MB push is found without
 * touching its resources (grpc-core.md 3, 5).  A reader never copies, allocates or recurses; nested
 * messages are walked by a reader of their own, so depth is the caller's choice.  Groups, field
 * number 0, over-long varints and lengths beyond the end are malformed.  The bytes must outlive
 * the reader.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

struct evbuffer;

struct pbwire {
	const struct iovec *iov; /* where the next byte is ... */
	size_t at;               /* ... inside iov[0] */
	size_t left;             /* bytes of this message not read yet */
};

enum pbwire_type { PBWIRE_VARINT = 0, PBWIRE_FIXED64 = 1, PBWIRE_BYTES = 2, PBWIRE_FIXED32 = 5 };

struct pbwire_field {
	uint32_t number;
	enum pbwire_type type;
	uint64_t value;      /* of a varint or fixed field */
	struct pbwire bytes; /* reader on the payload of a PBWIRE_BYTES field */
	size_t size;         /* of the whole field on the wire, tag included */
};

void pbwire_init(struct pbwire *r, const struct iovec *iov, size_t n);
/* 1: `f` is the next field.  0: end.  -1: malformed (the reader then stays there). */
int pbwire_next(struct pbwire *r, struct pbwire_field *f);
/* 1: the only field of this number; 0: there is none; -1: several, or the message is malformed. */
int pbwire_only_field(struct pbwire msg, uint32_t number, struct pbwire_field *f);
int pbwire_only(struct pbwire msg, uint32_t number, struct pbwire *bytes); /* -1: or no bytes */
/* Copy the `left` bytes of a payload; `size` must be at least that.  Returns the count. */
size_t pbwire_copy(struct pbwire payload, void *out, size_t size);
/* Copy a payload as a C string; -1 if it does not fit, holds a NUL, or is not UTF-8. */
int pbwire_string(struct pbwire payload, char *out, size_t size);

/* Writers: append one field. */
void pbwire_put_varint(struct evbuffer *out, uint32_t number, uint64_t value);
void pbwire_put_bytes(struct evbuffer *out, uint32_t number, const void *data, size_t size);
void pbwire_put_message(
    struct evbuffer *out, uint32_t number, struct evbuffer *message); /* freed */
/* Append the next `size` bytes at a reader as they are. */
void pbwire_put_raw(struct evbuffer *out, struct pbwire from, size_t size);
