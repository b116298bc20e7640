/* calls.c - followed files, kept state, a pod's sockets and certificate, the log (link.h, calls.h).
 *
 * link_follow -> the reply accepts -> LINK_FILE under the id of the call, now and at each change ->
 * link_unfollow.  A refusal ends the call, and the follow is an empty one from then on.
 * link_state_list -> one packet for each entry, under the id of the request -> its answer ends the
 * list.
 */
#include "calls.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "link_internal.h"
#include "memfd.h"
#include <errno.h>
#include <string.h>

/* The broker's, whose level is read, checked and shown as that of any other.  Nothing logs here. */
LOG_SCOPE("broker");

/* --- followed files --- */

struct link_follow {
	struct link_call *call; /* NULL: refused, or the link is gone */
};

static void on_file(struct link_call *c, const struct link_heard *h)
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
	f->call->heard = on_file;
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

/* --- kept state --- */

static struct link_request request(enum link_op op, enum link_state kind, const uint8_t *id)
{
	struct link_request req = {.op = (uint16_t)op, .kind = (uint16_t)kind};

	memcpy(req.state_id, id, sizeof(req.state_id));
	return req;
}

static void on_kept(struct link_call *c, const struct link_heard *h)
{
	struct link_kept k = {.kind = h->in->kind, .id = h->in->state_id};
	char *data;
	struct err e;

	if (h->fd < 0)
		return;
	k.data = data = link_memfd_read(h->fd, &k.size, &e);
	if (!data)
		return;            /* costs one certificate */
	c->kept_found(c->ctx, &k); /* may cancel, may free us */
	explicit_bzero(data, k.size);
	free(data);
}

void link_state_list(
    struct link *p, struct link_call **slot, enum link_state kind, link_kept_found found, void *ctx)
{
	const struct link_request req = {.op = LINK_STATE_LIST, .kind = (uint16_t)kind};
	struct link_call *c = link_call_new(p, slot, &req, ctx);

	c->kept_found = found;
	c->heard = on_kept;
	link_call_send(c, -1);
}

void link_state_put(
    struct link *p, struct link_call **slot, const struct link_kept *k, link_done done, void *ctx)
{
	const struct link_request req = request(LINK_STATE_PUT, k->kind, k->id);
	struct link_call *c = link_call_new(p, slot, &req, ctx);
	const struct link_request forgotten = request(LINK_STATE_DEL, k->kind, k->id);

	link_insist_no_more(p, &forgotten);
	c->done = done;
	link_call_send_bytes(c, k->data, k->size);
}

void link_state_del(struct link *p, enum link_state kind, const uint8_t *id)
{
	const struct link_request req = request(LINK_STATE_DEL, kind, id);

	link_insist(p, &req);
}

/* --- one request, one answer --- */

void link_dial(struct link *p, struct link_call **slot, const struct uuid *pod,
    struct link_socket what, link_listening done, void *ctx)
{
	const struct link_request req = {.op = LINK_DIAL,
	    .kind = (uint16_t)what.kind,
	    .arg = (uint32_t)what.family | (uint32_t)what.port << LINK_DIAL_PORT_SHIFT,
	    .uid = *pod};
	struct link_call *c = link_call_new(p, slot, &req, ctx);

	c->listening = done;
	link_call_send(c, -1);
}

void link_identity_put(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *text, link_done done, void *ctx)
{
	struct link_call *c = link_call_new(
	    p, slot, &(struct link_request){.op = LINK_IDENTITY_PUT, .uid = *pod}, ctx);

	c->done = done;
	link_call_send_bytes(c, text, strlen(text));
}

void link_log(struct link *p)
{
	const struct link_request req = {.op = LINK_LOG,
	    .kind = log_is_json() ? LINK_LOG_JSON : LINK_LOG_LOGFMT,
	    .arg = log_scope_.level};

	link_ask(p, NULL, &req, -1, NULL, NULL);
}
