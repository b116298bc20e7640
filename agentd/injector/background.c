/* background.c - added -> its turn -> on the thread -> done -> the next one. */
#include "background.h"
#include "base/metrics.h"
#include "common/mem.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct background {
	struct loop *loop;
	struct loop_work *work; /* NULL: the thread rests */
	struct background_job *running, *waiting;
	unsigned n; /* that wait */
	struct metric *gauge;
};

static void start_next(struct background *b);

static void on_run(void *ctx)
{
	const struct background *b = ctx;

	if (b->running)
		b->running->run(b->running->ctx);
}

/* Behind all others: of many peers each has its turn. */
static void put_last(struct background *b, const struct in6_addr *peer)
{
	struct background_job *job = NULL, *next = NULL, *its = NULL;

	DL_FOREACH_SAFE (b->waiting, job, next) {
		if (memcmp(&job->peer, peer, sizeof(*peer)) != 0)
			continue;
		DL_DELETE(b->waiting, job);
		DL_APPEND(its, job);
	}
	DL_CONCAT(b->waiting, its);
}

static void on_done(void *ctx)
{
	struct background *b = ctx;
	struct background_job *job = b->running;

	b->running = NULL;
	if (job)
		put_last(b, &job->peer);
	start_next(b);
	if (job)
		job->done(job->ctx);
}

static void count(struct background *b, int more)
{
	b->n += (unsigned)more;
	metric_set(b->gauge, "", b->n);
}

static void start_next(struct background *b)
{
	struct background_job *job = b->waiting;

	if (b->work || !job)
		return;
	DL_DELETE(b->waiting, job);
	count(b, -1);
	b->running = job;
	loop_work(b->loop, &b->work, on_run, on_done, b);
}

void background_add(struct background *b, struct background_job *job)
{
	DL_APPEND(b->waiting, job);
	count(b, 1);
	start_next(b);
}

bool background_drop(struct background *b, struct background_job *job)
{
	if (job == b->running)
		return false;
	DL_DELETE(b->waiting, job);
	count(b, -1);
	return true;
}

struct background *background_new(struct loop *l)
{
	struct background *b = mem_zalloc(sizeof(*b));

	b->loop = l;
	b->gauge = metric_gauge("agentd_injector_waiting_reviews",
	    "Questions about large pods that wait for their turn");
	count(b, 0);
	loop_work(l, &b->work, on_run, on_done, b); /* nothing: it starts the thread */
	return b;
}

void background_free(struct background **bp)
{
	struct background *b = take(*bp);

	if (!b)
		return;
	loop_work_cancel(&b->work);
	free(b);
}
