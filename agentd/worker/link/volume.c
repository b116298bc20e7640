/* link_volume.c - the kubelet's volumes: caller, publish, unpublish, list (link_volume.h).
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

static const struct uuid nobody;

/* A name that is too long is sent as none, which the broker refuses: cut it would be another. */
static void send_request(struct link_call *c, const char *volume, int fd)
{
	struct link_request req = {.id = c->id, .op = (uint16_t)c->op, .uid = c->pod};

	if (strlen(volume) < sizeof(req.volume))
		snprintf(req.volume, sizeof(req.volume), "%s", volume);
	link_call_transmit(c, &req, fd);
}

void link_caller(struct link *p, struct link_call **slot, int fd, link_done done, void *ctx)
{
	struct link_call *c = link_call_new(p, slot, LINK_CALLER, &nobody, ctx);

	c->done = done;
	send_request(c, "", fd);
}

void link_publish(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *volume, link_done done, void *ctx)
{
	struct link_call *c = link_call_new(p, slot, LINK_PUBLISH, pod, ctx);

	c->done = done;
	send_request(c, volume, -1);
}

void link_unpublish(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *volume, link_done done, void *ctx)
{
	struct link_call *c = link_call_new(p, slot, LINK_UNPUBLISH, pod, ctx);

	c->done = done;
	send_request(c, volume, -1);
}

void link_volume_list(struct link *p, struct link_call **slot, link_volume_found found, void *ctx)
{
	struct link_call *c = link_call_new(p, slot, LINK_VOLUMES, &nobody, ctx);

	c->volume_found = found;
	send_request(c, "", -1);
}

void link_volume_take(struct link_call *c, const struct link_packet *in, int received)
{
	auto_close int fd = received;
	char *data = NULL;
	struct link_volume v = {.pod = in->uid,
	    .name = in->name,
	    .mounted = in->state & LINK_VOLUME_MOUNTED,
	    .directory = in->state & LINK_VOLUME_DIRECTORY};
	struct err e;

	if (!c || c->op != LINK_VOLUMES)
		return;
	if (fd >= 0)
		v.vol_data = data = link_memfd_read(fd, &v.size, &e);
	else
		err_set(&e, in->code ? in->code : ENOENT, "%s", in->why);
	if (!v.vol_data)
		v.e = &e;
	c->volume_found(c->ctx, &v); /* may cancel, may free us */
	free(data);
}
