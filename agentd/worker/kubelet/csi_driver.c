/* csi_driver.c
 *
 * registered -> said, or an alarm; who we are, where, what we can (nothing but inline volumes) ->
 * answered at once; publish, unpublish -> read -> csi_volume has it.
 */
#include "csi_driver.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/version.h"
#include "csi/v1/csi.pb-c.h"
#include "pluginregistration/api.pb-c.h"

LOG_SCOPE("csi");

struct csi_driver {
	struct csi_server *server;
	struct csi_volumes *volumes;
	const char *node_name;
	struct metric *alarm;
	csi_registered registered;
	void *ctx;
};

static void answer(struct csi_call *c, const ProtobufCMessage *m)
{
	size_t size = protobuf_c_message_get_packed_size(m);
	auto_free uint8_t *bytes = mem_zalloc(size + 1);

	protobuf_c_message_pack(m, bytes);
	csi_answer(c, bytes, size);
}

/* --- pluginregistration.Registration --- */

static void on_get_info(void *ctx, struct csi_call *c, const struct rpc_msg *m)
{
	static char *versions[] = {"1.0.0"};
	Pluginregistration__PluginInfo info = PLUGINREGISTRATION__PLUGIN_INFO__INIT;

	(void)ctx, (void)m;
	info.type = "CSIPlugin";
	info.name = CSI_DRIVER_NAME;
	info.supported_versions = versions;
	info.n_supported_versions = 1;
	answer(c, &info.base);
}

static void on_notified(void *ctx, struct csi_call *c, const struct rpc_msg *m)
{
	struct csi_driver *d = ctx;
	size_t n;
	const struct iovec *iov = rpc_msg_iov(m, &n);
	struct err e;
	int rc = csi_registration_read(iov, n, &e);

	if (rc)
		log_error(
		    NULL, "the kubelet does not accept " CSI_DRIVER_NAME " as a driver: %s", e.msg);
	else
		log_info(NULL, "registered with the kubelet");
	metric_set(d->alarm, "alarm=\"registration\"", rc != 0);
	csi_answer(c, "", 0);
	d->registered(d->ctx, rc == 0);
}

/* --- csi.v1.Identity --- */

static void on_get_plugin_info(void *ctx, struct csi_call *c, const struct rpc_msg *m)
{
	Csi__V1__GetPluginInfoResponse info = CSI__V1__GET_PLUGIN_INFO_RESPONSE__INIT;

	(void)ctx, (void)m;
	info.name = CSI_DRIVER_NAME;
	info.vendor_version = (char *)version_text;
	answer(c, &info.base);
}

/* No capability; ready. */
static void on_empty(void *ctx, struct csi_call *c, const struct rpc_msg *m)
{
	(void)ctx, (void)m;
	csi_answer(c, "", 0);
}

/* --- csi.v1.Node --- */

static void on_get_node_info(void *ctx, struct csi_call *c, const struct rpc_msg *m)
{
	const struct csi_driver *d = ctx;
	Csi__V1__NodeGetInfoResponse info = CSI__V1__NODE_GET_INFO_RESPONSE__INIT;

	(void)m;
	info.node_id = (char *)d->node_name;
	answer(c, &info.base);
}

static void on_publish(void *ctx, struct csi_call *c, const struct rpc_msg *m)
{
	struct csi_driver *d = ctx;
	size_t n;
	const struct iovec *iov = rpc_msg_iov(m, &n);
	struct csi_publish p;
	struct err e;

	if (csi_publish_read(&p, iov, n, &e)) {
		csi_refuse(c, csi_status_of(&e), e.msg);
		return;
	}
	csi_volumes_publish(d->volumes, c, &p);
	csi_publish_clear(&p);
}

static void on_unpublish(void *ctx, struct csi_call *c, const struct rpc_msg *m)
{
	struct csi_driver *d = ctx;
	size_t n;
	const struct iovec *iov = rpc_msg_iov(m, &n);
	struct csi_unpublish u;
	struct err e;

	if (csi_unpublish_read(&u, iov, n, &e))
		csi_refuse(c, csi_status_of(&e), e.msg);
	else
		csi_volumes_unpublish(d->volumes, c, &u);
}

static const struct csi_method methods[] = {
    {"/pluginregistration.Registration/GetInfo", on_get_info},
    {"/pluginregistration.Registration/NotifyRegistrationStatus", on_notified},
    {"/csi.v1.Identity/GetPluginInfo", on_get_plugin_info},
    {"/csi.v1.Identity/GetPluginCapabilities", on_empty},
    {"/csi.v1.Identity/Probe", on_empty},
    {"/csi.v1.Node/NodeGetInfo", on_get_node_info},
    {"/csi.v1.Node/NodeGetCapabilities", on_empty},
    {"/csi.v1.Node/NodePublishVolume", on_publish},
    {"/csi.v1.Node/NodeUnpublishVolume", on_unpublish},
    {NULL, NULL},
};

struct csi_driver *csi_driver_new(struct loop *l, struct rpc *r, const struct csi_driver_rig *rig)
{
	struct csi_driver *d = mem_zalloc(sizeof(*d));

	d->volumes = rig->volumes;
	d->node_name = rig->node_name;
	d->registered = rig->registered;
	d->ctx = rig->ctx;
	d->alarm = metric_gauge(
	    "agentd_csi_alarm", "1: the kubelet does not do what it should, see the log.");
	metric_set(d->alarm, "alarm=\"registration\"", 0);
	d->server = csi_server_new(l, r, methods, d);
	return d;
}

void csi_driver_free(struct csi_driver **driver)
{
	struct csi_driver *d = take(*driver);

	if (!d)
		return;
	csi_server_free(&d->server);
	free(d);
}

struct rpc_server *csi_driver_rpc(struct csi_driver *d)
{
	return csi_server_rpc(d->server);
}
