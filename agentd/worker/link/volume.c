/* volume.c - the kubelet's volumes: caller, publish, unpublish, list (link_volume.h).
 *
 * list -> one packet for each volume, under the id of the request -> its answer ends the list.
 */
#include "volume.h"
#include "common/err.h"
#include "common/mem.h"
#include "link_internal.h"
#include "memfd.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* A name that is too long is sent as none, which the broker refuses: cut it would be another. */
static struct link_request request(enum link_op op, const struct uuid *pod, const char *volume)
{
	struct link_request req = {.op = (uint16_t)op, .uid = *pod};

	if (strlen(volume) < sizeof(req.volume))
		snprintf(req.volume, sizeof(req.volume), "%s", volume);
	return req;
}

void link_caller(struct link *p, struct link_call **slot, int fd, link_done done, void *ctx)
{
	link_ask(p, slot, &(struct link_request){.op = LINK_CALLER}, fd, done, ctx);
}

void link_publish(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *volume, link_done done, void *ctx)
{
	const struct link_request req = request(LINK_PUBLISH, pod, volume);

	link_ask(p, slot, &req, -1, done, ctx);
}

void link_unpublish(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *volume, link_done done, void *ctx)
{
	const struct link_request req = request(LINK_UNPUBLISH, pod, volume);

	link_ask(p, slot, &req, -1, done, ctx);
}

static void on_heard(struct link_call *c, const struct link_heard *h)
{
	char *data = NULL;
	struct link_volume v = {.pod = h->in->uid,
	    .name = h->in->name,
	    .mounted = h->in->state & LINK_VOLUME_MOUNTED,
	    .redirected = h->in->state & LINK_VOLUME_REDIRECTED,
	    .directory = h->in->state & LINK_VOLUME_DIRECTORY};
	struct err e;

	if (h->fd >= 0)
		v.vol_data = data = link_memfd_read(h->fd, &v.size, &e);
	else
		err_set(&e, h->in->code ? h->in->code : ENOENT, "%s", h->in->why);
	if (!v.vol_data)
		v.e = &e;
	c->volume_found(c->ctx, &v); /* may cancel, may free us */
	free(data);
}

void link_volume_list(struct link *p, struct link_call **slot, link_volume_found found, void *ctx)
{
	struct link_call *c =
	    link_call_new(p, slot, &(struct link_request){.op = LINK_VOLUMES}, ctx);

	c->volume_found = found;
	c->heard = on_heard;
	link_call_send(c, -1);
}

void link_csi_registered(struct link *p, bool yes)
{
	link_ask(
	    p, NULL, &(struct link_request){.op = LINK_CSI_REGISTERED, .arg = yes}, -1, NULL, NULL);
}
