/* rpc_rig.c - see rpc_rig.h. */
#include "rpc_rig.h"

#include "common/mem.h"

#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { GUARD_S = 60 };

/* --- recorders --- */

static void on_message(void *ctx, struct rpc_stream *st, struct rpc_msg *m)
{
	struct side *s = ctx;
	size_t n, sum = 0;
	const struct iovec *iov = rpc_msg_iov(m, &n);

	assert_ptr_equal(st, s->stream);
	s->messages++;
	for (size_t i = 0; i < n; i++) {
		sum += iov[i].iov_len;
		if (s->got)
			evbuffer_add(s->got, iov[i].iov_base, iov[i].iov_len);
	}
	assert_int_equal(sum, rpc_msg_size(m));
	s->bytes += sum;
	if (s->on_message)
		s->on_message(s, m);
}

static void on_writable(void *ctx, struct rpc_stream *st)
{
	struct side *s = ctx;

	assert_ptr_equal(st, s->stream);
	assert_int_equal(rpc_queued(st), 0);
	s->writables++;
	if (s->on_writable)
		s->on_writable(s);
}

static void on_half_closed(void *ctx, struct rpc_stream *st)
{
	struct side *s = ctx;

	assert_ptr_equal(st, s->stream);
	s->half_closes++;
	if (s->on_half_closed)
		s->on_half_closed(s);
}

static void on_closed(void *ctx, int status, const char *why)
{
	struct side *s = ctx;

	s->closes++;
	s->status = status;
	s->slot_was_set = s->stream != NULL;
	snprintf(s->why, sizeof(s->why), "%s", why);
	if (s->on_closed)
		s->on_closed(s);
}

static void on_crowded(void *ctx, struct rpc_stream *st, int64_t unread_ms)
{
	struct side *s = ctx;

	assert_ptr_equal(st, s->stream);
	assert_true(unread_ms >= 0);
	s->crowds++;
}

const struct rpc_events side_events = {
    on_message, on_writable, on_half_closed, on_closed, on_crowded};

void side_reset(struct side *s)
{
	rpc_close(&s->stream, RPC_CANCELLED, "");
	if (s->got)
		evbuffer_free(s->got);
	*s = (struct side){.rig = s->rig};
}

void echo(struct side *s, const struct rpc_msg *m)
{
	rpc_forward(s->stream, m);
}

void close_ok(struct side *s)
{
	rpc_close(&s->stream, RPC_OK, "");
}

/* --- servers --- */

static void on_incoming(void *ctx, struct rpc_stream *st, const char *method)
{
	struct served *s = ctx;

	if (s->refuse)
		return;
	assert_true(s->ncalls < sizeof(s->calls) / sizeof(s->calls[0]));
	struct side *call = &s->calls[s->ncalls++];

	*call = (struct side){.rig = s->rig};
	snprintf(call->method, sizeof(call->method), "%s", method);
	if (s->prepare)
		s->prepare(call);
	rpc_accept(st, &call->stream, &side_events, call);
}

static void on_connection(void *ctx)
{
	struct served *s = ctx;
	int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	assert_true(fd >= 0);
	s->connections++;
	if (s->peek_fd >= 0)
		close(s->peek_fd);
	s->peek_fd = dup(fd);
	if (s->server)
		rpc_server_adopt(s->server, fd);
	else
		close(fd);
}

void served_listen(struct served *s)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", s->path);
	s->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	unlink(a.sun_path); /* of one that was killed and had our pid */
	assert_return_code(bind(s->listen_fd, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_return_code(listen(s->listen_fd, 64), 0);
	loop_fd_watch(s->rig->loop, &s->watch, s->listen_fd, LOOP_READ, on_connection, s);
}

void served_begin(struct served *s, struct rig *r, const struct rpc_server_options *o)
{
	static unsigned counter;

	*s = (struct served){.rig = r, .options = *o, .listen_fd = -1, .peek_fd = -1};
	snprintf(s->path, sizeof(s->path), "/tmp/rpc_rig.%d.%u", getpid(), counter++);
	s->server = rpc_server_new(r->rpc, o, on_incoming, s);
}

void served_end(struct served *s)
{
	for (unsigned i = 0; i < s->ncalls; i++)
		side_reset(&s->calls[i]);
	rpc_server_free(&s->server);
	loop_fd_stop(&s->watch);
	if (s->listen_fd >= 0)
		close(s->listen_fd);
	if (s->peek_fd >= 0)
		close(s->peek_fd);
	unlink(s->path);
}

/* --- the whole --- */

static void on_changed(void *ctx, enum rpc_channel_state s)
{
	struct rig *r = ctx;

	if (r->nchanges < CHANGES_MAX)
		r->changes[r->nchanges++] = s;
}

int served_dial(const struct served *s)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s", s->path);
	assert_return_code(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	return fd;
}

bool is_at_end(int fd)
{
	char bytes[256];
	ssize_t n;

	while ((n = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
		;
	return n == 0 || errno == ECONNRESET;
}

struct rpc_channel *rig_channel(struct rig *r, const char *path, unsigned shard)
{
	struct rpc_channel_options o = {.target = path, .shard = shard, .plaintext = true};

	return rpc_channel_new(r->rpc, &o, on_changed, r);
}

void rig_begin(struct rig *r)
{
	struct err e;

	*r = (struct rig){.loop = loop_new(&e)};
	assert_non_null(r->loop);
	r->rpc = rpc_new(r->loop);
	served_begin(
	    &r->s, r, &(struct rpc_server_options){.max_message = 1 << 20, .max_streams = 100});
	served_listen(&r->s);
	r->channel = rig_channel(r, r->s.path, 0);
}

void rig_end(struct rig *r)
{
	side_reset(&r->client);
	rpc_channel_free(&r->channel);
	served_end(&r->s);
	rpc_free(&r->rpc);
	loop_free(&r->loop);
}

void rig_open_call(struct rig *r, struct side *c, const struct rpc_call *call)
{
	struct err e;

	c->rig = r;
	assert_return_code(rpc_open(r->channel, &c->stream, call, &side_events, c, &e), 0);
	assert_non_null(c->stream);
}

void rig_open(struct rig *r, struct side *c)
{
	rig_open_call(r, c, &(struct rpc_call){.method = "/test.Echo/Talk"});
}

/* --- the loop --- */

static struct loop_timer guard;

static void on_guard(void *ctx)
{
	fprintf(stderr, "timeout: %s\n", (const char *)ctx);
	abort();
}

void rig_guard(struct rig *r, const char *what)
{
	loop_timer_in(r->loop, &guard, GUARD_S * 1000, on_guard, (void *)what);
}

void rig_unguard(void)
{
	loop_timer_stop(&guard);
}

void rig_turn(struct rig *r)
{
	event_base_loop(loop_base(r->loop), EVLOOP_ONCE);
}

void rig_spin(struct rig *r, unsigned turns)
{
	while (turns-- > 0)
		event_base_loop(loop_base(r->loop), EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

static void on_settled(void *ctx)
{
	*(bool *)ctx = true;
}

void rig_settle(struct rig *r, int ms)
{
	struct loop_timer t = {.loop = NULL};
	bool done = false;

	loop_timer_in(r->loop, &t, ms, on_settled, &done);
	while (!done)
		rig_turn(r);
}

void rig_wait_connections(struct rig *r, struct rpc_server *s, unsigned n)
{
	rig_guard(r, "connections are closed");
	while (rpc_server_connections(s) != n)
		rig_settle(r, 5);
	rig_unguard();
}

unsigned open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n - 3; /* ".", ".." and the directory itself */
}
