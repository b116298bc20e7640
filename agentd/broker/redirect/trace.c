/* trace.c - asked for: a pipe; its pods get the flag -> the programs write into the ring -> we copy
 * each record into the pipes that want it, at most so many a turn -> a pipe has no reader any more:
 * its pods lose the flag, and with the last one the ring is let go.
 */
#include "trace.h"
#include "broker/base/loop.h"
#include "broker/ebpf/table.h"
#include "common/err.h"
#include "common/mem.h"
#include "pod.h"
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>
#include <utlist.h>

enum { PER_TURN = 1024 };

struct tracing {
	struct redirect_traces *all;
	struct uuid pod; /* zero: all */
	struct broker_watch pipe;
	uint32_t lost; /* since the last record that was written */
	struct tracing *prev, *next;
};

struct redirect_traces {
	int epoll;
	struct redirect *redirect;
	struct ring_buffer *ring; /* NULL: nobody looks */
	struct broker_watch readable;
	uint64_t lost; /* as the programs had counted */
	unsigned taken;
	struct tracing *list;
};

static bool wants(const struct tracing *t, const struct uuid *pod)
{
	static const struct uuid all;

	return uuid_equal(&t->pod, &all) || uuid_equal(&t->pod, pod);
}

void redirect_traces_apply(struct redirect_traces *t, const struct uuid *pod)
{
	const struct tracing *one;
	bool wanted = false;

	DL_FOREACH (t->list, one)
		wanted |= wants(one, pod);
	ebpf_pod_trace(t->redirect, pod, wanted);
}

static void apply(void *ctx, const struct uuid *pod)
{
	redirect_traces_apply(ctx, pod);
}

/* --- the ring --- */

/* A pipe takes a record whole or not at all. */
static void copy(struct tracing *t, struct link_trace *record)
{
	record->lost = t->lost;
	if (write(t->pipe.fd, record, sizeof(*record)) == sizeof(*record))
		t->lost = 0;
	else
		t->lost++;
}

static int on_record(void *ctx, void *data, size_t size)
{
	struct redirect_traces *t = ctx;
	struct tracing *one;
	struct link_trace record;

	if (size < sizeof(record.trace))
		return 0;
	memset(&record, 0, sizeof(record));
	memcpy(&record.trace, data, sizeof(record.trace));
	if (ebpf_pod_uid(t->redirect, record.trace.index, &record.pod))
		return 0; /* it went meanwhile */
	DL_FOREACH (t->list, one)
		if (wants(one, &record.pod))
			copy(one, &record);
	return ++t->taken < PER_TURN ? 0 : -EAGAIN;
}

/* Those that had no room in the ring are told with the next record that had. */
static void count_lost(struct redirect_traces *t)
{
	uint64_t now = __atomic_load_n(&t->redirect->bpf->bss->traces_lost, __ATOMIC_RELAXED);
	struct tracing *one;

	DL_FOREACH (t->list, one)
		one->lost += (uint32_t)(now - t->lost);
	t->lost = now;
}

static void on_readable(void *ctx, uint32_t events)
{
	struct redirect_traces *t = ctx;

	(void)events;
	t->taken = 0;
	count_lost(t);
	ring_buffer__consume(t->ring);
}

static void close_ring(struct redirect_traces *t)
{
	if (!t->ring)
		return;
	broker_watch_end(t->epoll, &t->readable);
	ring_buffer__free(t->ring);
	t->ring = NULL;
}

/* What was written after the last reader had gone. */
static void drop_old(struct redirect_traces *t)
{
	do {
		t->taken = 0;
		ring_buffer__consume(t->ring);
	} while (t->taken == PER_TURN);
}

static int open_ring(struct redirect_traces *t, struct err *e)
{
	if (t->ring)
		return 0;
	t->ring = ring_buffer__new(bpf_map__fd(t->redirect->bpf->maps.traces), on_record, t, NULL);
	if (!t->ring)
		return err_sys(e, "the ring of traces");
	t->lost = __atomic_load_n(&t->redirect->bpf->bss->traces_lost, __ATOMIC_RELAXED);
	drop_old(t);
	t->readable = (struct broker_watch){
	    .fd = ring_buffer__epoll_fd(t->ring), .ready = on_readable, .ctx = t};
	if (broker_watch_start(t->epoll, &t->readable, EPOLLIN)) {
		err_sys(e, "watch the ring of traces");
		ring_buffer__free(t->ring);
		t->ring = NULL;
		return -1;
	}
	return 0;
}

/* --- readers --- */

static void end(struct tracing *one)
{
	struct redirect_traces *t = one->all;

	broker_watch_end(t->epoll, &one->pipe);
	close(one->pipe.fd);
	DL_DELETE(t->list, one);
	free(one);
	redirect_pods(t->redirect, apply, t);
	if (!t->list)
		close_ring(t);
}

/* Nothing but the reader's end can happen to the end that is written. */
static void on_reader_left(void *ctx, uint32_t events)
{
	(void)events;
	end(ctx);
}

static int check_room(const struct redirect_traces *t, struct err *e)
{
	const struct tracing *one;
	int n;

	DL_COUNT(t->list, one, n);
	if (n >= REDIRECT_TRACES_MAX)
		return err_set(e, EBUSY, "%d traces run already; no more may run at a time", n);
	return 0;
}

/* The reader's end. */
static int add(struct redirect_traces *t, const struct uuid *pod, struct err *e)
{
	struct tracing *one;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return err_sys(e, "a pipe for the trace");
	one = mem_zalloc(sizeof(*one));
	one->all = t;
	one->pod = *pod;
	one->pipe = (struct broker_watch){.fd = ends[1], .ready = on_reader_left, .ctx = one};
	DL_APPEND(t->list, one);
	if (broker_watch_start(t->epoll, &one->pipe, 0)) { /* errors only */
		err_sys(e, "watch the trace's pipe");
		close(ends[0]);
		end(one);
		return -1;
	}
	redirect_pods(t->redirect, apply, t);
	return ends[0];
}

int redirect_traces_add(struct redirect_traces *t, const struct uuid *pod, struct err *e)
{
	int reader;

	if (check_room(t, e) || open_ring(t, e))
		return -1;
	reader = add(t, pod, e);
	if (!t->list)
		close_ring(t);
	return reader;
}

/* --- life --- */

struct redirect_traces *redirect_traces_new(int epoll, struct redirect *r)
{
	struct redirect_traces *t = mem_zalloc(sizeof(*t));

	t->epoll = epoll;
	t->redirect = r;
	redirect_pods(r, apply, t); /* an earlier broker may have had readers */
	return t;
}

void redirect_traces_free(struct redirect_traces **tp)
{
	struct redirect_traces *t = take(*tp);
	struct tracing *one, *tmp;

	if (!t)
		return;
	DL_FOREACH_SAFE (t->list, one, tmp)
		end(one);
	free(t);
}
