/* ask.c - a socket -> GET /healthz/ready -> 200 -> another socket -> GET the prober's route -> 200
 * -> the answer.  Anything else, or silence, ends it with the reason.
 */
#include "ask.h"
#include "base/http/http.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/mem.h"
#include "worker/link/calls.h"
#include <netinet/in.h>
#include <stdio.h>

struct health_ask {
	struct health_ask **slot;
	struct health_ask_options o;
	health_answered done;
	void *ctx;
	bool of_app; /* the second request */
	struct link_call *dialling;
	struct http_get *get;
	struct loop_timer patience;
};

static void dial(struct health_ask *a);

void health_ask_cancel(struct health_ask **slot)
{
	struct health_ask *a = take(*slot);

	if (!a)
		return;
	link_call_cancel(&a->dialling);
	http_get_cancel(&a->get);
	loop_timer_stop(&a->patience);
	free(a);
}

static void finish(struct health_ask *a, const char *why)
{
	health_answered done = a->done;
	void *ctx = a->ctx;

	health_ask_cancel(a->slot);
	done(ctx, why);
}

static void on_silence(void *ctx)
{
	struct health_ask *a = ctx;
	char why[80];

	(void)snprintf(why, sizeof(why), "%s did not answer within %u s",
	    a->of_app ? "the app" : "Envoy", a->o.timeout_s);
	finish(a, why);
}

static void on_status(void *ctx, int status, struct evbuffer *body)
{
	struct health_ask *a = ctx;
	char why[160];

	(void)body;
	if (status == 200 && a->of_app) {
		finish(a, NULL);
		return;
	}
	if (status == 200) {
		a->of_app = true;
		dial(a);
		return;
	}
	if (!status)
		(void)snprintf(
		    why, sizeof(why), "Envoy gives no answer on its status port %u", a->o.port);
	else if (!a->of_app)
		(void)snprintf(why, sizeof(why), "Envoy is not ready: status %d", status);
	else if (status == 400 || status == 404)
		(void)snprintf(why, sizeof(why),
		    "the app, or an Envoy that began before this probe, answers with status %d",
		    status);
	else
		(void)snprintf(why, sizeof(why), "the app answers with status %d", status);
	finish(a, why);
}

static void on_socket(void *ctx, const struct err *e, int fd)
{
	struct health_ask *a = ctx;

	if (e) {
		finish(a, e->msg);
		return;
	}
	http_get(a->o.loop, &a->get,
	    (struct http_ask){.fd = fd,
		.method = "GET",
		.target = a->of_app ? a->o.route : "/healthz/ready",
		.headers = a->of_app ? a->o.headers : NULL,
		.status_only = true},
	    on_status, a);
}

static void dial(struct health_ask *a)
{
	loop_timer_in(a->o.loop, &a->patience, (int64_t)a->o.timeout_s * 1000, on_silence, a);
	link_dial(a->o.link, &a->dialling, a->o.pod,
	    (struct link_socket){LINK_DIAL_LOOPBACK, a->o.ipv6 ? AF_INET6 : AF_INET, a->o.port},
	    on_socket, a);
}

void health_ask(
    struct health_ask **slot, const struct health_ask_options *o, health_answered done, void *ctx)
{
	struct health_ask *a = mem_zalloc(sizeof(*a));

	a->slot = slot;
	a->o = *o;
	a->done = done;
	a->ctx = ctx;
	*slot = a;
	dial(a);
}
