/* rpc_server.h - the server side: one server per pod, without a port, fed with accepted fds. */
#pragma once
#include "rpc.h"
#include <sys/types.h>

struct rpc_server;

/* A new call at a server.  Take it by rpc_accept() inside the callback; not taken: UNIMPLEMENTED.
 */
typedef void (*rpc_incoming)(void *ctx, struct rpc_stream *s, const char *method);
struct rpc_server_options {
	size_t max_message;   /* of a received message, bytes; larger: RESOURCE_EXHAUSTED */
	unsigned max_streams; /* per connection */
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
/* Ends its calls without events to their owners, whose slots become NULL. */
void rpc_server_free(struct rpc_server **s);
void rpc_accept(
    struct rpc_stream *s, struct rpc_stream **slot, const struct rpc_events *ev, void *ctx);
