/* kubelet.c - volumes as they are -> adopted -> the driver, and only now its socket: what the
 * kubelet says meanwhile waits in the backlog.
 */
#include "kubelet.h"
#include "base/metrics.h"
#include "common/mem.h"
#include "csi_driver.h"
#include "csi_socket.h"
#include "volumes.h"
#include "worker/link/link.h"
#include "worker/link/volume.h"

struct kubelet {
	struct kubelet_options o;
	int listener; /* until there is a socket */
	struct csi_volumes *volumes;
	struct kubelet_volumes *restoring;
	struct csi_driver *driver;
	struct csi_socket *socket;
	struct metric *restored, *metric;
	bool registered;
};

/* Of the kubelet's own word, or of what the broker kept of it. */
static void set_registered(struct kubelet *c, bool registered)
{
	c->registered = registered;
	metric_set(c->metric, "", registered);
}

/* The broker has logged the details. */
static void on_noted(void *ctx, bool registered, unsigned restored)
{
	struct kubelet *c = ctx;

	set_registered(c, registered);
	metric_set(c->restored, "", restored);
}

static void on_registered(void *ctx, bool yes)
{
	struct kubelet *c = ctx;

	set_registered(c, yes);
	link_csi_registered(c->o.link, yes);
}

static void on_restored(void *ctx)
{
	struct kubelet *c = ctx;

	kubelet_volumes_free(&c->restoring);
	csi_volumes_synced(c->volumes);
	c->driver = csi_driver_new(c->o.loop, c->o.rpc,
	    &(struct csi_driver_rig){c->volumes, c->o.node_name, on_registered, c});
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
	    "Times that another program removed or replaced csi.sock or the kubelet's link to it.");
	metric_set(c->restored, "", 0);
	c->metric = metric_gauge("agentd_csi_registered",
	    "1: the kubelet has registered agentd as a CSI driver, so meshed pods can start.");
	set_registered(c, false);
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

unsigned kubelet_troubled(const struct kubelet *c, struct err *why)
{
	return c ? csi_volumes_troubled(c->volumes, why) : 0;
}

const char *kubelet_why_not(const struct kubelet *c)
{
	return !c || c->registered
		   ? NULL
		   : "the kubelet has not registered agentd (yet): no meshed pod can start";
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
