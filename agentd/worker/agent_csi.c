/* agent_csi.c - volumes as they are -> adopted -> the driver, and only now its socket: what the
 * kubelet says meanwhile waits in the backlog.
 */
#include "agent_csi.h"
#include "common/mem.h"
#include "worker/base/metrics.h"
#include "worker/config/config.h"
#include "worker/kubelet/csi_driver.h"
#include "worker/kubelet/csi_socket.h"
#include "worker/kubelet/volumes.h"
#include "worker/link/link.h"
#include "worker/link/volume.h"
#include "worker/pod/pod_services.h"

struct agent_csi {
	const struct agent_shared *shared;
	const char *node_name;
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
	const struct agent_csi *c = ctx;

	metric_set(c->restored, "", n);
}

static void on_restored(void *ctx)
{
	struct agent_csi *c = ctx;
	const struct agent_shared *a = c->shared;

	kubelet_volumes_free(&c->restoring);
	csi_volumes_synced(c->volumes);
	c->driver = csi_driver_new(a->loop, a->rpc, c->volumes, c->node_name);
	c->socket =
	    csi_socket_new(a->loop, a->link, take_fd(c->listener), csi_driver_rpc(c->driver));
}

struct agent_csi *agent_csi_new(
    const struct agent_shared *a, const struct config *config, struct pod_registry *pods)
{
	const struct csi_volumes_options o = {.loop = a->loop,
	    .link = a->link,
	    .pods = pods,
	    .publish_wait_ms = config->publish_wait_ms};
	int fd = link_take_listener(a->link, LINK_NODE_CSI);
	struct agent_csi *c;

	if (fd < 0)
		return NULL;
	c = mem_zalloc(sizeof(*c));
	c->shared = a;
	c->node_name = config->node_name;
	c->listener = fd;
	c->restored = metric_counter("agentd_csi_socket_restored_total",
	    "How often csi.sock or the kubelet's link to it was removed or replaced by somebody.");
	metric_set(c->restored, "", 0);
	link_on_csi(a->link, on_noted, c);
	c->volumes = csi_volumes_new(&o);
	c->restoring = kubelet_volumes_restore(a->link, c->volumes, on_restored, c);
	return c;
}

void agent_csi_stop_accepting(struct agent_csi *c)
{
	if (c && c->socket)
		csi_socket_stop(c->socket);
}

void agent_csi_free(struct agent_csi **csi)
{
	struct agent_csi *c = take(*csi);

	if (!c)
		return;
	link_on_csi(c->shared->link, NULL, NULL);
	csi_socket_free(&c->socket);
	csi_driver_free(&c->driver);
	kubelet_volumes_free(&c->restoring);
	csi_volumes_free(&c->volumes);
	if (c->listener >= 0)
		close(c->listener);
	free(c);
}

json_t *agent_csi_dump_volume(const struct agent_csi *c, const struct uuid *pod)
{
	return c ? csi_volume_dump(c->volumes, pod) : NULL;
}

json_t *agent_csi_dump_waiting(const struct agent_csi *c)
{
	return c ? csi_volumes_waiting(c->volumes) : json_array();
}

json_t *agent_csi_dump(const struct agent_csi *c)
{
	return c && c->socket ? csi_socket_dump(c->socket) : json_object();
}

void agent_csi_measure(const struct agent_csi *c)
{
	if (c)
		csi_volumes_measure(c->volumes);
}
