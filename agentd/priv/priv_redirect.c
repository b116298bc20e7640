/* priv_redirect.c - a pod's traffic: set, del, explain, counters (priv.h).
 *
 * set -> the reply says accepted or refused -> PRIV_REDIRECTED, under the same id, says in force or
 * not.  In between the call waits like any other, and can be cancelled.
 */
#include "../../ebpf/rules_types.h"
#include "../base/err.h"
#include "../base/mem.h"
#include "priv_internal.h"
#include "priv_memfd.h"
#include "redirect_rules.h"
#include <errno.h>

static void send_request(const struct priv_call *c, int fd)
{
	const struct priv_request req = {.id = c->id, .op = (uint16_t)c->op, .uid = c->pod};

	priv_transmit(c->p, &req, fd);
}

static void send_with(struct priv_call *c, const void *data, size_t size)
{
	struct err e;
	auto_close int fd = priv_memfd_sealed(data, size, &e);

	if (fd >= 0)
		send_request(c, fd);
	else
		priv_call_fail(c);
}

void priv_redirect_set(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    const struct redirect_rules *rules, priv_number done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_REDIRECT_SET, pod, ctx);

	c->number = done;
	send_with(c, rules, sizeof(*rules));
}

void priv_redirect_del(struct priv *p, const struct uuid *pod)
{
	send_request(priv_call_new(p, NULL, PRIV_REDIRECT_DEL, pod, NULL), -1);
}

void priv_redirect_explain(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    const struct redirect_question *q, priv_number done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_REDIRECT_EXPLAIN, pod, ctx);

	c->number = done;
	send_with(c, q, sizeof(*q));
}

void priv_redirect_counters(struct priv *p, struct priv_call **slot, priv_listening done, void *ctx)
{
	static const struct uuid nobody;
	struct priv_call *c = priv_call_new(p, slot, PRIV_REDIRECT_COUNTERS, &nobody, ctx);

	c->listening = done;
	send_request(c, -1);
}

void priv_redirect_take(struct priv_call *c, const struct priv_packet *in)
{
	struct priv_call was;
	struct err e;

	if (!c || c->op != PRIV_REDIRECT_SET)
		return;
	was = *c;
	priv_call_drop(c);
	if (in->code)
		err_set(&e, in->code, "%s", in->why);
	was.number(was.ctx, in->code ? &e : NULL, in->code ? 0 : in->arg);
}
