/* state.c - the state that outlives this process: put, delete, list (link.h).
 *
 * list -> one packet for each entry, under the id of the request -> its answer ends the list.
 * A put that fails here already (no descriptor is left) is told like one that the broker refused.
 */
#include "common/err.h"
#include "common/mem.h"
#include "link_internal.h"
#include "memfd.h"
#include <errno.h>
#include <string.h>

static struct link_request request(enum link_op op, enum link_state kind, const uint8_t *id)
{
	struct link_request req = {.op = (uint16_t)op, .kind = (uint16_t)kind};

	memcpy(req.state_id, id, sizeof(req.state_id));
	return req;
}

static void on_heard(struct link_call *c, const struct link_heard *h)
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
	c->heard = on_heard;
	link_call_send(c, -1);
}

void link_state_put(
    struct link *p, struct link_call **slot, const struct link_kept *k, link_done done, void *ctx)
{
	const struct link_request req = request(LINK_STATE_PUT, k->kind, k->id);
	struct link_call *c = link_call_new(p, slot, &req, ctx);
	const struct link_request forgotten = request(LINK_STATE_DEL, k->kind, k->id);
	struct err e;
	auto_close int fd = link_memfd_sealed(k->data, k->size, &e);

	link_insist_no_more(p, &forgotten);
	c->done = done;
	if (fd >= 0)
		link_call_send(c, fd);
	else
		link_call_unsent(c);
}

void link_state_del(struct link *p, enum link_state kind, const uint8_t *id)
{
	const struct link_request req = request(LINK_STATE_DEL, kind, id);

	link_insist(p, &req);
}
