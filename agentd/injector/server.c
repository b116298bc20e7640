/* server.c - accepted -> TLS (connections.h) -> evhttp reads a request within its limits -> a page,
 * or the handler, at once or in its turn -> the answer; at the end with "Connection: close".
 *
 * evhttp is what reads and writes HTTP.  What it cannot do is in connections.c: it counts no
 * connections, and its timeout begins anew with each byte.
 */
#include "server.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/bufferevent_ssl.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <jansson.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <utlist.h>

#include "background.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "connections.h"
#include "tls.h"

LOG_SCOPE("server");

enum { PAUSE_MS = 100 };

/* A question whose answer may take long. */
struct job {
	struct background_job turn;
	struct server *server;
	struct evhttp_request *request; /* ours alone if it has no connection any more */
	const char *body;
	size_t len;
	struct evbuffer *out;
	void *held; /* of the handler */
	int status;
	struct job *prev, *next;
};

struct server {
	struct loop *loop;
	struct evhttp *evhttp;
	struct evconnlistener *listener;
	struct evhttp_bound_socket *bound;
	struct loop_timer pause;
	bool failing; /* to accept; already said */
	struct connections *connections;
	struct server_handler handler;
	struct background *background;
	struct job *jobs;

	SSL_CTX *tls;
	X509_STORE *clients; /* NULL: everybody may ask */
	int64_t expires_s;   /* 0: no certificate */
	struct loop_timer expiry;
	bool expired;
	char *why;       /* of server_ready_set() */
	char *last_said; /* of the log */
	struct metric *ready, *expiry_s;

	bool stopping;
	struct loop_timer stop;
	loop_cb stopped;
	void *stopped_ctx;
	struct server *next;
};

/* An error callback of evconnlistener is told the evhttp, not us: hence this list. */
static struct server *servers;

/* --- is it ready --- */

const char *server_unready(const struct server *s)
{
	return s->stopping     ? "it is ending"
	       : !s->expires_s ? "it has no certificate"
	       : s->expired    ? "its certificate has expired"
			       : s->why;
}

static void say_ready(struct server *s)
{
	const char *why = server_unready(s);

	metric_set(s->ready, "", !why);
	if (s->stopping || !strcmp(why ? why : "", s->last_said))
		return;
	free(s->last_said);
	s->last_said = mem_strdup(why ? why : "");
	if (why)
		log_warn(NULL, "not ready: %s", why);
	else
		log_info(NULL, "ready");
}

void server_ready_set(struct server *s, const char *why)
{
	char *copy = mem_strdup(why);

	free(s->why);
	s->why = copy;
	say_ready(s);
}

/* --- the certificate --- */

static void on_expired(void *ctx)
{
	struct server *s = ctx;

	s->expired = true;
	say_ready(s);
}

int server_certificate_set(
    struct server *s, const char *chain_pem, const char *key_pem, struct err *e)
{
	struct tls_pair pair = {chain_pem, key_pem, loop_now_ms(s->loop) / 1000};
	int64_t expires_s;
	SSL_CTX *tls;

	if (tls_context_new(&tls, &expires_s, &pair, e))
		return -1;
	if (s->clients)
		tls_clients_ask(tls, s->clients);
	SSL_CTX_free(s->tls); /* connections hold it */
	s->tls = tls;
	s->expires_s = expires_s;
	s->expired = false;
	loop_timer_at(s->loop, &s->expiry, expires_s * 1000, on_expired, s);
	say_ready(s);
	return 0;
}

int server_clients_set(struct server *s, const char *cas_pem, struct err *e)
{
	X509_STORE *clients = tls_clients_new(cas_pem, e);

	if (!clients)
		return -1;
	X509_STORE_free(s->clients);
	s->clients = clients;
	tls_clients_ask(s->tls, clients);
	return 0;
}

/* --- answers --- */

static void answer(struct server *s, struct evhttp_request *r, int status, struct evbuffer *body)
{
	struct evkeyvalq *headers = evhttp_request_get_output_headers(r);
	struct evhttp_connection *c = evhttp_request_get_connection(r);

	if (!evhttp_find_header(headers, "Content-Type"))
		evhttp_add_header(headers, "Content-Type", "text/plain; charset=utf-8");
	if (s->stopping)
		evhttp_add_header(headers, "Connection", "close");
	connections_answer(s->connections, evhttp_connection_get_bufferevent(c));
	if (evhttp_request_get_command(r) == EVHTTP_REQ_HEAD) { /* evhttp would send the body */
		auto_free char *len = mem_printf("%zu", evbuffer_get_length(body));

		evhttp_add_header(headers, "Content-Length", len);
		body = NULL;
	}
	evhttp_send_reply(r, status, NULL, body);
}

static void answer_text(struct server *s, struct evhttp_request *r, int status, const char *text)
{
	struct evbuffer *body = evbuffer_new();

	evbuffer_add_printf(body, "%s\n", text);
	answer(s, r, status, body);
	evbuffer_free(body);
}

/* An API server shows its user the message of a Status, and of another text nothing (injection.md
 * 1). */
static void answer_status(struct server *s, struct evhttp_request *r, int status, const char *why)
{
	json_t *o = json_pack("{s:s, s:s, s:{}, s:s, s:s, s:i}", "kind", "Status", "apiVersion",
	    "v1", "metadata", "status", "Failure", "message", why, "code", status);
	auto_free char *text = json_dumps(o, JSON_COMPACT);

	json_decref(o);
	evhttp_add_header(evhttp_request_get_output_headers(r), "Content-Type", "application/json");
	answer_text(s, r, status, text);
}

/* --- pages --- */

static void on_healthz(struct server *s, struct evhttp_request *r)
{
	answer_text(s, r, 200, "ok");
}

static void on_readyz(struct server *s, struct evhttp_request *r)
{
	const char *why = server_unready(s);

	answer_text(s, r, why ? 503 : 200, why ? why : "ok");
}

static void on_metrics(struct server *s, struct evhttp_request *r)
{
	struct evbuffer *body = evbuffer_new();
	struct evkeyvalq *headers = evhttp_request_get_output_headers(r);

	if (s->expires_s)
		metric_set(
		    s->expiry_s, "", (double)s->expires_s - (double)loop_now_ms(s->loop) / 1000);
	metrics_render(body);
	evhttp_add_header(headers, "Content-Type", METRICS_TYPE);
	answer(s, r, 200, body);
	evbuffer_free(body);
}

static bool is_json(struct evhttp_request *r)
{
	static const char json[] = "application/json";
	const char *type = evhttp_find_header(evhttp_request_get_input_headers(r), "Content-Type");

	return type && !strncasecmp(type, json, strlen(json)) &&
	       (!type[strlen(json)] || strchr("; \t", type[strlen(json)]));
}

static bool may_ask(const struct server *s, struct evhttp_request *r)
{
	struct evhttp_connection *c = evhttp_request_get_connection(r);

	return !s->clients || tls_client_is_known(bufferevent_openssl_get_ssl(
				  evhttp_connection_get_bufferevent(c)));
}

static void answer_handled(
    struct server *s, struct evhttp_request *r, int status, struct evbuffer *out)
{
	struct evbuffer *in = evhttp_request_get_input_buffer(r);

	evbuffer_drain(in, evbuffer_get_length(in)); /* it is counted no more */
	if (status == 200) {
		evhttp_add_header(
		    evhttp_request_get_output_headers(r), "Content-Type", "application/json");
		answer(s, r, 200, out);
		return;
	}
	evbuffer_add(out, "", 1);
	answer_status(s, r, status, (const char *)evbuffer_pullup(out, -1));
}

static void free_job(struct job *j)
{
	struct server *s = j->server;

	DL_DELETE(s->jobs, j);
	s->handler.end(s->handler.ctx, j->held);
	evbuffer_free(j->out);
	free(j);
}

static void on_job(void *ctx)
{
	struct job *j = ctx;

	j->status = j->server->handler.handle(j->held, j->body, j->len, j->out);
}

static void on_job_done(void *ctx)
{
	struct job *j = ctx;
	struct evhttp_connection *c = evhttp_request_get_connection(j->request);

	if (c) {
		evhttp_connection_set_closecb(c, NULL, NULL);
		answer_handled(j->server, j->request, j->status, j->out);
	} else {
		evhttp_request_free(j->request);
	}
	free_job(j);
}

/* evhttp leaves a request without an answer to us. */
static void on_job_closed(struct evhttp_connection *c, void *ctx)
{
	struct job *j = ctx;
	struct evhttp_request *r = j->request;

	(void)c;
	if (!background_drop(j->server->background, &j->turn))
		return;
	free_job(j);
	evhttp_request_free(r);
}

/* Without the thread: no answer comes. */
static void end_jobs(struct server *s)
{
	struct job *j = NULL, *next = NULL;

	DL_FOREACH_SAFE (s->jobs, j, next) {
		struct evhttp_request *r = j->request;
		struct evhttp_connection *c = evhttp_request_get_connection(r);
		free_job(j);
		if (c)
			evhttp_connection_set_closecb(c, NULL, NULL); /* which has the request */
		else
			evhttp_request_free(r);
	}
}

static void handle_later(struct server *s, struct evhttp_request *r, const char *body, size_t len)
{
	struct evhttp_connection *c = evhttp_request_get_connection(r);
	struct job *j = mem_zalloc(sizeof(*j));

	*j = (struct job){.server = s,
	    .request = r,
	    .body = body,
	    .len = len,
	    .out = evbuffer_new(),
	    .held = s->handler.begin(s->handler.ctx)};
	j->turn =
	    (struct background_job){.peer = connections_peer(evhttp_connection_get_bufferevent(c)),
		.run = on_job,
		.done = on_job_done,
		.ctx = j};
	DL_APPEND(s->jobs, j);
	evhttp_connection_set_closecb(c, on_job_closed, j);
	background_add(s->background, &j->turn);
}

static void handle_now(struct server *s, struct evhttp_request *r, const char *body, size_t len)
{
	struct evbuffer *out = evbuffer_new();
	void *held = s->handler.begin(s->handler.ctx);
	int status = s->handler.handle(held, body, len, out);

	s->handler.end(s->handler.ctx, held);
	answer_handled(s, r, status, out);
	evbuffer_free(out);
}

static void on_inject(struct server *s, struct evhttp_request *r)
{
	struct evbuffer *in = evhttp_request_get_input_buffer(r);
	const char *why = server_unready(s), *body;
	size_t len = evbuffer_get_length(in);

	if (!may_ask(s, r)) {
		answer_status(s, r, 403, "a client certificate is wanted (--client-ca)");
		return;
	}
	/* What comes while the endpoint goes is still served. */
	if (why && !s->stopping) {
		evhttp_add_header(evhttp_request_get_output_headers(r), "Retry-After", "1");
		answer_status(s, r, 503, why);
		return;
	}
	if (!len || !is_json(r)) {
		answer_status(s, r, len ? 415 : 400, len ? "not application/json" : "no body");
		return;
	}
	evbuffer_add(in, "", 1);
	body = (const char *)evbuffer_pullup(in, -1);
	(len > SERVER_AT_ONCE_MAX ? handle_later : handle_now)(s, r, body, len);
}

static const struct page {
	const char *path;
	bool post;
	void (*make)(struct server *s, struct evhttp_request *r);
} pages[] = {
    {"/inject", true, on_inject},
    {"/healthz", false, on_healthz},
    {"/readyz", false, on_readyz},
    {"/metrics", false, on_metrics},
};

/* The raw path, nothing decoded. */
static void on_request(struct evhttp_request *r, void *ctx)
{
	struct server *s = ctx;
	const char *uri = evhttp_request_get_uri(r);
	bool post = evhttp_request_get_command(r) == EVHTTP_REQ_POST;
	size_t n = strcspn(uri, "?");

	s->failing = false;
	for (unsigned i = 0; i < sizeof(pages) / sizeof(*pages); i++) {
		if (strlen(pages[i].path) != n || strncmp(uri, pages[i].path, n) != 0)
			continue;
		if (pages[i].post == post) {
			pages[i].make(s, r);
			return;
		}
		evhttp_add_header(evhttp_request_get_output_headers(r), "Allow",
		    pages[i].post ? "POST" : "GET, HEAD");
		answer_text(s, r, 405, pages[i].post ? "POST only" : "GET only");
		return;
	}
	answer_text(s, r, 404, "no such page");
}

/* --- its life --- */

static struct bufferevent *on_accepted(struct event_base *base, void *ctx)
{
	struct server *s = ctx;

	(void)base;
	return connections_open(s->connections, s->tls);
}

static void on_pause_over(void *ctx)
{
	struct server *s = ctx;

	evconnlistener_enable(s->listener);
}

static void on_accept_failed(struct evconnlistener *listener, void *evhttp)
{
	struct server *s;

	LL_SEARCH_SCALAR(servers, s, evhttp, (struct evhttp *)evhttp);
	if (!s->failing)
		log_warn(NULL, "accept: %m; trying again every %d ms", PAUSE_MS);
	s->failing = true;
	evconnlistener_disable(listener);
	loop_timer_in(s->loop, &s->pause, PAUSE_MS, on_pause_over, s);
}

void server_on_distrust(struct server *s, loop_cb told, void *ctx)
{
	connections_on_distrust(s->connections, told, ctx);
}

static void start_evhttp(struct server *s, int listen_fd, int64_t idle_ms)
{
	const struct timeval idle = {idle_ms / 1000, idle_ms % 1000 * 1000};
	int one = 1;

	s->evhttp = evhttp_new(loop_base(s->loop));
	evhttp_set_max_body_size(s->evhttp, SERVER_BODY_MAX);
	evhttp_set_max_headers_size(s->evhttp, SERVER_HEADERS_MAX);
	evhttp_set_timeout_tv(s->evhttp, &idle);
	evhttp_set_allowed_methods(s->evhttp, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST);
	evhttp_set_bevcb(s->evhttp, on_accepted, s);
	evhttp_set_gencb(s->evhttp, on_request, s);

	fcntl(listen_fd, F_SETFL, fcntl(listen_fd, F_GETFL) | O_NONBLOCK);
	setsockopt(listen_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* inherited */
	s->listener = evconnlistener_new(loop_base(s->loop), NULL, NULL,
	    LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0, listen_fd);
	s->bound = evhttp_bind_listener(s->evhttp, s->listener);
	evconnlistener_set_error_cb(s->listener, on_accept_failed);
}

struct server *server_new(struct loop *l, int listen_fd, const struct connections_limits *limits,
    const struct server_handler *h)
{
	struct server *s = mem_zalloc(sizeof(*s));

	s->loop = l;
	s->handler = *h;
	s->background = background_new(l);
	s->tls = tls_context_empty();
	s->why = mem_strdup("it is starting");
	s->last_said = mem_strdup(s->why);
	s->ready =
	    metric_gauge("agentd_injector_ready", "1: pods are injected; 0: /readyz says why not");
	s->expiry_s = metric_gauge("agentd_injector_certificate_expiry_seconds",
	    "Seconds until the certificate that API servers see expires");
	metric_set(s->ready, "", 0);
	s->connections = connections_new(l, limits);
	start_evhttp(s, listen_fd, limits->idle_ms);
	LL_PREPEND(servers, s);
	return s;
}

void server_free(struct server **server)
{
	struct server *s = take(*server);

	if (!s)
		return;
	LL_DELETE(servers, s);
	loop_timer_stop(&s->pause);
	loop_timer_stop(&s->expiry);
	loop_timer_stop(&s->stop);
	background_free(&s->background);
	end_jobs(s);
	evhttp_free(s->evhttp); /* with its listener and connections */
	connections_free(&s->connections);
	SSL_CTX_free(s->tls);
	X509_STORE_free(s->clients);
	free(s->why);
	free(s->last_said);
	free(s);
}

/* --- its end --- */

static void on_none_left(void *ctx)
{
	struct server *s = ctx;

	s->stopped(s->stopped_ctx);
}

static void on_stop_over(void *ctx)
{
	struct server *s = ctx;

	loop_timer_stop(&s->pause);
	evhttp_del_accept_socket(s->evhttp, s->bound);
	connections_end(s->connections, on_none_left, s);
}

void server_stop(struct server *s, int64_t ms, loop_cb stopped, void *ctx)
{
	if (s->stopping)
		return;
	s->stopping = true;
	s->stopped = stopped;
	s->stopped_ctx = ctx;
	say_ready(s);
	loop_timer_in(s->loop, &s->stop, ms, on_stop_over, s);
}
