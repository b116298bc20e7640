/* metrics_port.c - a page is put together once a second at most, and shared by all requests
 * meanwhile: neither many requests nor slow readers cost more than one scrape.
 */
#include "metrics_port.h"
#include "base/http/public.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "common/mem.h"
#include <event2/buffer.h>
#include <string.h>

enum { FRESH_MS = 1000 };

struct metrics_port {
	struct loop *loop;
	struct metrics_port_rig rig;
	struct http_public *server;
	struct evbuffer *page; /* NULL: nobody asked yet */
	int64_t made_ms;
};

static void make_metrics(struct metrics_port *p)
{
	const int64_t now = loop_uptime_ms(p->loop);

	if (p->page && now - p->made_ms < FRESH_MS)
		return;
	if (p->page)
		evbuffer_free(p->page); /* a request that still reads it keeps it */
	p->page = evbuffer_new();
	p->made_ms = now;
	p->rig.before(p->rig.ctx);
	metrics_render(p->page);
}

static void serve_health(const struct metrics_port *p, struct page *page)
{
	const char *why_not = p->rig.why_not(p->rig.ctx);

	page->status = why_not ? 503 : 200;
	evbuffer_add_printf(page->body, "%s\n", why_not ? why_not : "ok");
}

static void on_asked(void *ctx, const char *path, struct page *page)
{
	struct metrics_port *p = ctx;

	if (!strcmp(path, "/healthz"))
		return serve_health(p, page);
	if (strcmp(path, "/metrics") != 0)
		return;
	make_metrics(p);
	page->status = 200;
	page->type = METRICS_TYPE;
	evbuffer_add_buffer_reference(page->body, p->page);
}

struct metrics_port *metrics_port_new(
    struct loop *l, int listen_fd, const struct metrics_port_rig *rig)
{
	struct metrics_port *p = mem_zalloc(sizeof(*p));

	p->loop = l;
	p->rig = *rig;
	p->server = http_public_new(l, listen_fd, on_asked, p);
	return p;
}

void metrics_port_stop_accepting(struct metrics_port *p)
{
	http_public_stop_accepting(p->server);
}

void metrics_port_free(struct metrics_port **port)
{
	struct metrics_port *p = take(*port);

	if (!p)
		return;
	http_public_free(&p->server);
	if (p->page)
		evbuffer_free(p->page);
	free(p);
}
