/* admin.c
 *
 * request -> who is it? (root of the node only) -> a page of the table, or one of the three that
 * are always there: /healthz, /metrics, /logging -> answer, in the same callback.
 */
#include "admin.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <event2/buffer.h>
#include <string.h>

LOG_SCOPE("admin");

enum { PAGES_MAX = 16 };

struct page {
	const char *path;
	http_handler serve;
	void *ctx;
};

struct admin {
	struct http_server *server;
	struct page pages[PAGES_MAX];
	unsigned npages;
	void (*before_metrics)(void *ctx);
	void *before_ctx;
	void (*levels_changed)(void *ctx);
	void *levels_ctx;
};

static void reply_text(struct http_request *req, int status, const char *text)
{
	struct evbuffer *body = evbuffer_new();

	evbuffer_add(body, text, strlen(text));
	http_reply(req, status, "text/plain; charset=utf-8", body);
	evbuffer_free(body);
}

/* Takes the value; NULL: it cannot be written as JSON. */
static struct evbuffer *json_body(json_t *value)
{
	auto_free char *text = json_dumps(value, JSON_INDENT(2));
	struct evbuffer *body;

	json_decref(value);
	if (!text)
		return NULL;
	body = evbuffer_new();
	evbuffer_add_printf(body, "%s\n", text);
	return body;
}

void admin_reply_json(struct http_request *req, json_t *value)
{
	struct evbuffer *body = json_body(value);

	if (!body) {
		log_error(NULL, "%s: cannot be written as JSON", http_path(req));
		return reply_text(req, 500, "agentd cannot write this as JSON\n");
	}
	http_reply(req, 200, "application/json", body);
	evbuffer_free(body);
}

void admin_later_text(struct http_later **slot, int status, const char *text)
{
	struct evbuffer *body = evbuffer_new();

	evbuffer_add_printf(body, "%s\n", text);
	http_later_reply(slot, status, "text/plain; charset=utf-8", body);
	evbuffer_free(body);
}

void admin_later_json(struct http_later **slot, json_t *value)
{
	struct evbuffer *body = json_body(value);

	if (!body)
		return admin_later_text(slot, 500, "agentd cannot write this as JSON");
	http_later_reply(slot, 200, "application/json", body);
	evbuffer_free(body);
}

static void serve_metrics(struct admin *a, struct http_request *req)
{
	struct evbuffer *body = evbuffer_new();

	if (a->before_metrics)
		a->before_metrics(a->before_ctx);
	metrics_render(body);
	http_reply(req, 200, METRICS_TYPE, body);
	evbuffer_free(body);
}

static void add_scope(void *ctx, const char *scope, const char *level)
{
	json_object_set_new(ctx, scope, json_string(level));
}

/* GET shows the levels; POST changes some, then shows them all. */
static void serve_logging(struct admin *a, struct http_request *req)
{
	const char *spec = http_query(req, "level"), *method = http_method(req);
	json_t *scopes;
	struct err e;

	if (!strcmp(method, "POST")) {
		if (!spec)
			return reply_text(
			    req, 400, "no level given; for example: /logging?level=xds:debug\n");
		if (log_set_levels(spec, &e)) {
			auto_free char *text = mem_printf("%s\n", e.msg);

			return reply_text(req, 400, text);
		}
		log_info(NULL, "log levels changed: %s", spec);
		if (a->levels_changed)
			a->levels_changed(a->levels_ctx);
	} else if (spec || strcmp(method, "GET") != 0) {
		return reply_text(req, 405, "use POST to change a log level\n");
	}
	scopes = json_object();
	log_each_scope(add_scope, scopes);
	admin_reply_json(req, scopes);
}

static void serve_get(struct admin *a, struct http_request *req, const char *path)
{
	if (strcmp(http_method(req), "GET") != 0)
		return reply_text(req, 405, "this page is read-only\n");
	if (!strcmp(path, "/healthz"))
		return reply_text(req, 200, "ok\n");
	if (!strcmp(path, "/metrics"))
		return serve_metrics(a, req);
	for (unsigned i = 0; i < a->npages; i++) {
		const struct page *p = &a->pages[i];

		if (!strcmp(path, p->path))
			return p->serve(p->ctx, req);
	}
	reply_text(req, 404, "no such page\n");
}

static void on_request(void *ctx, struct http_request *req)
{
	struct admin *a = ctx;
	const char *path = http_path(req);

	/* The socket is 0600 already; this holds also for an fd that was handed around.  Root of a
	 * user namespace has another uid here. */
	if (http_peer_uid(req) != 0) {
		log_warn(NULL, "refused a peer with uid %d on the admin socket",
		    (int)http_peer_uid(req));
		return reply_text(req, 403, "only root may use this socket\n");
	}
	if (!http_peer_is_here(req)) {
		log_warn(NULL, "refused a peer of another network namespace on the admin socket");
		return reply_text(
		    req, 403, "only root in agentd's own network namespace may use this socket\n");
	}
	if (!strcmp(path, "/logging"))
		return serve_logging(a, req);
	serve_get(a, req, path);
}

struct admin *admin_new(struct loop *l, int listen_fd)
{
	struct admin *a = mem_zalloc(sizeof(*a));

	a->server = http_server_new(l, listen_fd, on_request, a);
	return a;
}

void admin_free(struct admin **a)
{
	if (!*a)
		return;
	http_server_free(&(*a)->server);
	free(take(*a));
}

void admin_serve(struct admin *a, const char *path, http_handler serve, void *ctx)
{
	if (a->npages == PAGES_MAX)
		abort(); /* a fixed list, made at start */
	a->pages[a->npages++] = (struct page){.path = path, .serve = serve, .ctx = ctx};
}

void admin_on_levels(struct admin *a, void (*changed)(void *ctx), void *ctx)
{
	a->levels_changed = changed;
	a->levels_ctx = ctx;
}

void admin_before_metrics(struct admin *a, void (*before)(void *ctx), void *ctx)
{
	a->before_metrics = before;
	a->before_ctx = ctx;
}
