/* tap.h - what channels receive, seen between TLS and grpc.
 *
 * grpc core 1.51 does not say that a message has begun to come unless it was asked to read one, and
 * once it was asked it opens the window for all of it, on every stream at a time.  So we look when
 * grpc decrypts: rpc_tap_read() and rpc_tap_write() take the place of OpenSSL's SSL_read() and
 * SSL_write() (the Makefile says how, TAP).  No byte is changed or kept.  Whatever thread of
 * grpc's calls; news are for the loop.
 */
#pragma once
#include "arrivals.h"

struct rpc_tap_news {
	uint64_t mark;
	enum rpc_arrival what;
	uint32_t size; /* of a message */
	struct rpc_tap_news *next;
};

/* Written to when there are news; -1: nobody listens, and none are kept. */
void rpc_tap_tell(int eventfd);
/* All since the last time, oldest first; the caller frees each.  NULL: none. */
struct rpc_tap_news *rpc_tap_take(void);
