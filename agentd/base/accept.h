/* accept.h - accepts on a listening socket that somebody else made.
 *
 * Accepted fds are non-blocking and close-on-exec (grpc hangs on blocking ones, grpc-core.md 1) and
 * belong to the callback.  When the process is out of fds accepting pauses for 100 ms instead of
 * spinning.
 */
#pragma once
struct accept;
struct loop;

typedef void (*accept_cb)(void *ctx, int fd);

/* Takes the fd and makes it non-blocking. */
struct accept *accept_new(struct loop *l, int listen_fd, accept_cb accepted, void *ctx);
/* Connections of the next 100 ms wait in the backlog. */
void accept_pause(struct accept *a);
/* Closes our copy; a kept copy elsewhere goes on listening.  Allowed inside `accepted`. */
void accept_free(struct accept **a);
