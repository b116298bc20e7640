/* msg.c - a received message: grpc's byte buffer and an iovec per slice, no byte copied. */
#include "common/mem.h"
#include "rpc_internal.h"

#include <grpc/byte_buffer_reader.h>

struct rpc_msg {
	grpc_byte_buffer *bytes;
	struct iovec *iov;
	size_t n, size;
};

struct rpc_msg *rpc_msg_new(grpc_byte_buffer *bytes)
{
	struct rpc_msg *m = mem_zalloc(sizeof(*m));
	grpc_byte_buffer_reader reader;
	grpc_slice *slice;
	size_t room = 0;

	m->bytes = bytes;
	/* Compression is refused at both ends (server.c, channel.c), so the slices that the
	 * reader lends are those of the buffer itself and live as long as it. */
	grpc_byte_buffer_reader_init(&reader, bytes);
	while (grpc_byte_buffer_reader_peek(&reader, &slice)) {
		if (m->n == room) {
			room = room ? 2 * room : 4;
			m->iov = mem_realloc(m->iov, room * sizeof(*m->iov));
		}
		m->iov[m->n++] = (struct iovec){
		    .iov_base = GRPC_SLICE_START_PTR(*slice), .iov_len = GRPC_SLICE_LENGTH(*slice)};
		m->size += GRPC_SLICE_LENGTH(*slice);
	}
	grpc_byte_buffer_reader_destroy(&reader);
	return m;
}

void rpc_msg_free(struct rpc_msg **mp)
{
	struct rpc_msg *m = take(*mp);

	if (!m)
		return;
	grpc_byte_buffer_destroy(m->bytes);
	free(m->iov);
	free(m);
}

grpc_byte_buffer *rpc_msg_bytes(const struct rpc_msg *m)
{
	return m->bytes;
}

const struct iovec *rpc_msg_iov(const struct rpc_msg *m, size_t *n)
{
	*n = m->n;
	return m->iov;
}

size_t rpc_msg_size(const struct rpc_msg *m)
{
	return m->size;
}
