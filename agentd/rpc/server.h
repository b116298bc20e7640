/* server.h - the server side: one server per pod, without a port, fed with accepted fds. */
#pragma once
#include "guard.h"
#include "rpc.h"
#include <sys/types.h>

struct rpc_server;

/* A new call at a server.  Take it by rpc_accept() inside the callback; not taken: UNIMPLEMENTED.
 */
typedef void (*rpc_incoming)(void *ctx, struct rpc_stream *s, const char *method);
/* The limit for which the server itself ended something. */
enum rpc_breach { RPC_BREACH_MESSAGE, RPC_BREACH_SILENT };
struct rpc_server_options {
	size_t max_message;   /* of a received message, bytes; larger: RESOURCE_EXHAUSTED */
	unsigned max_streams; /* per connection */
	size_t max_headers;   /* of a call, bytes; 0: as grpc has it, and unguarded */
	size_t memory;      /* of what is being received; above it grpc ends streams; 0: no bound */
	unsigned silent_ms; /* a connection without a call ends after it; 0: stays */
	int64_t per_second, burst; /* requests, as guard.h counts them; 0: no bound */
	/* Of all calls together; both may be NULL.  Called with the server's `ctx`. */
	void (*request)(void *ctx); /* a message was handed to its owner */
	void (*breach)(void *ctx, enum rpc_breach what);
	/* guard.h; may be NULL: so many connections were ended for this; what its pod holds now. */
	void (*broken)(void *ctx, enum rpc_rule what, unsigned connections);
	void (*held)(void *ctx, int64_t bytes);
};
struct rpc_server *rpc_server_new(
    struct rpc *r, const struct rpc_server_options *o, rpc_incoming incoming, void *ctx);
/* A connection that was adopted: grpc closes it when its peer goes, and then its number may become
 * another's, so its inode is remembered too. */
struct rpc_connection {
	int fd; /* -1: none */
	ino_t inode;
};
/* Takes the fd; a blocking one is closed. */
struct rpc_connection rpc_server_adopt(struct rpc_server *s, int connected_fd);
bool rpc_connection_is_open(const struct rpc_connection *c);
void rpc_connection_cut(const struct rpc_connection *c); /* its streams end; closed: nothing */
/* Adopted ones that are still open, whoever forgets to close them. */
unsigned rpc_server_connections(struct rpc_server *s);
unsigned rpc_server_streams(const struct rpc_server *s); /* calls that have not ended */
int64_t rpc_server_bytes(struct rpc_server *s);          /* that its connections hold (guard.h) */
/* Back-pressure to a pod as a whole: no further message is asked for, whatever its streams want. */
void rpc_server_hold(struct rpc_server *s, bool held);
void rpc_server_cut_all(struct rpc_server *s); /* its connections */
/* Ends its calls without events to their owners, whose slots become NULL. */
void rpc_server_free(struct rpc_server **s);
void rpc_accept(
    struct rpc_stream *s, struct rpc_stream **slot, const struct rpc_events *ev, void *ctx);
/* Instead of rpc_accept(): with this status; or with the whole connection. */
void rpc_refuse(struct rpc_stream *s, int status, const char *why);
void rpc_refuse_connection(struct rpc_stream *s);
