/* http.h - a server on a listening fd (a thin cover over evhttp), and a client that sends one
 * request over a connected fd.
 *
 * Limits: 64 KiB of a request's body, 16 MiB of an answer's, 8 KiB of headers, 10 s without
 * progress (the client: 8 s), 256 KiB of a stream that the peer has not read.  HTTP/1.1, never
 * chunked: a stream ends with its connection.
 */
#pragma once
#include <stdbool.h>
#include <sys/types.h>

struct evbuffer;
struct http_get;
struct http_later;
struct http_request;
struct http_server;
struct loop;

/* Answers before it returns, or defers. */
typedef void (*http_handler)(void *ctx, struct http_request *req);
/* Takes the fd. */
struct http_server *http_server_new(struct loop *l, int listen_fd, http_handler h, void *ctx);
void http_server_free(struct http_server **s);

const char *http_method(const struct http_request *r);
const char *http_path(const struct http_request *r); /* raw bytes up to '?', nothing decoded */
/* Value of a query parameter, decoded; NULL if absent.  Valid until the handler returns. */
const char *http_query(struct http_request *r, const char *key);
uid_t http_peer_uid(const struct http_request *r); /* SO_PEERCRED; (uid_t)-1 if unknown */
/* Was the peer's socket made in the network namespace of the listening one?  Linux before 5.14
 * cannot tell: yes. */
bool http_peer_is_here(const struct http_request *r);
/* Empties `body`, which may be NULL. */
void http_reply(struct http_request *r, int status, const char *type, struct evbuffer *body);

/* The answer comes later; `gone` runs instead if the peer goes before it is complete.  A slot is
 * NULL when the answer was given or nobody wants it. */
void http_defer(
    struct http_request *r, struct http_later **slot, void (*gone)(void *ctx), void *ctx);
void http_later_reply(
    struct http_later **slot, int status, const char *type, struct evbuffer *body);
/* Or in parts, without an end until http_later_end().  False: dropped, the peer reads too slowly.
 */
void http_later_begin(struct http_later *a, int status, const char *type);
bool http_later_send(struct http_later *a, struct evbuffer *part); /* empties it */
void http_later_end(struct http_later **slot); /* also: the connection ends without an answer */

/* One request on a connected socket; `done` gets the status, or 0 and no body when it failed. */
typedef void (*http_done)(void *ctx, int status, struct evbuffer *body);
struct http_ask {
	int fd; /* connected; taken */
	const char *method, *target;
	/* Of the client's own in place of "Host: localhost": lines, each with its CRLF; NULL. */
	const char *headers;
	bool status_only; /* the body is not waited for, nor read */
};
void http_get(
    struct loop *l, struct http_get **slot, struct http_ask ask, http_done done, void *ctx);
/* Of an answer without an end, told right after http_get(): from a status of 200 on `part` takes
 * any bytes out of the buffer, and no silence is too long; `done` gets the rest. */
typedef void (*http_part)(void *ctx, struct evbuffer *in);
void http_follow(struct http_get *g, http_part part);
void http_get_cancel(struct http_get **g);
