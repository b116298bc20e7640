/* kubelet.c - volumes as they are -> adopted -> the driver, and only now its socket: what the
 * kubelet says meanwhile waits in the backlog.
 */
#include "kubelet.h"
#include "common/mem.h"
#include "csi_driver.h"
#include "csi_socket.h"
#include "volumes.h"
#include "worker/base/metrics.h"
#include "worker/link/link.h"
#include "worker/link/volume.h"

struct kubelet {
	struct kubelet_options o;
	int listener; /* until there is a socket */
	struct csi_volumes *volumes;
	struct kubelet_volumes *restoring;
	struct csi_driver *driver;
	struct csi_socket *socket;
	struct metric *restored;
};

/* The broker has said who did what, in the log. */
static void on_noted(void *ctx, unsigned n)
{
	const struct kubelet *c = ctx;

	metric_set(c->restored, "", n);
}

static void on_restored(void *ctx)
{
	struct kubelet *c = ctx;

	kubelet_volumes_free(&c->restoring);
	csi_volumes_synced(c->volumes);
	c->driver = csi_driver_new(c->o.loop, c->o.rpc, c->volumes, c->o.node_name);
	c->socket =
	    csi_socket_new(c->o.loop, c->o.link, take_fd(c->listener), csi_driver_rpc(c->driver));
}

struct kubelet *kubelet_new(const struct kubelet_options *o)
{
	const struct csi_volumes_options volumes = {.loop = o->loop,
	    .link = o->link,
	    .pods = o->pods,
	    .publish_wait_ms = o->publish_wait_ms};
	int fd = link_take_listener(o->link, LINK_NODE_CSI);
	struct kubelet *c;

	if (fd < 0)
		return NULL;
	c = mem_zalloc(sizeof(*c));
	c->o = *o;
	c->listener = fd;
	c->restored = metric_counter("agentd_csi_socket_restored_total",
	    "How often csi.sock or the kubelet's link to it was removed or replaced by somebody.");
	metric_set(c->restored, "", 0);
	link_on_csi(o->link, on_noted, c);
	c->volumes = csi_volumes_new(&volumes);
	c->restoring = kubelet_volumes_restore(o->link, c->volumes, on_restored, c);
	return c;
}

void kubelet_stop_accepting(struct kubelet *c)
{
	if (c && c->socket)
		csi_socket_stop(c->socket);
}

void kubelet_free(struct kubelet **csi)
{
	struct kubelet *c = take(*csi);

	if (!c)
		return;
	link_on_csi(c->o.link, NULL, NULL);
	csi_socket_free(&c->socket);
	csi_driver_free(&c->driver);
	kubelet_volumes_free(&c->restoring);
	csi_volumes_free(&c->volumes);
	if (c->listener >= 0)
		close(c->listener);
	free(c);
}

json_t *kubelet_dump_volume(const struct kubelet *c, const struct uuid *pod)
{
	return c ? csi_volume_dump(c->volumes, pod) : NULL;
}

json_t *kubelet_dump_waiting(const struct kubelet *c)
{
	return c ? csi_volumes_waiting(c->volumes) : json_array();
}

json_t *kubelet_dump(const struct kubelet *c)
{
	return c && c->socket ? csi_socket_dump(c->socket) : json_object();
}

void kubelet_measure(const struct kubelet *c)
{
	if (c)
		csi_volumes_measure(c->volumes);
}
