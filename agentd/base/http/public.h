/* public.h - pages for anybody on the network: a GET or HEAD, an answer, the end of the connection.
 *
 * Whoever asks is a stranger, so nothing is parsed but the first line, and everything has its end:
 * 32 connections (one more costs the oldest), 8 KiB of a request and 1 MiB behind it, 10 s from the
 * first packet to the last.  libevent's evhttp (base/http/http.h) counts no connections, and
 * gives 10 s for each byte.
 */
#pragma once
struct evbuffer;
struct loop;
struct http_public;

enum {
	PAGE_CONNECTIONS_MAX = 32,
	PAGE_REQUEST_MAX = 8 * 1024,
	PAGE_BEHIND_MAX = 1 << 20,
	PAGE_SECONDS_MAX = 10
};

struct page {
	int status;       /* 200, 404 or 503 */
	const char *type; /* a literal */
	struct evbuffer *body;
};
/* Fills in `page`, which is 404 and empty text.  `path`: raw bytes up to '?', nothing decoded
 * (security-rules.md 9). */
typedef void (*page_make)(void *ctx, const char *path, struct page *page);

/* Takes the fd. */
struct http_public *http_public_new(struct loop *l, int listen_fd, page_make make, void *ctx);
/* Accepted peers are answered; others wait for the next owner of the listener. */
void http_public_stop_accepting(struct http_public *s);
void http_public_free(struct http_public **s);
