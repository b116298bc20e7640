/* server.c - a pod's grpc server: no port, connections are given to it.
 *
 * One generic request_call is always armed; its tag brings a new call, whose end is watched from
 * the start (RECV_CLOSE_ON_SERVER, grpc-core.md 8), the owner takes it or it is refused, and the
 * next request is armed.  Freeing hands the server back to grpc: shutdown, cancel everything, and
 * when both its tags came back it is destroyed; its streams live on alone until theirs did.
 */
#include "server.h"
#include "common/log.h"
#include "common/mem.h"
#include "rpc_internal.h"
#include "server_internal.h"

#include <fcntl.h>
#include <grpc/compression.h>
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <utlist.h>

LOG_SCOPE("rpc");

/* A connection without a stream is of no use to a pod; one that never said anything is an attack.
 */
enum { CONNECTION_IDLE_MS = 5 * 60 * 1000, READ_CHUNK = 2 << 10, CALM_MS = 200 };

static void on_request(struct rpc_tag *t, bool ok);

static void request_next(struct rpc_server *s)
{
	grpc_call_details_init(&s->details);
	grpc_metadata_array_init(&s->metadata);
	s->requesting = true;
	rpc_catch_begin(s->rpc); /* the next call may be here already */
	grpc_server_request_call(s->grpc, &s->call, &s->details, &s->metadata, s->rpc->cq,
	    s->rpc->cq, rpc_tag_start(s->rpc, &s->request, on_request));
	rpc_catch_end(s->rpc);
}

static void destroy_if_done(struct rpc_server *s)
{
	if (!s->freed || s->requesting || !s->shut_down)
		return;
	grpc_server_destroy(s->grpc);
	rpc_guard_free(&s->guard);
	DL_DELETE(s->rpc->servers, s);
	free(s->sockets);
	free(s);
}

/* --- connections --- */

static struct socket *find_socket(const struct rpc_server *s, int fd)
{
	for (size_t i = 0; i < s->nsockets; i++)
		if (s->sockets[i].c.fd == fd)
			return &s->sockets[i];
	return NULL;
}

unsigned rpc_server_connections(struct rpc_server *s)
{
	size_t open = 0;

	for (size_t i = 0; i < s->nsockets; i++)
		if (rpc_connection_is_open(&s->sockets[i].c))
			s->sockets[open++] = s->sockets[i];
	s->nsockets = open;
	return (unsigned)open;
}

static void on_silent(void *ctx);

static void watch_next(struct rpc_server *s)
{
	int64_t now = loop_uptime_ms(s->rpc->loop), next = 0;

	for (size_t i = 0; i < s->nsockets; i++) {
		int64_t until = s->sockets[i].silent_until_ms;

		if (until && (!next || until < next))
			next = until;
	}
	if (next)
		loop_timer_in(s->rpc->loop, &s->silent, next > now ? next - now : 0, on_silent, s);
}

/* Whoever says nothing keeps an fd of the node (threats-and-faults.md T9). */
static void on_silent(void *ctx)
{
	struct rpc_server *s = ctx;
	int64_t now = loop_uptime_ms(s->rpc->loop);
	unsigned ended = 0;

	for (size_t i = 0; i < s->nsockets; i++) {
		struct socket *k = &s->sockets[i];

		if (!k->silent_until_ms || k->silent_until_ms > now)
			continue;
		k->silent_until_ms = 0;
		ended += rpc_connection_is_open(&k->c);
		rpc_connection_cut(&k->c);
	}
	watch_next(s);
	while (s->options.breach && ended-- > 0)
		s->options.breach(s->ctx, RPC_BREACH_SILENT);
}

static void watch_silence(struct rpc_server *s, struct socket *k)
{
	if (!s->options.silent_ms)
		return;
	k->silent_until_ms = loop_uptime_ms(s->rpc->loop) + s->options.silent_ms;
	if (!s->silent.armed)
		watch_next(s);
}

static struct rpc_connection remember_socket(struct rpc_server *s, int fd)
{
	struct socket *known = find_socket(s, fd);
	struct stat st;

	if (fstat(fd, &st))
		return (struct rpc_connection){.fd = -1};
	if (!known) {
		s->sockets = mem_realloc(s->sockets, (s->nsockets + 1) * sizeof(*s->sockets));
		known = &s->sockets[s->nsockets++];
	}
	*known = (struct socket){.c = {fd, st.st_ino}};
	rpc_guard_add(s->guard, fd, st.st_ino);
	watch_silence(s, known);
	return known->c;
}

static void remember_connection(struct rpc_stream *s, const struct rpc_server *server)
{
	char *peer = grpc_call_get_peer(s->call);
	struct socket *found = NULL;

	if (!strncmp(peer, "fd:", 3))
		found = find_socket(server, (int)strtol(peer + 3, NULL, 10));
	gpr_free(peer);
	s->fd = found ? found->c.fd : -1;
	s->inode = found ? found->c.inode : 0;
	if (found)
		found->silent_until_ms = 0;
	rpc_guard_heard(server->guard, s->fd, s->inode);
	if (!rpc_guard_sees(server->guard, s->fd))
		abort(); /* this grpc does not read with recvmsg(): nothing would bound a pod */
}

void rpc_server_cut_all(struct rpc_server *s)
{
	for (size_t i = 0; i < s->nsockets; i++)
		rpc_connection_cut(&s->sockets[i].c);
}

/* --- calls --- */

static void on_call_ended(struct rpc_tag *t, bool ok)
{
	struct rpc_stream *s = tag_owner(t, struct rpc_stream, ending);

	(void)
	    ok; /* "always succeeds"; whether it was cancelled does not matter: we did not end it */
	if (s->server) {
		s->server->nstreams--;
		rpc_guard_took(s->server->guard, s->fd, s->inode, -(int64_t)s->taken);
	}
	rpc_stream_ended(s);
	rpc_stream_unref(s);
}

static struct rpc_stream *stream_new(struct rpc_server *server, grpc_call *call)
{
	struct rpc_stream *s = rpc_stream_new(server->rpc, call);
	grpc_op op = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER,
	    .data.recv_close_on_server.cancelled = &s->cancelled};

	s->server = server;
	server->nstreams++;
	remember_connection(s, server);
	rpc_stream_start(s, &op, 1, &s->ending, on_call_ended);
	return s;
}

static const struct rpc_events none = {.message = NULL};

void rpc_refuse(struct rpc_stream *s, int status, const char *why)
{
	struct rpc_stream *ours;

	s->accepted = true;
	rpc_stream_own(s, &ours, &none, NULL);
	rpc_close(&ours, status, why);
}

void rpc_refuse_connection(struct rpc_stream *s)
{
	struct rpc_stream *ours;

	s->accepted = true;
	rpc_stream_own(s, &ours, &none, NULL);
	rpc_abort(&ours);
}

unsigned rpc_server_streams(const struct rpc_server *s)
{
	return s->nstreams;
}

int64_t rpc_server_bytes(struct rpc_server *s)
{
	return rpc_guard_held(s->guard);
}

static void wait_for_calm(struct rpc_server *s);

/* A request that waits for a call shows that grpc's queue of calls is empty. */
static void on_calm(void *ctx)
{
	struct rpc_server *s = ctx;

	if (s->requesting && s->announced == s->announced_then)
		rpc_guard_calm(s->guard);
	else
		wait_for_calm(s);
}

static void wait_for_calm(struct rpc_server *s)
{
	s->announced_then = s->announced;
	loop_timer_in(s->rpc->loop, &s->calm, CALM_MS, on_calm, s);
}

static void tell_news(struct rpc_server *s)
{
	struct rpc_guard_news n;

	if (!rpc_guard_news(s->guard, &n) || s->freed)
		return;
	for (unsigned i = 0; i < RPC_RULE_END; i++)
		if (n.broken[i] && s->options.broken)
			s->options.broken(s->ctx, (enum rpc_rule)i, n.broken[i]);
	if (s->options.held)
		s->options.held(s->ctx, n.held);
	if (n.left_behind && !s->calm.armed)
		wait_for_calm(s);
}

/* From the loop; an owner does not free its server in these two. */
void rpc_server_tell_news(struct rpc *r)
{
	struct rpc_server *s;

	if (!rpc_guard_has_news())
		return;
	DL_FOREACH (r->servers, s)
		tell_news(s);
}

void rpc_server_hold(struct rpc_server *server, bool held)
{
	struct rpc_stream *s;

	server->held = held;
	if (held)
		return;
	DL_FOREACH (server->rpc->streams, s)
		if (s->server == server && s->accepted)
			rpc_stream_read(s);
}

static void announce(struct rpc_server *server, grpc_call *call, grpc_slice method)
{
	struct rpc_stream *s = stream_new(server, call);
	char *name = grpc_slice_to_c_string(method);

	server->announced++;
	s->refs++; /* the callback may end it, or free the server */
	server->incoming(server->ctx, s, name);
	gpr_free(name);
	if (!s->accepted)
		rpc_refuse(s, RPC_UNIMPLEMENTED, "unknown method");
	rpc_stream_unref(s);
}

static void on_request(struct rpc_tag *t, bool ok)
{
	struct rpc_server *s = tag_owner(t, struct rpc_server, request);
	grpc_call *call = take(s->call);

	/* `requesting` stays set meanwhile, so that the callback may free the server. */
	if (ok && !s->freed)
		announce(s, call, s->details.method);
	else if (call)
		grpc_call_unref(call);
	grpc_call_details_destroy(&s->details);
	grpc_metadata_array_destroy(&s->metadata);
	s->requesting = false;
	if (!s->freed)
		request_next(s);
	destroy_if_done(s);
}

void rpc_accept(
    struct rpc_stream *s, struct rpc_stream **slot, const struct rpc_events *ev, void *ctx)
{
	s->accepted = true;
	rpc_stream_own(s, slot, ev, ctx);
	rpc_stream_read(s);
}

static grpc_arg int_arg(const char *key, int value)
{
	return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = value};
}

struct rpc_server *rpc_server_new(
    struct rpc *r, const struct rpc_server_options *o, rpc_incoming incoming, void *ctx)
{
	struct rpc_server *s = mem_zalloc(sizeof(*s));
	grpc_resource_quota *quota = grpc_resource_quota_create("pod");
	grpc_arg args[] = {
	    {.type = GRPC_ARG_POINTER,
		.key = (char *)GRPC_ARG_RESOURCE_QUOTA,
		.value.pointer = {quota, grpc_resource_quota_arg_vtable()}},
	    int_arg(GRPC_ARG_MAX_METADATA_SIZE, (int)(o->max_headers ? o->max_headers : 8192)),
	    int_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int)o->max_message),
	    int_arg(GRPC_ARG_MAX_CONCURRENT_STREAMS, (int)o->max_streams),
	    int_arg(GRPC_ARG_MAX_CONNECTION_IDLE_MS, CONNECTION_IDLE_MS),
	    int_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0), /* else slow readers cost 8x (grpc-core.md 3) */
	    int_arg(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, READ_CHUNK), /* kept by each connection */
	    int_arg(GRPC_ARG_ENABLE_CHANNELZ, 0),
	    /* Pings are answered, nothing more: grpc's own defence against too many of them takes
	     * 4 KB for each and ends nothing as long as they come (measured: 177,000 pings, 680
	     * MiB). */
	    int_arg(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0),
	    /* The size limit is that of the compressed bytes: 4 MiB of gzip could be 4 GiB. */
	    int_arg(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE),
	    int_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
	};
	grpc_channel_args all = {.num_args = sizeof(args) / sizeof(args[0]), .args = args};

	s->rpc = r;
	s->options = *o;
	s->incoming = incoming;
	s->ctx = ctx;
	s->guard = rpc_guard_new(&(struct rpc_guard_options){.per_second = o->per_second,
	    .burst = o->burst,
	    .block_size = (uint32_t)o->max_headers,
	    .streams = o->max_streams,
	    .message_size = o->max_message});
	/* Each pod has one of its own: at the end of a common one grpc ends anybody's streams
	 * (measured: one pod's 1 GiB message cost the others theirs). */
	if (o->memory)
		grpc_resource_quota_resize(quota, o->memory);
	s->grpc = grpc_server_create(&all, NULL);
	grpc_resource_quota_unref(quota);
	grpc_server_register_completion_queue(s->grpc, r->cq, NULL);
	grpc_server_start(s->grpc);
	DL_APPEND(r->servers, s);
	request_next(s);
	return s;
}

struct rpc_connection rpc_server_adopt(struct rpc_server *s, int connected_fd)
{
	int flags = fcntl(connected_fd, F_GETFL);

	/* A blocking fd would hang the loop, and with it all pods (grpc-core.md 1). */
	if (flags < 0 || !(flags & O_NONBLOCK) || fcntl(connected_fd, F_SETFD, FD_CLOEXEC)) {
		log_error(NULL, "connection refused: its fd %d is not non-blocking", connected_fd);
		close(connected_fd);
		return (struct rpc_connection){.fd = -1};
	}
	struct rpc_connection c = remember_socket(s, connected_fd);
	grpc_server_credentials *plain = grpc_insecure_server_credentials_create();

	grpc_server_add_channel_from_fd(s->grpc, connected_fd, plain);
	grpc_server_credentials_release(plain);
	return c;
}

static void on_shut_down(struct rpc_tag *t, bool ok)
{
	struct rpc_server *s = tag_owner(t, struct rpc_server, shutdown);

	(void)ok;
	s->shut_down = true;
	destroy_if_done(s);
}

static void drop(struct rpc_server *server)
{
	struct rpc_stream *s, *next;

	if (server->freed)
		return;
	server->freed = true;
	loop_timer_stop(&server->silent);
	loop_timer_stop(&server->calm);
	DL_FOREACH_SAFE (server->rpc->streams, s, next) {
		if (s->server == server)
			rpc_stream_abandon(s);
	}
	grpc_server_shutdown_and_notify(server->grpc, server->rpc->cq,
	    rpc_tag_start(server->rpc, &server->shutdown, on_shut_down));
	/* Without it the tag would wait for streams that nobody ends, and connections stay. */
	grpc_server_cancel_all_calls(server->grpc);
}

void rpc_server_free(struct rpc_server **s)
{
	if (*s)
		drop(take(*s));
}

void rpc_server_drop_all(struct rpc *r)
{
	struct rpc_server *s, *next;

	DL_FOREACH_SAFE (r->servers, s, next)
		drop(s);
}
