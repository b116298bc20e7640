/* ads.c - the pod's ADS stream: carried to istiod with the pod's own credential (xds_proxy.h).
 *
 * directory -> the proxy is there, and services below take types of it -> a call comes -> it is the
 * proxy's.  Another token -> its next try need not wait.  A Wasm filter that Envoy cannot have ->
 * the pod is not served in full.
 */
#include "base/metrics.h"
#include "common/err.h"
#include "common/mem.h"
#include "identity.h"
#include "rows.h"
#include "server.h"
#include "worker/ads/wasm.h"
#include "worker/ads/xds_proxy.h"

struct pod_ads {
	struct pod_context *context;
	struct xds_proxy *proxy; /* NULL until there is a directory */
	struct err wasm;         /* a Wasm filter that the pod's Envoy cannot have */
};

static const struct token *valid_token(void *ctx, struct err *e)
{
	const struct pod_ads *a = ctx;

	return pod_identity_credential(a->context->identity, e);
}

static void on_plugins(void *ctx)
{
	struct pod_ads *a = ctx;
	const struct ads_wasm *w = xds_proxy_wasm(a->proxy);
	char why[ERR_MSG_SIZE];

	a->wasm = (struct err){0};
	if (ads_wasm_why(w, why, sizeof(why)))
		err_set(&a->wasm, ERR_PRECONDITION, "%s", why);
	pod_tell_progress(a->context);
}

static void on_directory(void *s)
{
	struct pod_ads *a = s;
	struct pod_context *c = a->context;
	const struct xds_owner owner = {valid_token, on_plugins, a};

	a->proxy = xds_proxy_new(c->pod, c->node, c->plane->istiod, &owner);
	xds_proxy_limit(a->proxy, pod_server_limits(c->server));
	c->ads = a->proxy;
}

/* What Envoy was given it keeps; each new stream asks for the token itself. */
static void on_token(void *s, bool expired)
{
	const struct pod_ads *a = s;

	if (a->proxy && !expired)
		xds_proxy_token_changed(a->proxy);
}

static bool on_call(void *s, struct rpc_stream *st, const char *method)
{
	const struct pod_ads *a = s;

	return xds_proxy_incoming(a->proxy, st, method);
}

static void stop(void *s)
{
	struct pod_ads *a = s;

	xds_proxy_free(&a->proxy);
}

static void uses(void *s, int64_t in_use[LIMIT_END])
{
	const struct pod_ads *a = s;

	if (a->proxy)
		in_use[LIMIT_QUEUED] = (int64_t)xds_proxy_queued(a->proxy);
}

static void show(void *s, json_t *o, const char *name)
{
	const struct pod_ads *a = s;

	(void)name;
	if (a->proxy)
		json_object_set_new(o, "ads", xds_proxy_dump(a->proxy));
}

static void dump(void *s, json_t *o)
{
	const struct pod_ads *a = s;

	if (a->proxy && xds_proxy_wasm(a->proxy)->n)
		json_object_set_new(o, "remote_wasm", ads_wasm_dump(xds_proxy_wasm(a->proxy)));
}

static enum pod_progress progress(void *s, const struct err **why)
{
	const struct pod_ads *a = s;

	*why = &a->wasm;
	return a->wasm.code ? POD_DEGRADED : POD_FINE;
}

static void measure_wasm(const struct ads_wasm *w, const char *labels)
{
	struct metric *m = metric_gauge("agentd_xds_remote_wasm",
	    "Wasm filters of the pod that are not in force, for Envoy cannot have their modules: "
	    "traffic passes (open) or does not (closed).");
	auto_free char *open = mem_printf("%s,policy=\"open\"", labels);
	auto_free char *closed = mem_printf("%s,policy=\"closed\"", labels);

	metric_set(m, open, w->open);
	metric_set(m, closed, w->n - w->open);
}

static void measure(void *s, const char *labels)
{
	const struct pod_ads *a = s;

	if (!a->proxy)
		return;
	measure_wasm(xds_proxy_wasm(a->proxy), labels);
	metric_set(metric_gauge("agentd_xds_refused_types",
		       "Types of configuration whose last push the pod's Envoy refused."),
	    labels, xds_proxy_refused(a->proxy));
}

static enum served served(void *s, struct err *why)
{
	const struct pod_ads *a = s;

	return a->proxy ? xds_proxy_served(a->proxy, why) : SERVED_UNASKED;
}

static unsigned count(void *s)
{
	const struct pod_ads *a = s;

	return a->proxy && xds_proxy_connected(a->proxy);
}

static enum pod_has has(void *s, const char **why)
{
	static const enum pod_has of[] = {[XDS_NONE] = POD_AWAY,
	    [XDS_OPENS] = POD_WAITS,
	    [XDS_SERVED] = POD_HAS,
	    [XDS_HELD] = POD_HAS,
	    [XDS_REFUSED] = POD_LACKS};
	const struct pod_ads *a = s;

	return a->proxy ? of[xds_proxy_stream(a->proxy, why)] : POD_WAITS;
}

const struct pod_service pod_ads_service = {
    .name = "ads",
    .size = sizeof(struct pod_ads),
    .stop = stop,
    .directory = on_directory,
    .token = on_token,
    .served = served,
    .progress = progress,
    .has = has,
    .call = on_call,
    .uses = uses,
    .dump = dump,
    .page = "xds",
    .show = show,
    .measure = measure,
    .gauge = "agentd_xds_streams",
    .gauge_help = "Configuration streams of Envoys that istiod answers.",
    .count = count,
};
