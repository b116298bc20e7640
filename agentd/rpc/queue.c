/* queue.c - operations under way: one completion queue, which the loop's thread empties while it
 * waits (wait.c).
 *
 * What is finished while it is started (a message that is here is read, a socket with room written
 * to) does not go there: grpc hands its tag to the thread that started it (grpc-core.md 2).
 */
#include "common/log.h"
#include "rpc_internal.h"

#include <sys/eventfd.h>
#include <unistd.h>

LOG_SCOPE("rpc");

enum { TAGS_PER_TURN = 64 };

static gpr_timespec in_ms(int ms)
{
	if (ms < 0)
		return gpr_inf_future(GPR_CLOCK_MONOTONIC);
	if (ms == 0)
		return gpr_time_0(GPR_CLOCK_MONOTONIC);
	return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(ms, GPR_TIMESPAN));
}

static void is_ready(struct rpc *r, struct rpc_tag *t, bool ok)
{
	t->ok = ok;
	rpc_tags_add(&r->ready, t);
	r->wait.due = true;
}

bool rpc_queue_fetch(struct rpc *r, int ms)
{
	unsigned n = 0;

	for (gpr_timespec until = in_ms(ms); n < TAGS_PER_TURN; n++, until = in_ms(0)) {
		grpc_event ev = grpc_completion_queue_next(r->cq, until, NULL);
		struct rpc_tag *t = ev.tag;

		if (ev.type != GRPC_OP_COMPLETE)
			break;
		if (!t)
			continue; /* an echo */
		is_ready(r, t, ev.success);
	}
	return n > 0;
}

void rpc_queue_run(struct rpc *r)
{
	struct rpc_tag *t;

	for (unsigned n = 0; n < TAGS_PER_TURN && (t = rpc_tags_take(&r->ready)); n++) {
		r->pending--;
		r->tags++;
		t->done(t, t->ok);
	}
}

void *rpc_tag_start(struct rpc *r, struct rpc_tag *t, rpc_tag_done done)
{
	t->done = done;
	r->pending++;
	return t;
}

void rpc_catch_begin(struct rpc *r)
{
	grpc_completion_queue_thread_local_cache_init(r->cq);
}

void rpc_catch_end(struct rpc *r)
{
	void *finished;
	int ok;

	if (grpc_completion_queue_thread_local_cache_flush(r->cq, &finished, &ok))
		is_ready(r, finished, ok);
}

void rpc_batch_start(struct rpc *r, const struct rpc_batch *b, struct rpc_tag *t, rpc_tag_done done)
{
	rpc_catch_begin(r);
	grpc_call_error why =
	    grpc_call_start_batch(b->call, b->ops, b->n, rpc_tag_start(r, t, done), NULL);
	rpc_catch_end(r);
	if (why != GRPC_CALL_OK) {
		log_error(NULL, "grpc refused operation %d: error %d", (int)b->ops->op, (int)why);
		abort();
	}
}

/* --- an end of the wait --- */

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

static void sleep_in_queue(struct rpc_wait *w, int ms)
{
	rpc_queue_fetch(tag_owner(w, struct rpc, wait), ms);
}

static void stir(struct rpc_wait *w)
{
	const struct rpc *r = tag_owner(w, struct rpc, wait);

	if (grpc_call_start_batch(r->echo, NULL, 0, NULL, NULL) != GRPC_CALL_OK)
		abort();
}

/* --- life --- */

void rpc_queue_begin(struct rpc *r)
{
	rpc_tags_init(&r->ready);
	r->wait = (struct rpc_wait){.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
	    .sleep = sleep_in_queue,
	    .stir = stir};
	if (r->wait.wake_fd < 0)
		abort();
	r->cq = grpc_completion_queue_create_for_next(NULL);
	echo_new(r);
}

void rpc_queue_end(struct rpc *r)
{
	echo_free(r);
	grpc_completion_queue_shutdown(r->cq);
	while (grpc_completion_queue_next(r->cq, in_ms(-1), NULL).type != GRPC_QUEUE_SHUTDOWN)
		;
	grpc_completion_queue_destroy(r->cq);
	close(r->wait.wake_fd);
}
