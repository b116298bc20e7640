/* redirect.c - a pod's traffic: set, del, explain, trace, counters (link_redirect.h).
 *
 * set -> the reply says accepted or refused -> LINK_REDIRECTED, under the same id, says in force or
 * not.  In between the call waits like any other, and can be cancelled.
 */
#include "redirect.h"
#include "border/rules.h"
#include "common/err.h"
#include "common/mem.h"
#include "ebpf/names.h"
#include "ebpf/rules_types.h"
#include "link_internal.h"
#include <errno.h>
#include <string.h>

/* An old broker's counters are no reason to refuse what is in force: then they begin at 0. */
static struct redirect_counters read_baseline(int fd)
{
	struct redirect_counters c;

	if (fd < 0 || pread(fd, &c, sizeof(c), 0) != sizeof(c))
		memset(&c, 0, sizeof(c));
	return c;
}

static void on_heard(struct link_call *c, const struct link_heard *h)
{
	struct redirect_counters baseline;
	struct link_call was = *c;
	struct err e;

	link_call_drop(c);
	baseline = read_baseline(h->fd);
	if (h->in->code) {
		err_set(&e, h->in->code, "%s", h->in->why);
		was.redirected(was.ctx, &e, &(struct link_redirection){.closed = h->in->arg});
	} else {
		was.redirected(was.ctx, NULL,
		    &(struct link_redirection){
			.index = h->in->arg, .above = h->in->why, .baseline = &baseline});
	}
}

void link_redirect_set(struct link *p, struct link_call **slot, const struct uuid *pod,
    const struct redirect_rules *rules, link_redirected done, void *ctx)
{
	struct link_call *c = link_call_new(
	    p, slot, &(struct link_request){.op = LINK_REDIRECT_SET, .uid = *pod}, ctx);

	c->redirected = done;
	c->heard = on_heard;
	link_call_send_bytes(c, rules, sizeof(*rules));
}

void link_redirect_del(
    struct link *p, struct link_call **slot, const struct uuid *pod, link_done done, void *ctx)
{
	link_ask(
	    p, slot, &(struct link_request){.op = LINK_REDIRECT_DEL, .uid = *pod}, -1, done, ctx);
}

void link_redirect_names(struct link *p, struct link_call **slot,
    const struct redirect_names_told *names, link_done done, void *ctx)
{
	struct link_call *c =
	    link_call_new(p, slot, &(struct link_request){.op = LINK_REDIRECT_NAMES}, ctx);

	c->done = done;
	link_call_send_bytes(c, names, sizeof(*names));
}

void link_redirect_shut(struct link *p, const struct uuid *pod)
{
	link_ask(
	    p, NULL, &(struct link_request){.op = LINK_REDIRECT_SHUT, .uid = *pod}, -1, NULL, NULL);
}

void link_redirect_explain(struct link *p, struct link_call **slot, const struct uuid *pod,
    const struct redirect_question *q, link_explained done, void *ctx)
{
	struct link_call *c = link_call_new(
	    p, slot, &(struct link_request){.op = LINK_REDIRECT_EXPLAIN, .uid = *pod}, ctx);

	c->explained = done;
	link_call_send_bytes(c, q, sizeof(*q));
}

void link_redirect_counters(struct link *p, struct link_call **slot, link_listening done, void *ctx)
{
	struct link_call *c =
	    link_call_new(p, slot, &(struct link_request){.op = LINK_REDIRECT_COUNTERS}, ctx);

	c->listening = done;
	link_call_send(c, -1);
}

void link_redirect_trace(
    struct link *p, struct link_call **slot, const struct uuid *pod, link_listening done, void *ctx)
{
	const struct link_request req = {
	    .op = LINK_REDIRECT_TRACE, .uid = pod ? *pod : (struct uuid){{0}}};
	struct link_call *c = link_call_new(p, slot, &req, ctx);

	c->listening = done;
	link_call_send(c, -1);
}
