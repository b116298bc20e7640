/* rpc.c - the runtime: its turns, its beginning and its end.
 *
 * The loop's thread waits in grpc (wait.c).  What it fetched there has a turn of a bounded number
 * of tags, so that timers and other fds get theirs (R6).
 *
 * A burst (pods that come, many messages or large ones) leaves freed memory that malloc would keep:
 * once it is quiet again, that goes back to the kernel, once for each burst.
 *
 * The end: everything is cancelled, tags run here until none is under way, then the queue is shut
 * down (the order is that of grpc-core.md 7).
 */
#include "common/log.h"
#include "common/mem.h"
#include "rpc_internal.h"
#include "server_internal.h"
#include "tap.h"
#include "wait.h"

#include <event2/event.h>
#include <malloc.h>
#include <utlist.h>

LOG_SCOPE("rpc");

enum {
	STUCK_MS = 2000,
	BURST_TAGS = 200, /* some ten new pods */
	BURST_BYTES = 4 << 20,
	QUIET_MS = 1000,
};

static bool is_burst(const struct rpc *r)
{
	return r->tags - r->burst_tags >= BURST_TAGS || r->bytes - r->burst_bytes >= BURST_BYTES;
}

static void note_burst(struct rpc *r)
{
	r->burst_tags = r->tags;
	r->burst_bytes = r->bytes;
}

static void on_quiet(void *ctx)
{
	struct rpc *r = ctx;
	bool goes_on = is_burst(r);

	note_burst(r);
	if (goes_on)
		loop_timer_in(r->loop, &r->quiet, QUIET_MS, on_quiet, r);
	else
		malloc_trim(0);
}

static void watch_burst(struct rpc *r)
{
	if (r->quiet.armed || r->ending || !is_burst(r))
		return;
	note_burst(r);
	loop_timer_in(r->loop, &r->quiet, QUIET_MS, on_quiet, r);
}

static void take_turn(struct rpc *r)
{
	r->running = true;
	r->wait.due = false;
	rpc_intake_run(r); /* first: it may make tags ready */
	rpc_queue_run(r);
	rpc_server_tell_news(r);
	r->running = false;
	r->wait.due |= r->ready.first != NULL;
	watch_burst(r);
}

static void on_wake(void *ctx)
{
	struct rpc *r = ctx;

	r->wakes++;
	take_turn(r);
}

/* --- life --- */

/* A libevent or a grpc that sleeps in another call would never hear of the other.  Of the process's
 * first runtime: later ones may have events that were left. */
static void check_sleep(struct rpc *r)
{
	static bool checked;
	unsigned calls = rpc_wait_calls();

	if (checked)
		return;
	checked = true;
	struct event_base *b = event_base_new();

	event_base_loop(b, EVLOOP_NONBLOCK | EVLOOP_NO_EXIT_ON_EMPTY);
	bool seen = rpc_wait_calls() != calls;

	event_base_free(b);
	calls = rpc_wait_calls();
	rpc_queue_fetch(r, 0);
	if (seen && rpc_wait_calls() != calls)
		return;
	log_error(NULL, "%s sleeps in a way that agentd does not know", seen ? "grpc" : "libevent");
	abort();
}

struct rpc *rpc_new(struct loop *l)
{
	struct rpc *r = mem_zalloc(sizeof(*r));

	r->loop = l;
	rpc_log_init();
	/* The loop's, and one for grpc, which reads on whichever of its threads is awake: what one
	 * of them freed would be no use to the next, and a push would take its bound more than
	 * once.
	 */
	mallopt(M_ARENA_MAX, 2);
	/* A connection keeps the block it reads into.  By default that is 64 KiB once a message was
	 * larger than 12 KiB; without this it is what the server's arguments say. */
	setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", 0);
	setenv("GRPC_POLL_STRATEGY", "epoll1", 1); /* what wait.c and portion.c know */
	grpc_init();
	rpc_queue_begin(r);
	check_sleep(r);
	rpc_guard_tell(r->wait.wake_fd);
	rpc_tap_tell(r->wait.wake_fd);
	rpc_wait_begin(&r->wait);
	loop_fd_watch(l, &r->watch, r->wait.wake_fd, LOOP_READ, on_wake, r);
	return r;
}

/* Every tag comes back soon after its call, server or channel was cancelled, but for writes to a
 * connection whose peer does not read: those hang until the kernel gives the connection up. */
static bool wait_for_tags(struct rpc *r)
{
	while (r->pending > 0) {
		if (!rpc_queue_fetch(r, r->ready.first ? 0 : STUCK_MS) && !r->ready.first)
			return false;
		take_turn(r);
	}
	return true;
}

static void end_all(struct rpc *r)
{
	struct rpc_stream *s, *next;

	r->ending = true;
	DL_FOREACH_SAFE (r->streams, s, next)
		rpc_stream_abandon(s);
	rpc_server_drop_all(r);
	rpc_channel_drop_all(r);
}

void rpc_free(struct rpc **rp)
{
	struct rpc *r = take(*rp);

	if (!r)
		return;
	if (r->running)
		abort(); /* inside an event of its own there is somebody to return to */
	rpc_guard_tell(-1);
	rpc_tap_tell(-1);
	end_all(r);
	loop_timer_stop(&r->quiet);
	rpc_intake_run(r);
	loop_timer_stop(&r->intake.crowded);
	loop_fd_stop(&r->watch);
	rpc_wait_end(&r->wait);
	if (!wait_for_tags(r)) {
		log_error(NULL, "%zu grpc operations did not end and were left behind", r->pending);
		return;
	}
	rpc_queue_end(r);
	/* No grpc_shutdown(): it joins a helper that, after a write to a full socket, sits in epoll
	 * for up to 10 s.  The rest is reachable and idle, and exit is safe with it
	 * (grpc-core.md 7).
	 */
	free(r);
}
