/* csi_server.c
 *
 * call -> its one message -> the method's handler -> answered or refused now, or it waits with
 * others -> answered with them; or it has waited too long: refused; or the kubelet gives it up.
 * Each end is counted by method and code.
 */
#include "csi_server.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "csi_request.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

enum {
	STREAMS_MAX =
	    16, /* of a connection; the kubelet makes one call on each (kubelet-csi.md 5) */
	MEMORY_MAX = 64 << 20,
	SILENT_MS = 30 * 1000,
};

struct csi_call {
	struct csi_server *server;
	const struct csi_method *method;
	struct rpc_stream *stream;
	bool handled;
	struct csi_waiting *in; /* NULL: it does not wait */
	struct loop_timer patience;
	struct csi_call *prev, *next;           /* of the server */
	struct csi_call *wait_prev, *wait_next; /* of `in` */
};

struct csi_server {
	struct loop *loop;
	struct rpc_server *rpc;
	const struct csi_method *methods;
	void *ctx;
	struct csi_call *calls;
	struct metric *ended;
};

static void leave(struct csi_call *c)
{
	struct csi_waiting *w = take(c->in);

	if (w)
		DL_DELETE2(w->calls, c, wait_prev, wait_next);
	loop_timer_stop(&c->patience);
}

static void call_free(struct csi_call *c)
{
	leave(c);
	DL_DELETE(c->server->calls, c);
	free(c);
}

static void count_status(
    const struct csi_server *s, const struct csi_method *m, int status, unsigned n)
{
	char labels[128];

	metric_labels(labels, sizeof(labels), "method", strrchr(m->path, '/') + 1, "code",
	    rpc_status_name(status), NULL);
	metric_add(s->ended, labels, n);
}

static void count(const struct csi_call *c, int status)
{
	count_status(c->server, c->method, status, 1);
}

/* What a call of any method can end with: increase() is to see the first one. */
static void count_none(const struct csi_server *s)
{
	static const int ends[] = {RPC_OK, RPC_CANCELLED, RPC_INVALID_ARGUMENT,
	    RPC_PERMISSION_DENIED, RPC_RESOURCE_EXHAUSTED, RPC_FAILED_PRECONDITION, RPC_ABORTED,
	    RPC_INTERNAL, RPC_UNAVAILABLE};

	for (const struct csi_method *m = s->methods; m->path; m++)
		for (unsigned i = 0; i < sizeof(ends) / sizeof(*ends); i++)
			count_status(s, m, ends[i], 0);
}

/* --- the end of a call --- */

void csi_answer(struct csi_call *c, const void *message, size_t size)
{
	count(c, RPC_OK);
	rpc_send(c->stream, message, size);
	rpc_close(&c->stream, RPC_OK, "");
	call_free(c);
}

void csi_refuse(struct csi_call *c, enum rpc_status status, const char *why)
{
	count(c, status);
	rpc_close(&c->stream, status, why);
	call_free(c);
}

enum rpc_status csi_status_of(const struct err *e)
{
	switch (e->code) {
	case ERR_INVALID:
		return RPC_INVALID_ARGUMENT;
	case ERR_DENIED:
		return RPC_PERMISSION_DENIED;
	case ERR_PRECONDITION:
		return RPC_FAILED_PRECONDITION;
	case ERR_UNAVAILABLE:
		return RPC_UNAVAILABLE;
	case EUSERS: /* --max-pods */
		return RPC_RESOURCE_EXHAUSTED;
	default:
		return RPC_INTERNAL;
	}
}

static void on_closed(void *ctx, int status, const char *why)
{
	struct csi_call *c = ctx;

	(void)why;
	count(c, status);
	call_free(c);
}

/* --- waiting --- */

static void on_impatient(void *ctx)
{
	struct csi_call *c = ctx;

	csi_refuse(c, RPC_UNAVAILABLE, c->in->why(c->in->ctx));
}

void csi_wait(struct csi_waiting *w, struct csi_call *c, int64_t ms)
{
	c->in = w;
	DL_APPEND2(w->calls, c, wait_prev, wait_next);
	loop_timer_in(c->server->loop, &c->patience, ms, on_impatient, c);
}

void csi_answer_all(struct csi_waiting *w)
{
	while (w->calls)
		csi_answer(w->calls, "", 0);
}

void csi_refuse_all(struct csi_waiting *w, enum rpc_status status, const char *why)
{
	while (w->calls)
		csi_refuse(w->calls, status, why);
}

unsigned csi_waiting_count(const struct csi_waiting *w)
{
	const struct csi_call *c;
	unsigned n = 0;

	DL_FOREACH2(w->calls, c, wait_next)
	n++;
	return n;
}

/* --- the beginning of a call --- */

static void on_message(void *ctx, struct rpc_stream *s, struct rpc_msg *m)
{
	struct csi_call *c = ctx;

	(void)s;
	if (c->handled)
		return; /* there is one to a call */
	c->handled = true;
	c->method->handle(c->server->ctx, c, m);
}

static void on_half_closed(void *ctx, struct rpc_stream *s)
{
	struct csi_call *c = ctx;

	(void)s;
	if (!c->handled)
		csi_refuse(c, RPC_INVALID_ARGUMENT, "the call has no message");
}

static void on_incoming(void *ctx, struct rpc_stream *s, const char *path)
{
	static const struct rpc_events events = {
	    .message = on_message, .half_closed = on_half_closed, .closed = on_closed};
	struct csi_server *server = ctx;
	const struct csi_method *m = server->methods;
	struct csi_call *c;

	while (m->path && strcmp(m->path, path) != 0)
		m++;
	if (!m->path)
		return;
	c = mem_zalloc(sizeof(*c));
	c->server = server;
	c->method = m;
	DL_APPEND(server->calls, c);
	rpc_accept(s, &c->stream, &events, c);
}

struct csi_server *csi_server_new(
    struct loop *l, struct rpc *r, const struct csi_method *methods, void *ctx)
{
	static const struct rpc_server_options options = {.max_message = CSI_REQUEST_MAX,
	    .max_streams = STREAMS_MAX,
	    .memory = MEMORY_MAX,
	    .silent_ms = SILENT_MS};
	struct csi_server *s = mem_zalloc(sizeof(*s));

	s->loop = l;
	s->methods = methods;
	s->ctx = ctx;
	s->ended = metric_counter("agentd_csi_calls_total", "Finished calls of the kubelet.");
	count_none(s);
	s->rpc = rpc_server_new(r, &options, on_incoming, s);
	return s;
}

void csi_server_free(struct csi_server **server)
{
	struct csi_server *s = take(*server);
	struct csi_call *c, *next;

	if (!s)
		return;
	rpc_server_free(&s->rpc);
	DL_FOREACH_SAFE (s->calls, c, next)
		call_free(c);
	free(s);
}

struct rpc_server *csi_server_rpc(struct csi_server *s)
{
	return s->rpc;
}
