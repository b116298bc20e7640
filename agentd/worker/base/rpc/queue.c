/* queue.c - operations under way: one completion queue, one thread that drains it, one eventfd.
 *
 * grpc polls its sockets only inside grpc_completion_queue_next(), so a thread has to sit there
 * (grpc-core.md 2).  It does nothing but move each finished tag to `inbox`, and writes the eventfd
 * when the inbox was empty.  What is finished while it is started (a message that is here is read,
 * a socket with room written to) does not go there: grpc hands its tag to the thread that started
 * it (grpc-core.md 2).
 */
#include "common/log.h"
#include "rpc_internal.h"

#include <sys/eventfd.h>
#include <unistd.h>

LOG_SCOPE("rpc");

enum { TAGS_PER_TURN = 64 };

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

void rpc_queue_take(struct rpc *r)
{
	eventfd_t ignored;

	/* The eventfd first: a tag that comes in between then wakes us once too often, not too
	 * little. */
	eventfd_read(r->wake_fd, &ignored);
	pthread_mutex_lock(&r->lock);
	rpc_tags_move(&r->ready, &r->inbox);
	pthread_mutex_unlock(&r->lock);
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

void rpc_queue_begin(struct rpc *r)
{
	rpc_tags_init(&r->inbox);
	rpc_tags_init(&r->ready);
	pthread_mutex_init(&r->lock, NULL);
	r->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (r->wake_fd < 0)
		abort();
	r->cq = grpc_completion_queue_create_for_next(NULL);
	echo_new(r);
	if (pthread_create(&r->drainer, NULL, drain, r) != 0)
		abort();
	pthread_setname_np(r->drainer, "rpc-drain");
}

void rpc_queue_end(struct rpc *r)
{
	echo_free(r);
	grpc_completion_queue_shutdown(r->cq);
	pthread_join(r->drainer, NULL);
	grpc_completion_queue_destroy(r->cq);
	close(r->wake_fd);
	pthread_mutex_destroy(&r->lock);
}
