/* server.c
 *
 * start: the limits are there -> directory: the server.  A connection comes -> admitted or not; a
 * call comes -> refused, or the first service that knows the method takes it; messages come too
 * fast -> the server holds until the bucket is filled again.  Who does not listen to refusals loses
 * its connections.
 */
#include "server.h"
#include "base/metrics.h"
#include "common/log.h"
#include "rows.h"
#include "rpc/server.h"
#include "worker/link/link.h"
#include "worker/pods/pod.h"

LOG_SCOPE("pod");

/* Of one connection: what Envoy takes for the limit until it hears another one. */
enum { CONNECTION_STREAMS_MAX = 100 };

struct pod_server {
	struct pod_context *context;
	struct limits *limits;
	struct rpc_server *rpc;    /* NULL until there is a directory */
	struct link_call *telling; /* the broker what its connections hold */
	int64_t held, told;
	struct log_budget log;
};

struct limits *pod_server_limits(const struct pod_server *s)
{
	return s->limits;
}

struct rpc_server *pod_server_rpc(const struct pod_server *s)
{
	return s->rpc;
}

/* --- connections --- */

static void on_broken(void *ctx, enum rpc_rule what, unsigned connections)
{
	static const enum limit limits[RPC_RULE_END] = {
	    [RPC_RULE_FRAMES] = LIMIT_FRAMES,
	    [RPC_RULE_SHARE] = LIMIT_NODE_REQUESTS,
	    [RPC_RULE_BLOCK_SIZE] = LIMIT_HEADERS,
	    [RPC_RULE_BLOCK_FIELDS] = LIMIT_HEADERS,
	    [RPC_RULE_BLOCK_SHAPE] = LIMIT_HEADERS,
	    [RPC_RULE_STREAMS] = LIMIT_STREAMS,
	    [RPC_RULE_MEMORY] = LIMIT_NODE_MEMORY,
	    [RPC_RULE_RIGHTS] = LIMIT_FRAMES,
	};
	struct pod_server *s = ctx;

	log_warn_limited(&s->log, s->context->pod->spec.label, "%u of its connections ended: %s",
	    connections, rpc_rule_text(what));
	while (connections-- > 0)
		limits_hit(s->limits, limits[what]);
}

const char *pod_server_admit(struct pod_server *s, int fd, unsigned connections)
{
	if (!limits_admit_fd(s->limits, fd))
		return "the node is short of file descriptors";
	if (!limits_admit(s->limits, LIMIT_CONNECTIONS, connections))
		return "the pod has too many connections";
	if (limits_connect(s->limits) != LIMITS_FINE)
		return "the pod connects too often";
	return NULL;
}

/* The broker keeps it, for the case that the kernel ends this worker.  One question at a time. */
static void tell_held(struct pod_server *s);

static void on_told(void *ctx, const struct err *e)
{
	(void)e;
	tell_held(ctx);
}

static void tell_held(struct pod_server *s)
{
	const struct pod_context *c = s->context;

	if (s->telling || s->held == s->told)
		return;
	s->told = s->held;
	link_pod_holds(c->shared->link, &s->telling, &c->pod->spec.uid, s->held, on_told, s);
}

static void on_held(void *ctx, int64_t bytes)
{
	struct pod_server *s = ctx;

	s->held = bytes;
	tell_held(s);
}

/* --- calls --- */

/* Was the call refused?  `st` counts already. */
static bool refuse_call(struct pod_server *s, struct rpc_stream *st)
{
	enum limits_verdict v = limits_attempt(s->limits);

	if (v == LIMITS_FLOOD) {
		log_warn_limited(&s->log, s->context->pod->spec.label,
		    "a flood of calls: all connections ended");
		rpc_server_cut_all(s->rpc);
		rpc_refuse_connection(st);
	} else if (v == LIMITS_WAIT)
		rpc_refuse(st, RPC_RESOURCE_EXHAUSTED, "the pod calls too often");
	else if (!limits_admit(s->limits, LIMIT_STREAMS, rpc_server_streams(s->rpc) - 1))
		rpc_refuse(st, RPC_RESOURCE_EXHAUSTED, "the pod has too many streams");
	else
		return false;
	return true;
}

static void on_call(void *ctx, struct rpc_stream *st, const char *method)
{
	struct pod_server *s = ctx;

	if (refuse_call(s, st))
		return;
	if (!pod_ask_call(s->context, st, method)) /* answered UNIMPLEMENTED */
		log_debug(s->context->pod->spec.label, "no such method: %s", method);
}

/* --- messages --- */

static void on_request(void *ctx)
{
	struct pod_server *s = ctx;

	if (limits_request(s->limits) != LIMITS_FINE)
		rpc_server_hold(s->rpc, true);
}

static void on_refilled(void *ctx)
{
	struct pod_server *s = ctx;

	if (s->rpc)
		rpc_server_hold(s->rpc, false);
}

static void on_breach(void *ctx, enum rpc_breach what)
{
	static const enum limit limits[] = {
	    [RPC_BREACH_MESSAGE] = LIMIT_MESSAGE, [RPC_BREACH_SILENT] = LIMIT_SILENT};
	struct pod_server *s = ctx;

	limits_hit(s->limits, limits[what]);
}

/* --- life --- */

static int start(void *ctx, struct err *e)
{
	struct pod_server *s = ctx;
	struct pod_context *c = s->context;

	(void)e;
	s->limits = limits_new(c->shared->loop, &c->shared->limits, on_refilled, s);
	c->server = s;
	return 0;
}

static void on_directory(void *ctx)
{
	struct pod_server *s = ctx;
	const struct rpc_server_options options = {
	    .max_message = (size_t)limits_value(s->limits, LIMIT_MESSAGE),
	    .max_streams = CONNECTION_STREAMS_MAX,
	    .max_headers = (size_t)limits_value(s->limits, LIMIT_HEADERS),
	    .memory = (size_t)limits_value(s->limits, LIMIT_MEMORY),
	    .silent_ms = (unsigned)limits_value(s->limits, LIMIT_SILENT) * 1000,
	    .per_second = limits_value(s->limits, LIMIT_REQUESTS),
	    .burst = limits_value(s->limits, LIMIT_BURST),
	    .request = on_request,
	    .breach = on_breach,
	    .broken = on_broken,
	    .held = on_held};

	s->rpc = rpc_server_new(s->context->shared->rpc, &options, on_call, s);
}

static void stop(void *ctx)
{
	struct pod_server *s = ctx;

	link_call_cancel(&s->telling);
	rpc_server_free(&s->rpc);
	limits_free(&s->limits);
}

/* --- looking at it --- */

static void uses(void *ctx, int64_t in_use[LIMIT_END])
{
	const struct pod_server *s = ctx;

	if (!s->rpc)
		return;
	in_use[LIMIT_CONNECTIONS] = rpc_server_connections(s->rpc);
	in_use[LIMIT_STREAMS] = rpc_server_streams(s->rpc);
	in_use[LIMIT_NODE_MEMORY] = rpc_server_bytes(s->rpc);
}

static void measure(void *ctx, const char *labels)
{
	const struct pod_server *s = ctx;

	if (s->rpc)
		metric_set(metric_gauge(
			       "agentd_pod_held_bytes", "Memory that the pod's connections hold."),
		    labels, (double)rpc_server_bytes(s->rpc));
}

static void dump(void *ctx, json_t *o)
{
	struct pod_server *s = ctx;
	int64_t in_use[LIMIT_END];

	for (unsigned i = 0; i < LIMIT_END; i++)
		in_use[i] = -1;
	pod_ask_uses(s->context, in_use);
	json_object_set_new(o, "limits", limits_dump(s->limits, in_use));
}

const struct pod_service pod_server_service = {
    .name = "server",
    .size = sizeof(struct pod_server),
    .start = start,
    .stop = stop,
    .directory = on_directory,
    .uses = uses,
    .dump = dump,
    .measure = measure,
};
