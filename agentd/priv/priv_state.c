/* priv_state.c - what is kept beyond this process: put, delete, list (priv.h).
 *
 * list -> one packet for each entry, under the id of the request -> its answer ends the list.
 * A put that fails here already (no descriptor is left) is told like one that the broker refused.
 */
#include "common/err.h"
#include "common/mem.h"
#include "priv_internal.h"
#include "priv_memfd.h"
#include <errno.h>
#include <string.h>

static const struct uuid nobody;

static void send_request(struct priv_call *c, const struct priv_kept *k, int fd)
{
	struct priv_request req = {.id = c->id, .op = (uint16_t)c->op, .kind = (uint16_t)k->kind};

	if (k->id)
		memcpy(req.state_id, k->id, sizeof(req.state_id));
	priv_call_transmit(c, &req, fd);
}

void priv_state_list(
    struct priv *p, struct priv_call **slot, enum priv_state kind, priv_kept_found found, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_STATE_LIST, &nobody, ctx);

	c->kept_found = found;
	send_request(c, &(struct priv_kept){.kind = kind}, -1);
}

void priv_state_take(struct priv_call *c, const struct priv_packet *in, int received)
{
	auto_close int fd = received;
	struct priv_kept k = {.kind = in->kind, .id = in->state_id};
	char *data;
	struct err e;

	if (!c || c->op != PRIV_STATE_LIST || fd < 0)
		return;
	k.data = data = priv_memfd_read(fd, &k.size, &e);
	if (!data)
		return;            /* costs one certificate */
	c->kept_found(c->ctx, &k); /* may cancel, may free us */
	explicit_bzero(data, k.size);
	free(data);
}

void priv_state_put(
    struct priv *p, struct priv_call **slot, const struct priv_kept *k, priv_done done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_STATE_PUT, &nobody, ctx);
	struct err e;
	auto_close int fd = priv_memfd_sealed(k->data, k->size, &e);

	c->done = done;
	if (fd >= 0)
		send_request(c, k, fd);
	else
		priv_call_unsent(c);
}

void priv_state_del(struct priv *p, enum priv_state kind, const uint8_t *id)
{
	send_request(priv_call_new(p, NULL, PRIV_STATE_DEL, &nobody, NULL),
	    &(struct priv_kept){.kind = kind, .id = id}, -1);
}
