/* local.c - a response of one of these types -> its handler -> an ACK or NACK. */
#include "local.h"
#include "account.h"
#include "common/err.h"
#include "common/mem.h"
#include "rpc/rpc.h"
#include <event2/buffer.h>
#include <string.h>
#include <utlist.h>

struct local {
	char *url;
	local_handler handler;
	void *ctx;
	struct local *next;
};

void ads_local_clear(struct ads_local *l)
{
	struct local *one;

	while ((one = l->first)) {
		l->first = one->next;
		free(one->url);
		free(one);
	}
}

void ads_local_add(struct ads_local *l, const char *url, local_handler handler, void *ctx)
{
	struct local *one = mem_zalloc(sizeof(*one));

	one->url = mem_strdup(url);
	one->handler = handler;
	one->ctx = ctx;
	LL_APPEND(l->first, one);
}

static void send_buffer(struct rpc_stream *to, struct evbuffer *b)
{
	size_t len = evbuffer_get_length(b);

	rpc_send(to, evbuffer_pullup(b, -1), len);
	evbuffer_free(b);
}

void ads_local_subscribe(const struct ads_local *l, enum discovery_flavour f, struct rpc_stream *up)
{
	for (const struct local *one = l->first; one; one = one->next) {
		struct evbuffer *out = evbuffer_new();

		discovery_put_subscribe(out, f, one->url);
		send_buffer(up, out);
	}
}

void ads_local_answer(const struct local_stream *at, struct account_type *t,
    const struct discovery_response *r, const char *why)
{
	struct evbuffer *out = evbuffer_new();

	ads_account_settle(at->account, t, why);
	discovery_put_ack(out, at->flavour, r, why);
	send_buffer(at->up, out);
}

static void handle(const struct local *one, const struct local_stream *at,
    const struct discovery_response *r, const struct rpc_msg *m)
{
	struct err e = {0};
	struct account_type *t;

	if (r->resources == 0)
		return; /* neither handled nor ACKed (istio-agent.md 0.4) */
	t = ads_account_response(at->account, r);
	ads_local_answer(at, t, r, one->handler(one->ctx, m, &e) ? e.msg : NULL);
}

bool ads_local_take(const struct ads_local *l, const struct local_stream *at,
    const struct discovery_response *r, const struct rpc_msg *m)
{
	for (const struct local *one = l->first; one; one = one->next)
		if (strcmp(one->url, r->type_url) == 0) {
			handle(one, at, r, m);
			return true;
		}
	return false;
}
