/* agent_pod.c
 *
 * start -> directory made -> bootstrap written, SDS, XDS, server -> sockets listen -> ready.
 * Meanwhile: the token is read -> certificate subscribed; a token changes -> the certificate cache
 * looks again, as it does when the token expires; a certificate comes -> SDS is told, a new root is
 * written beside the bootstrap; so are trust anchors of PCDS and the control plane's revocation
 * list; a connection shows the pod's addresses -> the node is rendered anew; a call comes -> SDS or
 * XDS takes it. stop is the exact reverse.
 */
#include "pod_services.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "dns.h"
#include "redirect.h"
#include "token.h"
#include "worker/ads/discovery.h"
#include "worker/ads/pcds.h"
#include "worker/ads/xds_proxy.h"
#include "worker/base/loop.h"
#include "worker/base/metrics.h"
#include "worker/base/rpc/server.h"
#include "worker/certs/cert_cache.h"
#include "worker/certs/crl.h"
#include "worker/crypto/roots.h"
#include "worker/envoy/bootstrap.h"
#include "worker/istiod/istiod.h"
#include "worker/link/link.h"
#include "worker/pods/pod.h"
#include "worker/sds/server.h"
#include "worker/sockets/uds.h"
#include <string.h>

LOG_SCOPE("pod");

/* Of one connection: what Envoy takes for the limit until it hears another one. */
enum { CONNECTION_STREAMS_MAX = 100 };

struct pod_services {
	const struct agent_shared *shared;
	struct pod *pod;
	struct node *node;
	struct link_call *adding;
	struct pod_token *token; /* NULL until there is a directory */
	struct limits *limits;
	struct log_budget log;
	struct rpc_server *server;
	struct sds_server *sds;
	struct xds_proxy *xds;
	struct uds *uds;
	struct pod_redirect *redirect;
	struct pod_dns *dns;
	bool listening;
	struct cert_sub *certificate;
	struct cert *cert;
	char *anchors; /* of PCDS; NULL: not told yet */
	char *bundle;  /* the certificate's roots and these; NULL: just those */
};

static struct plane *plane_of(const struct pod_services *s)
{
	return &s->shared->planes[node_settings(s->node)->plane];
}

static const struct token *valid_token(void *ctx, struct err *e)
{
	const struct pod_services *s = ctx;

	return pod_token_valid(s->token, e);
}

/* What the pod trusts: NULL before its first certificate. */
static const char *roots_of(const struct pod_services *s)
{
	if (s->bundle)
		return s->bundle;
	return s->cert ? s->cert->root_pem : NULL;
}

void pod_services_trust_changed(struct pod_services *s)
{
	if (s->sds)
		sds_server_set_trust(s->sds, s->bundle, crl_pem(plane_of(s)->crl));
}

/* The roots of `c`, which may be the one that is there, and the anchors as they are now. */
static void set_trust(struct pod_services *s, struct cert *c)
{
	struct cert *old_cert = s->cert;
	char *old_bundle = s->bundle;
	const char *old = roots_of(s), *now;

	s->cert = cert_ref(c);
	s->bundle = s->anchors && *s->anchors ? roots_union(c->root_pem, s->anchors) : NULL;
	now = roots_of(s);
	if (!old || strcmp(old, now) != 0)
		link_write(s->shared->link, &s->pod->uid, LINK_FILE_ROOT, now, strlen(now));
	pod_services_trust_changed(s);
	cert_unref(&old_cert);
	free(old_bundle);
}

/* Roots first: the peers' certificates may be of the new one already. */
static void on_cert(void *ctx, struct cert *c, const char *why_not)
{
	struct pod_services *s = ctx;

	if (c && c != s->cert)
		set_trust(s, c);
	sds_server_set_cert(s->sds, c, why_not);
	if (c && !s->pod->certified)
		pod_set_certified(s->pod);
}

/* They change what is trusted, never the certificate: no CSR comes of it (security-rules.md 3). */
static int on_anchors(void *ctx, const struct rpc_msg *response, struct err *e)
{
	struct pod_services *s = ctx;
	char *anchors = pcds_read(response, e);

	if (!anchors)
		return -1;
	free(s->anchors);
	s->anchors = anchors;
	if (s->cert)
		set_trust(s, s->cert);
	return 0;
}

static struct cert_spec cert_spec_of(const struct pod_services *s)
{
	const struct node_settings *n = node_settings(s->node);
	struct cert_spec spec;

	memset(&spec, 0, sizeof(spec)); /* padding too: compared by memcmp */
	memcpy(spec.ns, s->pod->ns, sizeof(spec.ns));
	memcpy(spec.sa, s->pod->sa, sizeof(spec.sa));
	memcpy(spec.cert_signer, n->cert_signer, sizeof(spec.cert_signer));
	spec.key.type = n->key.type;
	spec.key.pkcs8 = n->key.pkcs8;
	spec.ttl_s = n->ttl_s;
	spec.ratio = n->ratio;
	spec.jitter = n->jitter;
	if (n->scope_pod)
		spec.pod = s->pod->uid;
	return spec;
}

/* At the first word about the token: before it there is nothing to say about a certificate. */
static void subscribe(struct pod_services *s)
{
	const struct cert_spec spec = cert_spec_of(s);

	s->certificate = cert_subscribe(
	    plane_of(s)->certs, &spec, &s->pod->uid, s->pod->label, valid_token, on_cert, s);
}

/* What Envoy was given it keeps; the ADS streams ask for the token themselves. */
static void on_token(void *ctx, bool expired)
{
	struct pod_services *s = ctx;

	if (!expired)
		xds_proxy_token_changed(s->xds);
	if (s->certificate)
		cert_token_changed(s->certificate);
	else
		subscribe(s);
}

void pod_services_token_changed(struct pod_services *s)
{
	if (s->token)
		pod_token_again(s->token);
}

static void write_bootstrap(struct pod_services *s)
{
	size_t len;
	auto_free char *text = bootstrap_render(s->node, &len);

	link_write(s->shared->link, &s->pod->uid, LINK_FILE_BOOTSTRAP, text, len);
}

static void on_addresses(void *ctx, const char *const *ips, size_t n)
{
	struct pod_services *s = ctx;

	if (node_set_addresses(s->node, ips, n) && !pod_redirect_holds(s->redirect))
		write_bootstrap(s); /* who starts again need not begin with the placeholder */
}

/* --- limits --- */

static void count_floods(struct pod_services *s)
{
	unsigned n = s->server ? rpc_server_floods(s->server) : 0;

	if (n > 0)
		log_warn_limited(&s->log, s->pod->label, "a flood of frames: its connection ended");
	while (n-- > 0)
		limits_hit(s->limits, LIMIT_FRAMES);
}

static const char *admit(void *ctx, int fd, unsigned connections)
{
	struct pod_services *s = ctx;

	count_floods(s);
	if (!limits_admit_fd(s->limits, fd))
		return "the node is short of file descriptors";
	if (!limits_admit(s->limits, LIMIT_CONNECTIONS, connections))
		return "the pod has too many connections";
	if (limits_attempt(s->limits) != LIMITS_FINE)
		return "the pod connects too often";
	return NULL;
}

static void on_request(void *ctx)
{
	struct pod_services *s = ctx;

	if (limits_request(s->limits) != LIMITS_FINE)
		rpc_server_hold(s->server, true);
}

static void on_refilled(void *ctx)
{
	struct pod_services *s = ctx;

	if (s->server)
		rpc_server_hold(s->server, false);
}

static void on_breach(void *ctx, enum rpc_breach what)
{
	static const enum limit limits[] = {
	    [RPC_BREACH_MESSAGE] = LIMIT_MESSAGE, [RPC_BREACH_SILENT] = LIMIT_SILENT};
	struct pod_services *s = ctx;

	limits_hit(s->limits, limits[what]);
}

/* Was the call refused?  `st` counts already. */
static bool refuse_call(struct pod_services *s, struct rpc_stream *st)
{
	enum limits_verdict v = limits_attempt(s->limits);

	if (v == LIMITS_FLOOD) {
		log_warn_limited(&s->log, s->pod->label, "a flood of calls: all connections ended");
		rpc_server_cut_all(s->server);
		rpc_refuse_connection(st);
	} else if (v == LIMITS_WAIT)
		rpc_refuse(st, RPC_RESOURCE_EXHAUSTED, "the pod calls too often");
	else if (!limits_admit(s->limits, LIMIT_STREAMS, rpc_server_streams(s->server) - 1))
		rpc_refuse(st, RPC_RESOURCE_EXHAUSTED, "the pod has too many streams");
	else
		return false;
	return true;
}

static void on_call(void *ctx, struct rpc_stream *st, const char *method)
{
	struct pod_services *s = ctx;

	if (refuse_call(s, st))
		return;
	if (!sds_server_incoming(s->sds, st, method) && !xds_proxy_incoming(s->xds, st, method))
		log_debug(s->pod->label, "no such method: %s", method); /* answered UNIMPLEMENTED */
}

/* Whose traffic is not redirected (yet) may start, unless it is strict. */
static void tell_state(struct pod_services *s)
{
	const struct err *why_not = pod_redirect_state(s->redirect);

	if (why_not && !pod_redirect_holds(s->redirect))
		pod_set_degraded(s->pod, why_not);
	else
		pod_set_ready(s->pod, why_not);
}

static void on_listening(void *ctx, const struct err *e)
{
	struct pod_services *s = ctx;

	s->listening = !e;
	if (e)
		pod_set_ready(s->pod, e);
	else
		tell_state(s);
}

/* Who starts the pod waits for its bootstrap: a strict one shall not run before its rules. */
static void on_redirected(void *ctx)
{
	struct pod_services *s = ctx;

	if (!pod_redirect_holds(s->redirect) && s->sds)
		write_bootstrap(s);
	if (s->listening)
		tell_state(s);
}

static void on_inbound(void *ctx, bool redirected)
{
	const struct pod_services *s = ctx;

	pod_dns_live(s->dns, redirected);
}

static void on_directory(void *ctx, const struct err *e)
{
	static const struct uds_events sockets = {admit, on_listening, on_addresses};
	struct pod_services *s = ctx;
	const struct rpc_server_options options = {
	    .max_message = (size_t)limits_value(s->limits, LIMIT_MESSAGE),
	    .max_streams = CONNECTION_STREAMS_MAX,
	    .max_headers = (size_t)limits_value(s->limits, LIMIT_HEADERS),
	    .memory = (size_t)limits_value(s->limits, LIMIT_MEMORY),
	    .silent_ms = (unsigned)limits_value(s->limits, LIMIT_SILENT) * 1000,
	    .per_second = limits_value(s->limits, LIMIT_REQUESTS),
	    .burst = limits_value(s->limits, LIMIT_BURST),
	    .request = on_request,
	    .breach = on_breach};
	const struct agent_shared *a = s->shared;

	if (e)
		return pod_set_ready(s->pod, e);
	if (!pod_redirect_holds(s->redirect))
		write_bootstrap(s);
	s->sds = sds_server_new(a->loop, s->pod->label);
	pod_services_trust_changed(s);
	s->token = pod_token_start(a, s->pod, on_token, s);
	s->xds = xds_proxy_new(s->pod, s->node, plane_of(s)->istiod, valid_token, s);
	xds_proxy_limit(s->xds, s->limits);
	pod_dns_subscribe(s->dns, s->xds);
	if (a->pcds)
		xds_proxy_take(s->xds, TYPE_PROXY_CONFIG, on_anchors, s);
	if (s->pod->token)
		pod_token_again(s->token);
	s->server = rpc_server_new(a->rpc, &options, on_call, s);
	s->uds = uds_new(a->loop, a->link, &s->pod->uid, s->pod->label, s->server, &sockets, s);
}

struct pod_services *pod_services_start(const struct agent_shared *a, struct pod *p,
    struct node *node, const struct redirect_plan *plan)
{
	struct pod_services *s = mem_zalloc(sizeof(*s));

	s->shared = a;
	s->pod = p;
	s->node = node;
	s->limits = limits_new(a->loop, &a->limits, on_refilled, s);
	link_pod_add(a->link, &s->adding, &p->uid, on_directory, s);
	s->redirect = pod_redirect_start(a->redirect, p, plan, on_redirected, s);
	s->dns = pod_dns_start(a, p, plan, node_settings(node)->dns_timeout_ms);
	node_set_dns_captured(node, pod_dns_captured(s->dns));
	pod_redirect_watch(s->redirect, on_inbound, s);
	return s;
}

void pod_services_stop_accepting(struct pod_services *s)
{
	if (s->uds)
		uds_stop(s->uds);
}

void pod_services_stop(struct pod_services **services)
{
	struct pod_services *s = take(*services);

	if (!s)
		return;
	link_call_cancel(&s->adding);
	pod_redirect_stop(&s->redirect);
	pod_dns_stop(&s->dns);
	uds_free(&s->uds);
	cert_unsubscribe(&s->certificate);
	xds_proxy_free(&s->xds);
	sds_server_free(&s->sds);
	rpc_server_free(&s->server);
	limits_free(&s->limits);
	cert_unref(&s->cert);
	free(s->bundle);
	free(s->anchors);
	pod_token_stop(&s->token);
	node_free(&s->node);
	free(s);
}

static json_t *dump_limits(struct pod_services *s)
{
	int64_t in_use[LIMIT_END];

	count_floods(s);
	for (unsigned i = 0; i < LIMIT_END; i++)
		in_use[i] = -1;
	if (s->server) {
		in_use[LIMIT_CONNECTIONS] = rpc_server_connections(s->server);
		in_use[LIMIT_STREAMS] = rpc_server_streams(s->server);
		in_use[LIMIT_QUEUED] = (int64_t)xds_proxy_queued(s->xds);
	}
	return limits_dump(s->limits, in_use);
}

const struct pod_dns *pod_services_dns(const struct pod_services *s)
{
	return s->dns;
}

json_t *pod_services_dump(struct pod_services *s)
{
	json_t *o = json_pack("{s:s, s:s, s:o}", "node_id", node_id(s->node), "control_plane",
	    istiod_options(plane_of(s)->istiod)->name, "token",
	    s->token ? pod_token_dump(s->token) : json_object());

	json_object_set_new(o, "redirect", pod_redirect_dump(s->redirect));
	json_object_set_new(o, "dns", pod_dns_dump(s->dns));
	json_object_update(o, (json_t *)node_leftovers(s->node));
	if (s->uds)
		json_object_set_new(o, "sockets", uds_dump(s->uds));
	json_object_set_new(o, "limits", dump_limits(s));
	return o;
}

json_t *pod_services_dump_redirect(const struct pod_services *s)
{
	return pod_redirect_dump(s->redirect);
}

json_t *pod_services_dump_xds(const struct pod_services *s)
{
	if (!s->xds)
		return json_object();
	return json_pack(
	    "{s:o, s:o}", "ads", xds_proxy_dump(s->xds), "sds", sds_server_dump(s->sds));
}

void pod_services_streams(const struct pod_services *s, unsigned *sds, unsigned *xds)
{
	*sds += s->sds ? sds_server_streams(s->sds) : 0;
	*xds += s->xds && xds_proxy_connected(s->xds);
}

void pod_services_measure(struct pod_services *s, const char *labels)
{
	static struct metric *expiry;
	int64_t left_s;
	auto_free char *text = mem_printf("%s,resource_name=\"default\"", labels);

	count_floods(s);
	pod_redirect_measure(s->redirect, labels);
	pod_dns_measure(s->dns, labels);
	if (!expiry)
		expiry = metric_gauge("istio_agent_cert_expiry_seconds",
		    "Seconds until the certificate of the pod expires.");
	if (s->cert) {
		left_s = s->cert->leaf.not_after - loop_now_ms(s->shared->loop) / 1000;
		metric_set(expiry, text, (double)left_s);
	}
}
