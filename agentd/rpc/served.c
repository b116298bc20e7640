/* served.c - what a stream tells its server, and asks of it. */
#include "rpc_internal.h"
#include "server_internal.h"

void rpc_server_charge(struct rpc_server *s, int64_t more)
{
	rpc_guard_charge(s->guard, more);
}

void rpc_server_push(struct rpc_server *s, int64_t more)
{
	rpc_guard_push(s->guard, more);
}

/* What is handed over is its owner's from now on. */
void rpc_server_took(struct rpc_stream *s, int64_t bytes)
{
	s->taken += (size_t)bytes;
	rpc_guard_took(s->server->guard, s->fd, s->inode, bytes);
}

bool rpc_server_is_held(const struct rpc_server *s)
{
	return s->held;
}

/* After its owner's callback, in which the server may have been freed. */
void rpc_server_request(struct rpc_server *s)
{
	if (s->options.request && !s->freed)
		s->options.request(s->ctx);
}

void rpc_server_breach(struct rpc_server *s, enum rpc_breach what)
{
	if (s->options.breach && !s->freed)
		s->options.breach(s->ctx, what);
}
