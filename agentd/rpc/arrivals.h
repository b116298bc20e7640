/* arrivals.h - which message begins on which stream of a client's connection, from its bytes.
 *
 * Both directions are HTTP/2 without TLS.  A stream is known by a mark: the value of a header,
 * RPC_ARRIVALS_HEADER, in the request that opens it.  Streams without one are left alone.  Bytes
 * may come in any pieces; none are kept but a message's prefix (its size).  Pure.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>

#define RPC_ARRIVALS_HEADER "x-agentd-stream"
enum { RPC_ARRIVALS_DIGITS = 16 }; /* of a mark, hexadecimal */

enum rpc_arrival {
	RPC_ARRIVAL_OPENED,  /* the request was written: what comes will be told */
	RPC_ARRIVAL_MESSAGE, /* one of `size` bytes begins */
	RPC_ARRIVAL_END,     /* the server is at the end of the stream, or reset it; the last */
};
typedef void (*rpc_arrival_tell)(void *ctx, uint64_t mark, enum rpc_arrival what, uint32_t size);

struct rpc_arrivals; /* of one connection */
struct rpc_arrivals *rpc_arrivals_new(rpc_arrival_tell tell, void *ctx);
void rpc_arrivals_free(struct rpc_arrivals **a);
void rpc_arrivals_out(struct rpc_arrivals *a, const uint8_t *bytes, size_t n); /* of the client */
void rpc_arrivals_in(struct rpc_arrivals *a, const uint8_t *bytes, size_t n);  /* of the server */
