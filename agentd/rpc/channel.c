/* channel.c - a connection to one server, kept up by grpc, and the streams we open on it.
 *
 * One watch of the connectivity is always armed; its tag brings the change, the owner is told, the
 * next is armed.  Freed, the channel stays until its last stream ended; destroying it ends the
 * watch, whose tag is the last.
 * A stream is opened by four batches: headers out, headers in (in one batch they would dead-lock
 * with servers that send theirs with the first message, process-split.md 7.11), the status, a read.
 */
#include "channel.h"
#include "arrivals.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/secret.h"
#include "rpc_internal.h"

#include <grpc/compression.h>
#include <grpc/grpc_security.h>
#include <string.h>
#include <utlist.h>

LOG_SCOPE("rpc");

enum {
	READ_CHUNK = 1 << 20,     /* 256 KiB is slower, 4 MiB (grpc's own) no faster */
	KEEPALIVE_MS = 30 * 1000, /* Istio's own; istiod answers faster ones with GOAWAY */
	KEEPALIVE_TIMEOUT_MS = 10 * 1000,
	BACKOFF_FIRST_MS = 200,
	BACKOFF_MAX_MS = 2000,
	CONNECT_TIMEOUT_MS = 10 * 1000,
	ARGS_MAX = 20,
};

struct rpc_channel {
	struct rpc *rpc;
	grpc_channel *grpc;
	enum rpc_channel_state state;
	rpc_channel_changed changed; /* NULL: freed by the owner */
	void *ctx;
	struct rpc_tag watch;
	bool watching, freed, plaintext;
	size_t nstreams;
	struct rpc_channel *prev, *next;
};

static enum rpc_channel_state translate(grpc_connectivity_state s)
{
	switch (s) {
	case GRPC_CHANNEL_CONNECTING:
		return RPC_CONNECTING;
	case GRPC_CHANNEL_READY:
		return RPC_READY;
	case GRPC_CHANNEL_TRANSIENT_FAILURE:
		return RPC_TRANSIENT_FAILURE;
	default:
		return RPC_IDLE;
	}
}

/* --- life --- */

/* grpc 1.51 forgets a connection whose channel is destroyed between the handshake and the server's
 * first frame: it stays open until the server ends it (fixed later, grpc#32071).  A connection
 * attempt ends by itself, so wait for it. */
static bool must_wait(struct rpc_channel *c)
{
	return c->grpc && !c->rpc->ending &&
	       grpc_channel_check_connectivity_state(c->grpc, 0) == GRPC_CHANNEL_CONNECTING;
}

static void end_if_unused(struct rpc_channel *c)
{
	if (!c->freed || c->nstreams > 0 || must_wait(c))
		return;
	if (c->grpc)
		grpc_channel_destroy(take(c->grpc)); /* ends the watch, too */
	if (c->watching)
		return;
	DL_DELETE(c->rpc->channels, c);
	free(c);
}

static void stream_gone(struct rpc_channel *c)
{
	c->nstreams--;
	end_if_unused(c);
}

static void drop(struct rpc_channel *c)
{
	if (c->freed)
		return;
	c->freed = true;
	end_if_unused(c);
}

void rpc_channel_free(struct rpc_channel **c)
{
	if (*c)
		drop(take(*c));
}

void rpc_channel_connect(struct rpc_channel *c)
{
	if (c->grpc)
		grpc_channel_check_connectivity_state(c->grpc, 1);
}

void rpc_channel_drop_all(struct rpc *r)
{
	struct rpc_channel *c, *next;

	DL_FOREACH_SAFE (r->channels, c, next)
		drop(c);
}

/* --- connectivity --- */

static void on_changed(struct rpc_tag *t, bool ok);

static void watch(struct rpc_channel *c, grpc_connectivity_state last)
{
	c->watching = true;
	grpc_channel_watch_connectivity_state(c->grpc, last, gpr_inf_future(GPR_CLOCK_REALTIME),
	    c->rpc->cq, rpc_tag_start(c->rpc, &c->watch, on_changed));
}

static void tell(struct rpc_channel *c, enum rpc_channel_state s)
{
	c->state = s;
	if (!c->freed && c->changed)
		c->changed(c->ctx, s);
}

static void tell_change(struct rpc_channel *c, enum rpc_channel_state now)
{
	/* It left this state and is back before we looked: that was a GOAWAY and a new connection,
	 * which the owner must hear of. */
	if (now == c->state)
		tell(c, RPC_IDLE);
	tell(c, now);
}

static void on_changed(struct rpc_tag *t, bool ok)
{
	struct rpc_channel *c = tag_owner(t, struct rpc_channel, watch);
	grpc_connectivity_state now = GRPC_CHANNEL_SHUTDOWN;

	(void)ok;
	if (c->grpc) {
		now = grpc_channel_check_connectivity_state(c->grpc, 0);
		tell_change(c, translate(now));
	}
	/* The owner may have freed it meanwhile. */
	c->watching = false;
	if (c->grpc)
		watch(c, now);
	end_if_unused(c);
}

enum rpc_channel_state rpc_channel_state(const struct rpc_channel *c)
{
	return c->state;
}

/* --- options --- */

struct args {
	grpc_arg list[ARGS_MAX];
	size_t n;
};

static void add_int(struct args *a, const char *key, int value)
{
	a->list[a->n++] =
	    (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

static void add_text(struct args *a, const char *key, const char *value)
{
	a->list[a->n++] =
	    (grpc_arg){.type = GRPC_ARG_STRING, .key = (char *)key, .value.string = (char *)value};
}

static void add_args(struct args *a, const struct rpc_channel_options *o)
{
	add_int(
	    a, "agentd.shard", (int)o->shard); /* a distinct argument is a distinct connection */
	add_int(a, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, RPC_RECEIVE_MAX);
	add_int(a, GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, READ_CHUNK);
	add_int(a, GRPC_ARG_HTTP2_BDP_PROBE, 0);
	add_int(a, GRPC_ARG_ENABLE_RETRIES, 0);
	add_int(a, GRPC_ARG_ENABLE_CHANNELZ, 0);
	add_int(a, GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
	add_int(a, GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
	/* We dial what the configuration names: no proxy of the environment, no service config. */
	add_int(a, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
	add_int(a, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
	add_int(a, GRPC_ARG_KEEPALIVE_TIME_MS, KEEPALIVE_MS);
	add_int(a, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, KEEPALIVE_TIMEOUT_MS);
	add_int(a, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 0);
	add_int(
	    a, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0); /* an ADS stream is silent for hours */
	add_int(a, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, BACKOFF_FIRST_MS);
	add_int(a, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, BACKOFF_MAX_MS);
	add_int(
	    a, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_TIMEOUT_MS); /* that is what it means */
	if (o->server_name && !o->plaintext)
		add_text(a, GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, o->server_name);
	if (o->owner)
		add_text(a, "agentd.owner", o->owner);
}

static grpc_channel *connect_to(const struct rpc_channel_options *o)
{
	/* TLS 1.2 and up, the server's name checked: defaults of grpc, shown by the test. */
	grpc_ssl_pem_key_cert_pair pair = {o->key_pem, o->chain_pem};
	grpc_channel_credentials *creds = o->plaintext ? grpc_insecure_credentials_create()
						       : grpc_ssl_credentials_create(o->roots_pem,
							     o->key_pem ? &pair : NULL, NULL, NULL);
	auto_free char *target = mem_printf("%s%s", o->target[0] == '/' ? "unix:" : "", o->target);
	struct args a = {.n = 0};

	add_args(&a, o);
	grpc_channel_args all = {.num_args = a.n, .args = a.list};
	grpc_channel *c = grpc_channel_create(target, creds, &all);

	if (creds)
		grpc_channel_credentials_release(creds);
	return c;
}

struct rpc_channel *rpc_channel_new(
    struct rpc *r, const struct rpc_channel_options *o, rpc_channel_changed changed, void *ctx)
{
	struct rpc_channel *c = mem_zalloc(sizeof(*c));

	*c = (struct rpc_channel){.rpc = r,
	    .changed = changed,
	    .ctx = ctx,
	    .grpc = connect_to(o),
	    .plaintext = o->plaintext};
	DL_APPEND(r->channels, c);
	grpc_connectivity_state now = grpc_channel_check_connectivity_state(c->grpc, 0);

	c->state = translate(now);
	/* A target that grpc cannot parse makes a "lame" channel: it never changes, and a watch on
	 * it would not even end with it. */
	if (now != GRPC_CHANNEL_TRANSIENT_FAILURE)
		watch(c, now);
	return c;
}

/* --- streams --- */

static void on_headers_sent(struct rpc_tag *t, bool ok)
{
	(void)ok;
	rpc_stream_unref(tag_owner(t, struct rpc_stream, headers_out));
}

static void on_headers_received(struct rpc_tag *t, bool ok)
{
	struct rpc_stream *s = tag_owner(t, struct rpc_stream, headers_in);

	if (ok)
		rpc_intake_answered(s);
	rpc_stream_unref(s);
}

static void on_status(struct rpc_tag *t, bool ok)
{
	struct rpc_stream *s = tag_owner(t, struct rpc_stream, ending);

	(void)ok;
	rpc_stream_ended(s);
	rpc_stream_unref(s);
}

static void forget(void *value)
{
	secret_free(value);
}

/* grpc keeps a reference, not a copy, for as long as the call lives. */
static grpc_slice secret_slice(const char *value)
{
	return grpc_slice_new(secret_dup(value), strlen(value), forget);
}

/* What HTTP/2 and grpc_header_nonbin_value_is_legal() allow; that one leaves copies of an illegal
 * value behind in freed memory. */
static bool legal_value(const char *value)
{
	for (; *value; value++)
		if (*value < ' ' || *value > '~')
			return false;
	return true;
}

/* grpc prints an illegal value, so it must not get there (grpc-core.md 4); nor do we print it. */
static int put_header(grpc_metadata *m, const struct rpc_header *h, struct err *e)
{
	m->key = grpc_slice_from_copied_string(h->key);
	m->value = h->secret ? secret_slice(h->value) : grpc_slice_from_copied_string(h->value);
	if (!grpc_header_key_is_legal(m->key) || grpc_is_binary_header(m->key))
		return err_set(e, ERR_INVALID, "a header has an illegal name");
	if (!legal_value(h->value))
		return err_set(e, ERR_INVALID, "header %s has an illegal value", h->key);
	return 0;
}

static int put_headers(struct rpc_stream *s, const struct rpc_call *call, struct err *e)
{
	s->metadata = mem_zalloc((call->nheaders + 1) * sizeof(*s->metadata));
	for (size_t i = 0; i < call->nheaders; i++) {
		s->nmetadata++;
		if (put_header(&s->metadata[i], &call->headers[i], e))
			return -1;
	}
	return 0;
}

/* Without TLS the tap sees nothing. */
static void put_mark(struct rpc_stream *s)
{
	if (s->channel->plaintext || !s->rpc->intake.ledger.bound)
		return;
	auto_free char *mark = rpc_intake_begin(s);

	s->metadata[s->nmetadata++] =
	    (grpc_metadata){.key = grpc_slice_from_static_string(RPC_ARRIVALS_HEADER),
		.value = grpc_slice_from_copied_string(mark)};
}

static grpc_call *create_call(struct rpc_channel *c, const struct rpc_call *call)
{
	gpr_timespec deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
	grpc_slice method = grpc_slice_from_copied_string(call->method);

	if (call->deadline_ms)
		deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
		    gpr_time_from_millis(call->deadline_ms, GPR_TIMESPAN));
	grpc_call *made = grpc_channel_create_call(
	    c->grpc, NULL, GRPC_PROPAGATE_DEFAULTS, c->rpc->cq, method, NULL, deadline, NULL);
	grpc_slice_unref(method);
	return made;
}

static void start(struct rpc_stream *s, bool wait_for_ready)
{
	grpc_op send = {.op = GRPC_OP_SEND_INITIAL_METADATA,
	    .flags = wait_for_ready ? GRPC_INITIAL_METADATA_WAIT_FOR_READY : 0,
	    .data.send_initial_metadata = {.count = s->nmetadata, .metadata = s->metadata}};
	grpc_op receive = {.op = GRPC_OP_RECV_INITIAL_METADATA,
	    .data.recv_initial_metadata.recv_initial_metadata = &s->initial};
	grpc_op status = {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
	    .data.recv_status_on_client = {.trailing_metadata = &s->trailing,
		.status = &s->status,
		.status_details = &s->details}};

	rpc_stream_start(s, &send, 1, &s->headers_out, on_headers_sent);
	rpc_stream_start(s, &receive, 1, &s->headers_in, on_headers_received);
	rpc_stream_start(s, &status, 1, &s->ending, on_status);
	rpc_stream_read(s);
}

int rpc_open(struct rpc_channel *c, struct rpc_stream **slot, const struct rpc_call *call,
    const struct rpc_events *ev, void *ctx, struct err *e)
{
	struct rpc_stream *s = rpc_stream_new(c->rpc, create_call(c, call));

	s->channel = c;
	s->gone = stream_gone;
	c->nstreams++;
	if (put_headers(s, call, e)) {
		rpc_stream_unref(s);
		return err_wrap(e, "%s", call->method);
	}
	if (call->in_turn)
		put_mark(s);
	rpc_stream_own(s, slot, ev, ctx);
	start(s, call->wait_for_ready);
	return 0;
}
