/* rpc.c - the runtime: one completion queue, one thread that drains it, one eventfd.
 *
 * grpc polls its sockets only inside grpc_completion_queue_next(), so a thread has to sit there
 * (grpc-core.md 2).  It does nothing but move each finished tag to `inbox`, and writes the eventfd
 * when the inbox was empty: one wake-up of the loop serves all tags that came since the last.  What
 * is finished while it is started (a message that is here is read, a socket with room written to)
 * does not go there: grpc hands its tag to the thread that started it (grpc-core.md 2).  The loop takes the whole
 * inbox at a time and runs a bounded number of tags per turn, so that timers and other fds get
 * theirs (R6).
 *
 * A burst (pods that come, many messages or large ones) leaves freed memory that malloc would keep:
 * once it is quiet again, that goes back to the kernel, once for each burst.
 *
 * The end: everything is cancelled, the loop's thread runs tags here until none is under way, then
 * the queue is shut down and the drainer leaves (the order is that of grpc-core.md 7).
 */
#include "common/log.h"
#include "common/mem.h"
#include "rpc_internal.h"
#include "tap.h"

#include <malloc.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <utlist.h>

LOG_SCOPE("rpc");

enum {
	TAGS_PER_TURN = 64,
	STUCK_MS = 2000,
	BURST_TAGS = 200, /* some ten new pods */
	BURST_BYTES = 4 << 20,
	QUIET_MS = 1000,
};

void rpc_wake(struct rpc *r)
{
	eventfd_write(r->wake_fd, 1);
}

static void *drain(void *arg)
{
	struct rpc *r = arg;
	grpc_event ev;

	for (;;) {
		ev = grpc_completion_queue_next(r->cq, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
		if (ev.type == GRPC_QUEUE_SHUTDOWN)
			return NULL;
		struct rpc_tag *t = ev.tag;

		if (!t) {
			atomic_fetch_add(&r->answered, 1);
			continue;
		}
		pthread_mutex_lock(&r->lock);
		t->ok = ev.success;
		bool was_empty = !r->inbox.first;
		rpc_tags_add(&r->inbox, t);
		pthread_mutex_unlock(&r->lock);
		if (was_empty)
			rpc_wake(r);
	}
}

static void take_inbox(struct rpc *r)
{
	eventfd_t ignored;

	/* The eventfd first: a tag that comes in between then wakes us once too often, not too
	 * little. */
	eventfd_read(r->wake_fd, &ignored);
	pthread_mutex_lock(&r->lock);
	rpc_tags_move(&r->ready, &r->inbox);
	pthread_mutex_unlock(&r->lock);
}

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

static void run_tags(struct rpc *r)
{
	struct rpc_tag *t;

	for (unsigned n = 0; n < TAGS_PER_TURN && (t = rpc_tags_take(&r->ready)); n++) {
		r->pending--;
		r->tags++;
		t->done(t, t->ok);
	}
}

static void take_turn(struct rpc *r)
{
	r->running = true;
	take_inbox(r);
	rpc_intake_run(r); /* first: it may make tags ready */
	run_tags(r);
	rpc_server_tell_news(r);
	r->running = false;
	watch_burst(r);
	if (r->ready.first)
		rpc_wake(r);
}

static void on_wake(void *ctx)
{
	struct rpc *r = ctx;

	r->wakes++;
	take_turn(r);
}

void *rpc_tag_start(struct rpc *r, struct rpc_tag *t, rpc_tag_done done)
{
	/* From here on the tag is the drainer's.  grpc's own locks order that, too, but
	 * ThreadSanitizer does not see them. */
	pthread_mutex_lock(&r->lock);
	t->done = done;
	pthread_mutex_unlock(&r->lock);
	r->pending++;
	return t;
}

static void is_ready(struct rpc *r, struct rpc_tag *t, bool ok)
{
	t->ok = ok;
	rpc_tags_add(&r->ready, t);
	if (!r->running)
		rpc_wake(r);
}

/* grpc keeps the first tag that is finished meanwhile for us; others go to the drainer. */
void rpc_batch_start(struct rpc *r, const struct rpc_batch *b, struct rpc_tag *t, rpc_tag_done done)
{
	void *finished;
	int ok;

	grpc_completion_queue_thread_local_cache_init(r->cq);
	grpc_call_error why =
	    grpc_call_start_batch(b->call, b->ops, b->n, rpc_tag_start(r, t, done), NULL);
	if (grpc_completion_queue_thread_local_cache_flush(r->cq, &finished, &ok))
		is_ready(r, finished, ok);
	if (why != GRPC_CALL_OK) {
		log_error(NULL, "grpc refused operation %d: error %d", (int)b->ops->op, (int)why);
		abort();
	}
}

/* --- does the drainer turn? --- */

/* A batch of nothing is done at once, and its tag (NULL) goes the way of all tags. */
static void echo_new(struct rpc *r)
{
	r->lame = grpc_lame_client_channel_create("", GRPC_STATUS_UNAVAILABLE, "");
	r->echo = grpc_channel_create_call(r->lame, NULL, GRPC_PROPAGATE_DEFAULTS, r->cq,
	    grpc_slice_from_static_string("/"), NULL, gpr_inf_future(GPR_CLOCK_REALTIME), NULL);
}

static void echo_free(struct rpc *r)
{
	grpc_call_unref(r->echo);
	grpc_channel_destroy(r->lame);
}

bool rpc_turns(struct rpc *r)
{
	if (atomic_load(&r->answered) != r->asked)
		return false;
	r->asked++;
	if (grpc_call_start_batch(r->echo, NULL, 0, NULL, NULL) != GRPC_CALL_OK)
		abort();
	return true;
}

/* --- life --- */

struct rpc *rpc_new(struct loop *l)
{
	struct rpc *r = mem_zalloc(sizeof(*r));

	r->loop = l;
	rpc_tags_init(&r->inbox);
	rpc_tags_init(&r->ready);
	pthread_mutex_init(&r->lock, NULL);
	r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->wake_fd < 0)
		abort();
	rpc_log_init();
	/* The loop's, and one for grpc, which reads on whichever of its threads is awake: what one
	 * of them freed would be no use to the next, and a push would take its bound more than
	 * once.
	 */
	mallopt(M_ARENA_MAX, 2);
	/* A connection keeps the block it reads into.  By default that is 64 KiB once a message was
	 * larger than 12 KiB; without this it is what the server's arguments say. */
	setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", 0);
	grpc_init();
	r->cq = grpc_completion_queue_create_for_next(NULL);
	echo_new(r);
	if (pthread_create(&r->drainer, NULL, drain, r) != 0)
		abort();
	pthread_setname_np(r->drainer, "rpc-drain");
	rpc_guard_tell(r->wake_fd);
	rpc_tap_tell(r->wake_fd);
	loop_fd_watch(l, &r->watch, r->wake_fd, LOOP_READ, on_wake, r);
	return r;
}

/* Every tag comes back soon after its call, server or channel was cancelled, but for writes to a
 * connection whose peer does not read: those hang until the kernel gives the connection up. */
static bool wait_for_tags(struct rpc *r)
{
	struct pollfd p = {.fd = r->wake_fd, .events = POLLIN};

	while (r->pending > 0) {
		if (poll(&p, 1, STUCK_MS) == 0)
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
	if (!wait_for_tags(r)) {
		log_error(NULL, "%zu grpc operations did not end and were left behind", r->pending);
		return;
	}
	echo_free(r);
	grpc_completion_queue_shutdown(r->cq);
	pthread_join(r->drainer, NULL);
	grpc_completion_queue_destroy(r->cq);
	/* No grpc_shutdown(): it joins a helper that, after a write to a full socket, sits in epoll
	 * for up to 10 s.  The rest is reachable and idle, and exit is safe with it
	 * (grpc-core.md 7).
	 */
	close(r->wake_fd);
	pthread_mutex_destroy(&r->lock);
	free(r);
}
