/* sds.c - the pod's secrets for Envoy: what this server is told, it serves (sds/server.h).
 *
 * directory -> the server is there; trust or certificate change -> it is told; a call comes -> it
 * is the server's.
 */
#include "common/err.h"
#include "rows.h"
#include "worker/certs/crl.h"
#include "worker/pods/pod.h"
#include "worker/sds/server.h"

struct pod_sds {
	struct pod_context *context;
	struct sds_server *server; /* NULL until there is a directory */
};

static void on_trust(void *ctx)
{
	const struct pod_sds *s = ctx;

	if (s->server)
		sds_server_set_trust(
		    s->server, s->context->roots, crl_in_force(s->context->plane->crl));
}

static void on_directory(void *ctx)
{
	struct pod_sds *s = ctx;

	s->server = sds_server_new(s->context->shared->loop, s->context->pod->spec.label);
	if (s->context->pod->spec.machine) /* of others agentd does not see the files */
		sds_server_follow(s->server, s->context->shared->certificate_directories);
	on_trust(s);
}

static void on_certificate(void *ctx, struct cert *cert, const char *why_not)
{
	const struct pod_sds *s = ctx;

	if (s->server)
		sds_server_set_cert(s->server, cert, why_not);
}

static bool on_call(void *ctx, struct rpc_stream *st, const char *method)
{
	const struct pod_sds *s = ctx;

	return sds_server_incoming(s->server, st, method);
}

static void stop(void *ctx)
{
	struct pod_sds *s = ctx;

	sds_server_free(&s->server);
}

static void show(void *ctx, json_t *o, const char *name)
{
	const struct pod_sds *s = ctx;

	(void)name;
	if (s->server)
		json_object_set_new(o, "sds", sds_server_dump(s->server));
}

static enum served served(void *ctx, struct err *why)
{
	const struct pod_sds *s = ctx;
	const char *refused = crl_why_refused(s->context->plane->crl);

	if (!s->server)
		return SERVED_YES;
	if (!refused)
		return sds_server_served(s->server, why);
	err_set(why, ERR_UNAVAILABLE, "Envoys refuse peers: revocation list: %s", refused);
	return SERVED_NO;
}

static unsigned count(void *ctx)
{
	const struct pod_sds *s = ctx;

	return s->server ? sds_server_streams(s->server) : 0;
}

const struct pod_service pod_sds_service = {
    .name = "sds",
    .size = sizeof(struct pod_sds),
    .stop = stop,
    .directory = on_directory,
    .trust = on_trust,
    .certificate = on_certificate,
    .served = served,
    .call = on_call,
    .page = "xds",
    .show = show,
    .gauge = "agentd_sds_streams",
    .gauge_help = "Secret streams of Envoys.",
    .count = count,
};
