/* server.h - HTTPS for API servers: evhttp over TLS 1.2 or newer, with the limits that evhttp lacks
 * (connections.h).
 *
 * POST /inject goes to the handler; GET or HEAD of /healthz (always 200), /readyz and /metrics are
 * answered here.  An API server repeats no POST after a connection error, but one after a 503 with
 * Retry-After (injection.md 1).  So what cannot be served yet gets that answer, and no connection
 * is closed between requests before 120 s.
 *
 * Limits: 2 MiB of a body (an API server stores 1.5), 16 KiB of headers; what connections.h says.
 * All is on the loop, but the handler of a body of more than 16 KiB (background.h).
 */
#pragma once
#include "base/loop.h"
#include <stddef.h>
#include <stdint.h>

struct connections_limits;
struct err;
struct evbuffer;
struct server;

enum { SERVER_BODY_MAX = 2 << 20, SERVER_HEADERS_MAX = 16 << 10 };
/* What of a body is handled at once: ordinary pods are smaller, and what takes long is larger. */
enum { SERVER_AT_ONCE_MAX = 16 << 10 };
/* From SIGTERM to the end: until each API server has learned that the endpoint is gone. */
enum { SERVER_STOP_MS = 15 * 1000 };

/* What answers a POST.  Between begin() and end(), which run on the loop, comes one handle(), which
 * may run on the thread while other requests are handled: it uses what begin() gave, and changes
 * nothing that is shared. */
struct server_handler {
	void *(*begin)(void *ctx);
	/* `body` is NUL-terminated, and not empty.  With status 200 `out` is JSON; with any other
	 * one a line of ASCII, which is sent as Kubernetes' Status. */
	int (*handle)(void *held, const char *body, size_t len, struct evbuffer *out);
	void (*end)(void *ctx, void *held); /* also of a client that is gone */
	void *ctx;
};

/* Takes the fd, a listening one.  It is not ready, and has no certificate: every handshake fails.
 * `limits`: &connections_usual. */
struct server *server_new(struct loop *l, int listen_fd, const struct connections_limits *limits,
    const struct server_handler *h);
/* Ends all connections at once; stopped() does not come any more. */
void server_free(struct server **s);

/* PEM: the leaf and its intermediates, 10 certificates at most, and the leaf's key without a
 * passphrase.  Copied.  New connections have it at once, those that are there keep theirs.  -1: it
 * is not one pair, or not valid now, and what was there stays in force.
 * A pair whose leaf expires makes the server unready at that second, until the next one is set. */
int server_certificate_set(
    struct server *s, const char *chain_pem, const char *key_pem, struct err *e);
/* From now on POST /inject is for clients whose certificate is of one of these CAs (PEM, copied);
 * others get 403.  Connections that are there keep their client.  -1: there is no CA in it, and
 * what was there stays in force. */
int server_clients_set(struct server *s, const char *cas_pem, struct err *e);

/* NULL: ready, as far as the caller knows; else why not, copied.  Having no certificate that is
 * valid, and the end, are the server's own reasons and come on top.  The start: "it is starting".
 */
void server_ready_set(struct server *s, const char *why);
/* When a client does not trust the certificate: connections_on_distrust().  NULL: not any more. */
void server_on_distrust(struct server *s, loop_cb told, void *ctx);
/* NULL: it is ready, and /readyz says so. */
const char *server_unready(const struct server *s);

/* The end: unready at once; for `ms` (SERVER_STOP_MS) every request is still answered, with
 * "Connection: close"; then nobody is accepted, and what is under way gets its answer, within its
 * time (connections.h); then `stopped` runs, never inside this call. */
void server_stop(struct server *s, int64_t ms, loop_cb stopped, void *ctx);
