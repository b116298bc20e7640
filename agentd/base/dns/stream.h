/* stream.h - DNS messages over one TCP connection, either side of it: two bytes of length, then
 * the message.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct dns_stream;
struct loop;

struct dns_stream_events {
	/* `data` is valid during the call, and may be changed. */
	void (*message)(void *ctx, uint8_t *data, size_t size);
	/* The other end is gone, or does not read its queue (DNS_STREAM_QUEUE_MAX). */
	void (*closed)(void *ctx);
};
enum { DNS_STREAM_QUEUE_MAX = 1 << 18 };

/* Takes `fd`, which does not block; it may be connecting still.  The stream may be freed in its
 * events. */
struct dns_stream *dns_stream_new(
    struct loop *l, int fd, const struct dns_stream_events *ev, void *ctx);
void dns_stream_free(struct dns_stream **s);
/* `size` is at most 65535.  Never calls back from inside. */
void dns_stream_send(struct dns_stream *s, const uint8_t *data, size_t size);
/* Messages are read again after so long. */
void dns_stream_hold(struct dns_stream *s, int64_t ms);
