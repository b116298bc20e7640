/* connections.h - the TLS connections of a server, and the limits that evhttp has not: how many,
 * how long each step takes as a whole, how many bytes wait in all of them together.
 *
 * evhttp counts no connections and gives its timeout to each byte, so a client that sends a byte a
 * minute would stay for ever.  Here each step has its end:
 *
 *   handshake -> between requests -> request, from its first byte until it is handled -> answer,
 * until it is written -> between requests
 *
 * One connection too many, or too many bytes, ends one of the peer address that has the most of
 * them: an API server has few, and a stranger that takes all takes them from itself.  Of that
 * peer's connections one ends that waits for the rest of a request, before one with an answer.
 * evhttp owns a connection, and frees it; here it is only known, from connections_open() to the
 * moment that OpenSSL frees its SSL.
 */
#pragma once
#include "base/loop.h"
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <stddef.h>

struct bufferevent;
struct connections;

struct connections_limits {
	unsigned connections;
	size_t bytes; /* of requests, until they are answered, and of answers, until they are
			 written */
	int64_t handshake_ms, request_ms, answer_ms, idle_ms;
};
/* 1,000; 32 MiB; 10 s each; 180 s: API servers keep an idle connection for 90 s, and what closes
 * under their request fails (injection.md 1). */
extern const struct connections_limits connections_usual;

struct connections *connections_new(struct loop *l, const struct connections_limits *limits);
/* Those that are there are forgotten, not ended: evhttp_free() first. */
void connections_free(struct connections **c);

/* For evhttp_set_bevcb(): a connection whose descriptor comes later. */
struct bufferevent *connections_open(struct connections *c, SSL_CTX *tls);
/* Right before the answer is handed to evhttp. */
void connections_answer(struct connections *c, struct bufferevent *bev);

/* An IPv4 one is mapped. */
struct in6_addr connections_peer(struct bufferevent *bev);

/* `told` runs, inside a callback of OpenSSL, when a client ends a handshake because it does not
 * trust the certificate, or says so. */
void connections_on_distrust(struct connections *c, loop_cb told, void *ctx);

/* Those between requests end now, the others with their answer; then `done` runs, never inside this
 * call. */
void connections_end(struct connections *c, loop_cb done, void *ctx);
