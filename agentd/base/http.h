/* http.h - a server on a listening fd (a thin cover over evhttp), and a client that sends one
 * request over a connected fd.
 *
 * Limits: 64 KiB of a request's body, 16 MiB of an answer's, 8 KiB of headers, 10 s without
 * progress.  HTTP/1.1 only; the client refuses chunked answers.
 */
#pragma once
#include <sys/types.h>

struct evbuffer;
struct http_get;
struct http_request;
struct http_server;
struct loop;

typedef void (*http_handler)(void *ctx, struct http_request *req); /* answers before it returns */
/* Takes the fd. */
struct http_server *http_server_new(struct loop *l, int listen_fd, http_handler h, void *ctx);
void http_server_free(struct http_server **s);

const char *http_method(const struct http_request *r);
const char *http_path(const struct http_request *r); /* raw bytes up to '?', nothing decoded */
/* Value of a query parameter, decoded; NULL if absent.  Valid until the handler returns. */
const char *http_query(struct http_request *r, const char *key);
uid_t http_peer_uid(const struct http_request *r); /* SO_PEERCRED; (uid_t)-1 if unknown */
/* Empties `body`, which may be NULL. */
void http_reply(struct http_request *r, int status, const char *type, struct evbuffer *body);

/* One request on a connected socket; `done` gets the status, or 0 and no body when it failed. */
typedef void (*http_done)(void *ctx, int status, struct evbuffer *body);
void http_get(struct loop *l, struct http_get **slot, int connected_fd, const char *method,
    const char *target, http_done done, void *ctx); /* takes the fd */
void http_get_cancel(struct http_get **g);
