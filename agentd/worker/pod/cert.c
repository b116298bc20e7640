/* cert.c - the pod's certificate, and what the pod trusts.
 *
 * The first word about the token -> subscribed at the cache of the control plane -> a certificate
 * comes -> a new root is written beside the bootstrap, trust is told, then the certificate.  Trust
 * anchors come by the ADS stream (PCDS) -> the same, without a certificate.  The token changes or
 * expires -> the cache looks again.  Envoy calls for secrets -> the cache hears that it is waited
 * for.
 */
#include "base/loop.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "file.h"
#include "identity.h"
#include "rows.h"
#include "worker/ads/discovery.h"
#include "worker/ads/pcds.h"
#include "worker/ads/xds_proxy.h"
#include "worker/certs/cert_cache.h"
#include "worker/crypto/roots.h"
#include "worker/istiod/istiod.h"
#include "worker/pods/pod.h"
#include <stdio.h>
#include <string.h>

LOG_SCOPE("cert");

struct pod_cert {
	struct pod_context *context;
	struct cert_sub *subscription;
	struct cert *cert;
	int64_t begun_ms;   /* uptime */
	bool may_use;       /* it, as the cache said last */
	struct err why_not; /* why there is none, or no newer one; code 0: nothing is wrong */
	char *anchors;      /* of PCDS; NULL: not told yet */
	char anchors_note[ROOTS_NOTE_SIZE];
	char *bundle;         /* the certificate's roots and these; NULL: just those */
	struct pod_file file; /* of what the pod trusts */
};

/* --- trust --- */

/* What the pod trusts: NULL before its first certificate. */
static const char *roots_of(const struct pod_cert *s)
{
	if (s->bundle)
		return s->bundle;
	return s->cert ? s->cert->root_pem : NULL;
}

static char *content(void *ctx, size_t *size)
{
	const char *roots = roots_of(ctx);

	*size = strlen(roots);
	return mem_strdup(roots);
}

/* The roots of `c`, which may be the one that is there, and the anchors as they are now. */
static void set_trust(struct pod_cert *s, struct cert *c)
{
	struct pod_context *context = s->context;
	struct cert *old_cert = s->cert;
	char *old_bundle = s->bundle;
	const char *old = roots_of(s), *now;

	s->cert = cert_ref(c);
	s->bundle = s->anchors && *s->anchors ? roots_union(c->root_pem, s->anchors) : NULL;
	now = roots_of(s);
	if (!old || strcmp(old, now) != 0)
		pod_file_write(&s->file);
	context->roots = s->bundle;
	pod_tell_trust(context);
	cert_unref(&old_cert);
	free(old_bundle);
}

/* They change what is trusted, never the certificate: no CSR comes of it (security-rules.md 3). */
static int on_anchors(void *ctx, const struct rpc_msg *response, struct err *e)
{
	struct pod_cert *s = ctx;
	char note[ROOTS_NOTE_SIZE];
	char *anchors = pcds_read(response, note, e);

	if (!anchors)
		return -1;
	if (*note && strcmp(note, s->anchors_note) != 0)
		log_warn(s->context->pod->spec.label, "trust anchors of istiod: %s", note);
	snprintf(s->anchors_note, sizeof(s->anchors_note), "%s", note);
	free(s->anchors);
	s->anchors = anchors;
	if (s->cert)
		set_trust(s, s->cert);
	return 0;
}

static void on_directory(void *ctx)
{
	struct pod_cert *s = ctx;

	if (s->context->shared->pcds)
		xds_proxy_take(s->context->ads, TYPE_PROXY_CONFIG, on_anchors, s);
}

/* --- the certificate --- */

static struct cert_spec spec_of(const struct pod_context *c)
{
	const struct node_settings *n = node_settings(c->node);
	struct cert_spec spec;

	memset(&spec, 0, sizeof(spec)); /* padding too: compared by memcmp */
	memcpy(spec.ns, c->pod->spec.ns, sizeof(spec.ns));
	memcpy(spec.sa, c->pod->spec.sa, sizeof(spec.sa));
	memcpy(spec.cert_signer, n->cert_signer, sizeof(spec.cert_signer));
	spec.key.type = n->key.type;
	spec.key.pkcs8 = n->key.pkcs8;
	spec.ttl_s = n->ttl_s;
	spec.ratio = n->ratio;
	spec.jitter = n->jitter;
	if (n->scope_pod ||
	    c->pod->spec.by_certificate) /* what it shows is not for others to use */
		spec.pod = c->pod->spec.uid;
	return spec;
}

/* Roots first: the peers' certificates may be of the new one already. */
static void on_cert(void *ctx, struct cert *c, const char *why_not)
{
	struct pod_cert *s = ctx;
	struct pod *p = s->context->pod;

	s->may_use = c != NULL;
	s->why_not = (struct err){0};
	if (*why_not)
		err_set(&s->why_not, ERR_UNAVAILABLE, "%s", why_not);
	if (c && c != s->cert)
		set_trust(s, c);
	pod_tell_certificate(s->context, c, why_not);
	if (c && !p->certified)
		pod_set_certified(p);
}

static const struct token *valid_token(void *ctx, struct err *e)
{
	const struct pod_cert *s = ctx;

	return pod_identity_credential(s->context->identity, e);
}

/* Before it is known what there is to show istiod, there is nothing to say about a certificate. */
static void on_token(void *ctx, bool expired)
{
	struct pod_cert *s = ctx;
	const struct pod_context *c = s->context;
	struct cert_spec spec;

	(void)expired;
	if (!pod_identity_is_known(c->identity))
		return;
	if (s->subscription && pod_identity_wants_new(c->identity))
		cert_renew(s->subscription);
	if (s->subscription)
		return cert_token_changed(s->subscription);
	spec = spec_of(c);
	s->subscription = cert_subscribe(c->plane->certs, &spec,
	    &(struct cert_subscriber){
		c->pod->spec.uid, c->pod->spec.label, valid_token, on_cert, s});
}

/* It is for the rows below to take. */
static bool on_call(void *ctx, struct rpc_stream *st, const char *method)
{
	const struct pod_cert *s = ctx;

	(void)st, (void)method;
	if (s->subscription)
		cert_wanted(s->subscription);
	return false;
}

/* --- life --- */

static void on_lost(void *ctx, unsigned files)
{
	if (files & 1U << LINK_FILE_ROOT)
		pod_file_lost(&((struct pod_cert *)ctx)->file);
}

/* Envoy has its roots by SDS: the file is for others. */
static enum pod_progress progress(void *ctx, const struct err **why)
{
	enum pod_progress p = pod_file_progress(&((const struct pod_cert *)ctx)->file, why);

	return p == POD_FINE || p == POD_BEGINS ? POD_FINE : POD_DEGRADED;
}

static const char *no_certificate(const struct pod_cert *s)
{
	const struct istiod *istiod = s->context->plane->istiod;

	if (s->why_not.code)
		return s->why_not.msg;
	if (!s->subscription)
		return "nothing to show istiod was read yet";
	return *istiod_why_not(istiod) ? istiod_why_not(istiod) : "istiod has not answered yet";
}

static bool has_only_begun(const struct pod_cert *s)
{
	const int64_t ms = loop_uptime_ms(s->context->shared->loop) - s->begun_ms;

	return !s->why_not.code && !*istiod_why_not(s->context->plane->istiod) &&
	       ms < SERVED_BEGINS_MS;
}

static enum served served(void *ctx, struct err *why)
{
	const struct pod_cert *s = ctx;
	const int64_t now_s = loop_now_ms(s->context->shared->loop) / 1000;

	if (!s->may_use && has_only_begun(s))
		return SERVED_UNASKED;
	if (!s->may_use || s->cert->leaf.not_after <= now_s) {
		err_set(why, ERR_UNAVAILABLE, "no certificate: %s", no_certificate(s));
		return SERVED_NO;
	}
	if (!s->why_not.code)
		return SERVED_YES;
	err_set(why, ERR_UNAVAILABLE, "its certificate is not renewed: %s", s->why_not.msg);
	return SERVED_HELD;
}

/* A renewal that is refused takes nothing yet. */
static enum pod_has has(void *ctx, const char **why)
{
	const struct pod_cert *s = ctx;

	if (s->may_use)
		return POD_HAS;
	*why = s->why_not.code ? s->why_not.msg : istiod_why_not(s->context->plane->istiod);
	return s->why_not.code ? POD_LACKS : POD_WAITS;
}

static int start(void *ctx, struct err *e)
{
	struct pod_cert *s = ctx;

	(void)e;
	s->begun_ms = loop_uptime_ms(s->context->shared->loop);
	s->file = (struct pod_file){.context = s->context,
	    .file = LINK_FILE_ROOT,
	    .name = "its root-cert.pem",
	    .content = content,
	    .ctx = s};
	return 0;
}

static void stop(void *ctx)
{
	struct pod_cert *s = ctx;

	pod_file_stop(&s->file);
	cert_unsubscribe(&s->subscription);
	cert_unref(&s->cert);
	free(s->bundle);
	free(s->anchors);
}

static void dump(void *ctx, json_t *o)
{
	const struct pod_cert *s = ctx;

	if (*s->anchors_note)
		json_object_set_new(o, "trust_anchors", json_string(s->anchors_note));
}

static void measure(void *ctx, const char *labels)
{
	const struct pod_cert *s = ctx;
	auto_free char *text = mem_printf("%s,resource_name=\"default\"", labels);
	struct metric *expiry = metric_gauge(
	    "istio_agent_cert_expiry_seconds", "Seconds until the certificate of the pod expires.");
	int64_t now_s = loop_now_ms(s->context->shared->loop) / 1000;

	if (s->cert)
		metric_set(expiry, text, (double)(s->cert->leaf.not_after - now_s));
}

const struct pod_service pod_cert_service = {
    .name = "cert",
    .size = sizeof(struct pod_cert),
    .start = start,
    .stop = stop,
    .progress = progress,
    .served = served,
    .has = has,
    .lost = on_lost,
    .directory = on_directory,
    .token = on_token,
    .call = on_call,
    .dump = dump,
    .measure = measure,
};
