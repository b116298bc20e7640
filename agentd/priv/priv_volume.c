/* priv_volume.c - the kubelet's volumes: caller, publish, unpublish, list (priv_volume.h).
 *
 * list -> one packet for each volume, under the id of the request -> its answer ends the list.
 */
#include "priv_volume.h"
#include "common/err.h"
#include "common/mem.h"
#include "priv_internal.h"
#include "priv_memfd.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct uuid nobody;

/* A name that is too long is sent as none, which the broker refuses: cut it would be another. */
static void send_request(struct priv_call *c, const char *volume, int fd)
{
	struct priv_request req = {.id = c->id, .op = (uint16_t)c->op, .uid = c->pod};

	if (strlen(volume) < sizeof(req.volume))
		snprintf(req.volume, sizeof(req.volume), "%s", volume);
	priv_call_transmit(c, &req, fd);
}

void priv_caller(struct priv *p, struct priv_call **slot, int fd, priv_done done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_CALLER, &nobody, ctx);

	c->done = done;
	send_request(c, "", fd);
}

void priv_publish(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    const char *volume, priv_done done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_PUBLISH, pod, ctx);

	c->done = done;
	send_request(c, volume, -1);
}

void priv_unpublish(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    const char *volume, priv_done done, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_UNPUBLISH, pod, ctx);

	c->done = done;
	send_request(c, volume, -1);
}

void priv_volume_list(struct priv *p, struct priv_call **slot, priv_volume_found found, void *ctx)
{
	struct priv_call *c = priv_call_new(p, slot, PRIV_VOLUMES, &nobody, ctx);

	c->volume_found = found;
	send_request(c, "", -1);
}

void priv_volume_take(struct priv_call *c, const struct priv_packet *in, int received)
{
	auto_close int fd = received;
	char *data = NULL;
	struct priv_volume v = {.pod = in->uid,
	    .name = in->name,
	    .mounted = in->state & PRIV_VOLUME_MOUNTED,
	    .directory = in->state & PRIV_VOLUME_DIRECTORY};
	struct err e;

	if (!c || c->op != PRIV_VOLUMES)
		return;
	if (fd >= 0)
		v.vol_data = data = priv_memfd_read(fd, &v.size, &e);
	else
		err_set(&e, in->code ? in->code : ENOENT, "%s", in->why);
	if (!v.vol_data)
		v.e = &e;
	c->volume_found(c->ctx, &v); /* may cancel, may free us */
	free(data);
}
