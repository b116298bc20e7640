/* first_call.c - loop -> grpc -> a call to a port where nobody listens -> refused, or too late. */
#include "first_call.h"
#include "base/loop.h"
#include "common/err.h"
#include "rpc/channel.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

enum { CALL_MS = 5000, LATE_MS = 10000 };

struct first_call {
	struct loop *loop;
	struct rpc_stream *stream;
	bool back;
};

static void on_message(void *ctx, struct rpc_stream *s, struct rpc_msg *m)
{
	(void)ctx, (void)s, (void)m;
}

static void on_closed(void *ctx, int status, const char *why)
{
	struct first_call *c = ctx;

	(void)status, (void)why;
	c->back = true;
	loop_stop(c->loop);
}

static void on_late(void *ctx)
{
	struct first_call *c = ctx;

	loop_stop(c->loop);
}

static void call(struct first_call *c, struct rpc_channel *nobody)
{
	static const struct rpc_events events = {.message = on_message, .closed = on_closed};
	static const struct rpc_call what = {.method = "/agentd/Check", .deadline_ms = CALL_MS};
	struct loop_timer late = {0};
	struct err e;

	if (rpc_open(nobody, &c->stream, &what, &events, c, &e))
		abort(); /* it has no header that could be refused */
	loop_timer_in(c->loop, &late, LATE_MS, on_late, c);
	loop_run(c->loop);
	loop_timer_stop(&late);
	rpc_close(&c->stream, RPC_CANCELLED, "");
}

int first_call_make(struct err *e)
{
	static const struct rpc_channel_options options = {
	    .target = "127.0.0.1:1", .server_name = "localhost"};
	struct first_call c = {.loop = loop_new(e)};
	struct rpc_channel *nobody;
	struct rpc *rpc;

	if (!c.loop)
		return -1;
	rpc = rpc_new(c.loop);
	nobody = rpc_channel_new(rpc, &options, NULL, NULL);
	call(&c, nobody);
	rpc_channel_free(&nobody);
	rpc_free(&rpc);
	loop_free(&c.loop);
	return c.back ? 0
		      : err_set(e, ETIMEDOUT, "a first call of grpc did not end in %d s",
			    LATE_MS / 1000);
}
