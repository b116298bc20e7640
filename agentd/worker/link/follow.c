/* follow.c - followed files: a call that is answered until it is ended.
 *
 * link_follow -> the reply accepts -> LINK_FILE under the id of the call, now and at each change ->
 * link_unfollow.  A refusal ends the call, and the follow is an empty one from then on.
 */
#include "common/err.h"
#include "common/mem.h"
#include "link_internal.h"
#include "memfd.h"
#include <errno.h>
#include <string.h>

struct link_follow {
	struct link_call *call; /* NULL: refused, or the link is gone */
};

static void on_heard(struct link_call *c, const struct link_heard *h)
{
	struct link_content content = {.name = h->in->name, .running = h->in->arg};
	char *data = NULL;
	struct err e;

	if (h->in->state == LINK_FILE_CONTENT)
		content.data = data = link_memfd_read(h->fd, &content.size, &e);
	else if (h->in->state == LINK_FILE_SYNCED)
		content.synced = true;
	else
		err_set(&e, h->in->state == LINK_FILE_REMOVED ? ENOENT : EACCES, "%s", h->in->why);
	if (!content.data && !content.synced)
		content.e = &e;
	c->changed(c->ctx, &content); /* may end the follow, may free us */
	if (data)
		explicit_bzero(data, content.size); /* it may have been a token */
	free(data);
}

struct link_follow *link_follow(struct link *p, enum link_followed what, const struct uuid *pod,
    unsigned plane, link_changed changed, void *ctx)
{
	struct link_follow *f = mem_zalloc(sizeof(*f));
	struct link_request req = {.op = LINK_FOLLOW, .kind = (uint16_t)what, .arg = plane};

	if (pod)
		req.uid = *pod;
	link_call_new(p, &f->call, &req, ctx);
	f->call->changed = changed;
	f->call->heard = on_heard;
	link_call_send(f->call, -1);
	return f;
}

void link_unfollow(struct link_follow **f)
{
	if (!*f)
		return;
	auto_free struct link_follow *was = take(*f);
	struct link_call *c = was->call;

	if (!c)
		return;
	link_ask(c->p, NULL, &(struct link_request){.op = LINK_UNFOLLOW, .arg = c->req.id}, -1,
	    NULL, NULL);
	link_call_drop(c);
}
