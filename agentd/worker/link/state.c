/* link_state.c - what is kept beyond this process: put, delete, list (link.h).
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

static const struct uuid nobody;

static void send_request(struct link_call *c, const struct link_kept *k, int fd)
{
	struct link_request req = {.id = c->id, .op = (uint16_t)c->op, .kind = (uint16_t)k->kind};

	if (k->id)
		memcpy(req.state_id, k->id, sizeof(req.state_id));
	link_call_transmit(c, &req, fd);
}

void link_state_list(
    struct link *p, struct link_call **slot, enum link_state kind, link_kept_found found, void *ctx)
{
	struct link_call *c = link_call_new(p, slot, LINK_STATE_LIST, &nobody, ctx);

	c->kept_found = found;
	send_request(c, &(struct link_kept){.kind = kind}, -1);
}

void link_state_take(struct link_call *c, const struct link_packet *in, int received)
{
	auto_close int fd = received;
	struct link_kept k = {.kind = in->kind, .id = in->state_id};
	char *data;
	struct err e;

	if (!c || c->op != LINK_STATE_LIST || fd < 0)
		return;
	k.data = data = link_memfd_read(fd, &k.size, &e);
	if (!data)
		return;            /* costs one certificate */
	c->kept_found(c->ctx, &k); /* may cancel, may free us */
	explicit_bzero(data, k.size);
	free(data);
}

void link_state_put(
    struct link *p, struct link_call **slot, const struct link_kept *k, link_done done, void *ctx)
{
	struct link_call *c = link_call_new(p, slot, LINK_STATE_PUT, &nobody, ctx);
	struct err e;
	auto_close int fd = link_memfd_sealed(k->data, k->size, &e);

	c->done = done;
	if (fd >= 0)
		send_request(c, k, fd);
	else
		link_call_unsent(c);
}

void link_state_del(struct link *p, enum link_state kind, const uint8_t *id)
{
	send_request(link_call_new(p, NULL, LINK_STATE_DEL, &nobody, NULL),
	    &(struct link_kept){.kind = kind, .id = id}, -1);
}
