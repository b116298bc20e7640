/* h2.h - the least HTTP/2 that a gRPC client needs: blocking, one thread, a unix socket or TLS.
 *
 * Not grpc: what is measured is the other side, so this one must cost little; and a client that
 * never reads, or lives in another network namespace than its neighbour, cannot be made of grpc.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct h2;
struct h2_stream;

struct h2_events {
	void (*data)(void *ctx, const uint8_t *bytes, size_t len);
	void (*closed)(void *ctx); /* the last event; the stream is gone */
};

/* TARGET is "/unix/path" or "tls:host:port" (the certificate is not looked at); NULL: errno. */
struct h2 *h2_connect(const char *target);
void h2_free(struct h2 **h);
int h2_fd(const struct h2 *h);
struct h2_stream *h2_open(struct h2 *h, const char *method, const struct h2_events *ev, void *ctx);
/* Goes out with the next h2_turn() or h2_flush(), as the peer's windows allow. */
void h2_send(struct h2_stream *s, const void *bytes, size_t len, bool last);
bool h2_flush(struct h2 *h);
/* Writes what waits, reads once (blocks), runs events.  False: the connection is over. */
bool h2_turn(struct h2 *h);
