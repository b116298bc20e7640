/* news.c - the ring is readable -> each record's pod is found, and told.  The ring is small, so one
 * turn empties it; what found no room is seen by the next audit.
 */
#include "news.h"
#include "broker/base/loop.h"
#include "common/mem.h"
#include "table.h"
#include <bpf/libbpf.h>
#include <string.h>
#include <sys/epoll.h>

struct redirect_news_ring {
	int epoll;
	struct redirect *redirect;
	struct ring_buffer *ring;
	struct broker_watch readable;
	redirect_news_heard heard;
	void *ctx;
};

static int on_record(void *ctx, void *data, size_t size)
{
	struct redirect_news_ring *n = ctx;
	struct redirect_news record;
	struct uuid pod;

	if (size < sizeof(record))
		return 0;
	memcpy(&record, data, sizeof(record));
	if (!ebpf_pod_uid(n->redirect, record.index, &pod)) /* else it went meanwhile */
		n->heard(n->ctx, &pod, record.kind);
	return 0;
}

static void on_readable(void *ctx, uint32_t events)
{
	struct redirect_news_ring *n = ctx;

	(void)events;
	ring_buffer__consume(n->ring);
}

struct redirect_news_ring *ebpf_news_new(
    int epoll, struct redirect *r, redirect_news_heard heard, void *ctx, struct err *e)
{
	struct redirect_news_ring *n = mem_zalloc(sizeof(*n));

	*n = (struct redirect_news_ring){.epoll = epoll, .redirect = r, .heard = heard, .ctx = ctx};
	n->ring = ring_buffer__new(bpf_map__fd(r->bpf->maps.news), on_record, n, NULL);
	if (n->ring) {
		n->readable = (struct broker_watch){
		    .fd = ring_buffer__epoll_fd(n->ring), .ready = on_readable, .ctx = n};
		if (!broker_watch_start(epoll, &n->readable, EPOLLIN))
			return n;
	}
	err_sys(e, "the ring of news");
	ring_buffer__free(n->ring);
	free(n);
	return NULL;
}

void ebpf_news_free(struct redirect_news_ring **slot)
{
	struct redirect_news_ring *n = take(*slot);

	if (!n)
		return;
	broker_watch_end(n->epoll, &n->readable);
	ring_buffer__free(n->ring);
	free(n);
}
