/* priv_redirect.c - a pod's traffic: set, del, explain, trace, counters (priv_redirect.h).
 *
 * set -> the reply says accepted or refused -> PRIV_REDIRECTED, under the same id, says in force or
 * not.  In between the call waits like any other, and can be cancelled.
 */
#include "priv_redirect.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/rules.h"
#include "ebpf/rules_types.h"
#include "priv_internal.h"
#include "priv_memfd.h"
#include <errno.h>
#include <string.h>

static void send_request(struct priv_call *c, int fd)
{
	const struct priv_request req = {.id = c->id, .op = (uint16_t)c->op, .uid = c->pod};

	priv_call_transmit(c, &req, fd);
}

static void send_with(struct priv_call *c, const void *data, size_t size)
{
	struct err e;
	auto_close int fd = priv_memfd_sealed(data, size, &e);

	if (fd >= 0)
		send_request(c, fd);
	else
		priv_call_unsent(c);
}

void priv_redirect_set(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    const struct redirect_rules *rules, priv_redirected done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_REDIRECT_SET, pod, ctx);

	c->redirected = done;
	send_with(c, rules, sizeof(*rules));
}

void priv_redirect_del(struct priv *p, const struct uuid *pod)
{
	send_request(priv_call_new(p, NULL, PRIV_REDIRECT_DEL, pod, NULL), -1);
}

void priv_redirect_explain(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    const struct redirect_question *q, priv_explained done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_REDIRECT_EXPLAIN, pod, ctx);

	c->explained = done;
	send_with(c, q, sizeof(*q));
}

void priv_redirect_counters(struct priv *p, struct priv_call **slot, priv_listening done, void *ctx)
{
	static const struct uuid nobody;
	struct priv_call *c = priv_call_new(p, slot, PRIV_REDIRECT_COUNTERS, &nobody, ctx);

	c->listening = done;
	send_request(c, -1);
}

void priv_redirect_trace(
    struct priv *p, struct priv_call **slot, const struct uuid *pod, priv_listening done, void *ctx)
{
	static const struct uuid all;
	struct priv_call *c = priv_call_new(p, slot, PRIV_REDIRECT_TRACE, pod ? pod : &all, ctx);

	c->listening = done;
	send_request(c, -1);
}

/* An old broker's counters are no reason to refuse what is in force: then they begin at 0. */
static struct redirect_counters read_baseline(int fd)
{
	struct redirect_counters c;

	if (fd < 0 || pread(fd, &c, sizeof(c), 0) != sizeof(c))
		memset(&c, 0, sizeof(c));
	return c;
}

void priv_redirect_take(struct priv_call *c, const struct priv_packet *in, int received)
{
	auto_close int fd = received;
	struct redirect_counters baseline;
	struct priv_call was;
	struct err e;

	if (!c || c->op != PRIV_REDIRECT_SET)
		return;
	was = *c;
	priv_call_drop(c);
	baseline = read_baseline(fd);
	if (in->code) {
		err_set(&e, in->code, "%s", in->why);
		was.redirected(was.ctx, &e, 0, NULL);
	} else {
		was.redirected(was.ctx, NULL, in->arg, &baseline);
	}
}
