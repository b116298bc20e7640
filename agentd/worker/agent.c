/* agent.c
 *
 * start: broker -> runtime -> control planes -> registry -> what an earlier worker stored
 *        (certificates, what served the pods, name tables) -> the kubelet's volumes, manifests ->
 * admin socket. A pod comes: its environment is read (mesh/node) and refused, or
 * pod_services.h starts its services. A pod changes: the new environment is read first; a bad one
 * leaves the old services alone. A pod goes: services stop, the broker drops sockets and directory.
 * end: the reverse of start.  The directories stay: a restart of agentd is not the end of a pod.
 */
#include "agent.h"
#include "agent_state.h"
#include "base/loop.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/version.h"
#include "mesh/traffic.h"
#include "rpc/guard.h"
#include "rpc/share.h"
#include "rpc/toll.h"
#include "worker/certs/ca_client.h"
#include "worker/certs/cert_cache.h"
#include "worker/certs/crl.h"
#include "worker/config/config.h"
#include "worker/dns/keep.h"
#include "worker/istiod/istiod.h"
#include "worker/kubelet/kubelet.h"
#include "worker/link/calls.h"
#include "worker/link/heartbeat.h"
#include "worker/link/link.h"
#include "worker/link/ready.h"
#include "worker/link/redirect.h"
#include "worker/pages/pages.h"
#include "worker/pod/accounts.h"
#include "worker/pod/redirect.h"
#include "worker/pod/rows.h"
#include "worker/pod/served.h"
#include "worker/pods/manifest_dir.h"
#include "worker/pods/pod.h"
#include <string.h>
#include <sys/socket.h>

LOG_SCOPE("agent");

/* The rest is for what no pod asked for: the broker, istiod, logs (threats-and-faults.md T9). */
enum { FDS_PERCENT = 90 };

struct agent {
	struct agent_shared shared;
	const struct config *config;
	struct node_plane *node_planes;
	struct agent_state *state; /* until it was read */
	struct pod_registry *pods;
	struct manifest_dir *manifests;
	struct kubelet *kubelet; /* NULL: no kubelet */
	struct pages *pages;
	struct heartbeat *broker;
	bool broker_lost;
};

/* For what the pod does not say itself. */
static struct redirect_node redirect_defaults(const struct agent *a, const struct pod *p)
{
	struct redirect_node n = {.strict = !strcmp(a->config->redirect_policy, "strict")};

	traffic_mode_parse(&n.mode, a->config->redirect); /* which was checked */
	if (p->spec.redirected)
		n.mode = REDIRECT_MODE_EBPF;
	return n;
}

/* Both of a pod's readers; NULL: refused.  Nothing was started yet. */
static struct node *read_pod(
    struct agent *a, struct pod *p, struct redirect_plan *plan, struct err *e)
{
	struct node *node = node_new(&p->spec, &a->shared.node, e);
	struct redirect_node n = redirect_defaults(a, p);

	if (!node)
		return NULL;
	n.status_port = node_settings(node)->agent_port;
	if (traffic_read(plan, &p->spec, &n, e))
		node_free(&node);
	else
		node_set_captured(node, plan->mode != REDIRECT_MODE_NONE);
	return node;
}

/* What runs of it goes on as it was; if nothing does, a strict one is closed. */
static void refuse(struct agent *a, struct pod *p, const struct err *e)
{
	const struct redirect_node n = redirect_defaults(a, p);

	if (!p->services && traffic_is_strict(&p->spec, &n))
		link_redirect_shut(a->shared.link, &p->spec.uid);
	pod_set_ready(p, e);
}

static void on_pod_added(void *ctx, struct pod *p)
{
	struct agent *a = ctx;
	struct redirect_plan plan;
	struct err e;
	struct node *node = read_pod(a, p, &plan, &e);

	if (!node) {
		log_error(p->spec.label, "pod refused: %s", e.msg);
		return refuse(a, p, &e);
	}
	p->services = pod_services_start(&a->shared, pod_rows, p, node, &plan);
}

static void on_pod_changed(void *ctx, struct pod *p)
{
	struct agent *a = ctx;
	struct redirect_plan plan;
	struct err e;
	struct node *node = read_pod(a, p, &plan, &e);

	if (!node) {
		err_wrap(&e, "change refused");
		log_error(p->spec.label, "%s", e.msg);
		return refuse(a, p, &e);
	}
	log_info(p->spec.label, "pod changed");
	pod_services_stop(&p->services);
	p->services = pod_services_start(&a->shared, pod_rows, p, node, &plan);
}

static void on_pod_token(void *ctx, struct pod *p)
{
	(void)ctx;
	if (p->services)
		pod_services_token_changed(p->services);
}

/* A StatefulSet's next pod may be here before the last one is gone. */
static bool has_namesake(const struct agent *a, const struct pod *gone)
{
	for (const struct pod *p = pod_first(a->pods); p; p = p->next)
		if (!strcmp(p->spec.label, gone->spec.label))
			return true;
	return false;
}

static void forget(const struct agent_shared *shared, const struct pod *gone)
{
	for (size_t i = 0; pod_rows[i]; i++)
		if (pod_rows[i]->forget)
			pod_rows[i]->forget(shared, gone);
}

static void on_pod_removed(void *ctx, struct pod *p)
{
	struct agent *a = ctx;
	char labels[400];

	pod_services_stop(&p->services);
	link_pod_remove(a->shared.link, &p->spec.uid);
	forget(&a->shared, p);
	pod_served_forget(a->shared.served, &p->spec.uid);
	if (!has_namesake(a, p))
		metrics_drop(pages_pod_labels(p, labels, sizeof(labels)));
	log_info(p->spec.label, "pod removed");
}

/* What an earlier worker left and none of these pods is goes now. */
static void on_pods_settled(void *ctx)
{
	struct agent *a = ctx;

	log_info(NULL, "ready");
	dns_keep_settle(a->shared.names);
	link_ready(a->shared.link);
	pod_served_begin(a->shared.served, a->pods);
}

static void on_broker_lost(void *ctx)
{
	struct agent *a = ctx;

	a->broker_lost = true;
	loop_stop(a->shared.loop);
}

/* Of any control plane; the pods of other planes see no change. */
static void on_crl(void *ctx)
{
	struct agent *a = ctx;

	for (struct pod *p = pod_first(a->pods); p; p = p->next)
		if (p->services)
			pod_services_trust_changed(p->services);
}

static void on_certificates(void *ctx, const struct cert *added)
{
	const struct plane *p = ctx;

	crl_try_again(p->crl, added);
}

static enum link_state place_of_keys(const struct config *c)
{
	return strcmp(c->state_keys, "memory") != 0 ? LINK_STATE_CERT : LINK_STATE_CERT_IN_MEMORY;
}

/* Pods run on the same kernel; in a network namespace of theirs "::" can be bound all the same when
 * its addresses are switched off. */
static bool kernel_has_ipv6(void)
{
	auto_close int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

	return fd >= 0;
}

static void make_planes(struct agent *a)
{
	const struct config *c = a->config;
	struct cert_cache_options certs = {.reissue_min_ms = c->certificate_reissue_min_s * 1000,
	    .linger_ms = c->certificate_linger_s * 1000,
	    .link = a->shared.link,
	    .keep = place_of_keys(c),
	    .changed = on_certificates};

	a->shared.planes = mem_zalloc(c->nplanes * sizeof(*a->shared.planes));
	a->node_planes = mem_zalloc(c->nplanes * sizeof(*a->node_planes));
	for (size_t i = 0; i < c->nplanes; i++) {
		struct plane *p = &a->shared.planes[i];
		const struct istiod_options *o = &c->planes[i];

		p->istiod =
		    istiod_new(a->shared.loop, a->shared.rpc, a->shared.link, o, (unsigned)i);
		p->ca = ca_client_new(a->shared.loop, p->istiod, (unsigned)c->csr_per_second);
		certs.ctx = p;
		p->certs = cert_cache_new(a->shared.loop, p->istiod, p->ca, &certs);
		p->crl = crl_new(&(struct crl_options){a->shared.loop, a->shared.link, (unsigned)i,
				     o->name, p->certs},
		    on_crl, a);
		a->node_planes[i] = (struct node_plane){o->address, o->server_name, o->trust_domain,
		    o->cluster_id, o->mesh_id, o->former_trust_domains, o->former_cluster_ids,
		    o->former_mesh_ids};
	}
	a->shared.pcds = c->pcds;
	a->shared.dns_upstream = c->dns_upstream;
	a->shared.certificate_directories = c->certificate_directories;
	a->shared.node = (struct node_context){
	    .planes = a->node_planes,
	    .nplanes = c->nplanes,
	    .node_name = c->node_name,
	    .host_ip = c->host_ip,
	    .istio_namespace = c->istio_namespace,
	    .cluster_domain = c->cluster_domain,
	    .ipv6 = !strcmp(c->ip_family, "ipv6"),
	    .both_families = kernel_has_ipv6(),
	    .version = version_text,
	    .ttl_min_s = c->secret_ttl_min_s,
	    .ttl_max_s = c->secret_ttl_max_s,
	    .scope_pod = !strcmp(c->certificate_scope, "pod"),
	};
}

static void set_limits(struct agent *a)
{
	const struct config *c = a->config;
	const struct limits_values v = {
	    .of = {
		[LIMIT_CONNECTIONS] = c->pod_connections,
		[LIMIT_STREAMS] = c->pod_streams,
		[LIMIT_MESSAGE] = c->pod_message_mib << 20,
		[LIMIT_MEMORY] = c->pod_memory_mib << 20,
		[LIMIT_NODE_MEMORY] = c->pods_memory_mib << 20,
		[LIMIT_HEADERS] = c->pod_header_kib << 10,
		[LIMIT_QUEUED] = c->pod_queued_mib << 20,
		[LIMIT_REQUESTS] = c->pod_requests_per_second,
		[LIMIT_NODE_REQUESTS] = c->pods_requests_per_second,
		[LIMIT_BURST] = c->pod_requests_burst,
		[LIMIT_FRAMES] = c->pod_requests_per_second * RPC_TOLL_FRAMES,
		[LIMIT_SILENT] = c->pod_silent_s,
		[LIMIT_FDS] = FDS_PERCENT,
	    }};

	a->shared.limits = v;
	rpc_guard_budget(LIMITS_SHARE, v.of[LIMIT_NODE_MEMORY]);
	share_set(v.of[LIMIT_NODE_REQUESTS]);
	rpc_bound(a->shared.rpc, c->push_memory_mib << 20);
}

/* Not before: a pod that comes earlier would cost a certificate that is there. */
static void on_names_restored(void *ctx)
{
	struct agent *a = ctx;

	a->kubelet = kubelet_new(&(struct kubelet_options){a->shared.loop, a->shared.link,
	    a->shared.rpc, a->pods, a->config->node_name, a->config->publish_wait_ms});
	a->manifests = manifest_dir_new(a->shared.loop, a->shared.link, a->pods);
	a->pages = pages_new(&(struct pages_of){&a->shared, a->config, a->pods, a->manifests,
	    a->kubelet, a->broker, loop_now_ms(a->shared.loop)});
}

static void on_served_restored(void *ctx)
{
	struct agent *a = ctx;

	dns_keep_restore(a->shared.names, on_names_restored, a);
}

static void on_restored(void *ctx)
{
	struct agent *a = ctx;

	agent_state_free(&a->state);
	pod_served_restore(a->shared.served, on_served_restored, a);
}

struct agent *agent_new(struct loop *l, const struct config *c, int broker_fd, struct err *e)
{
	static const struct pod_observer observer = {
	    on_pod_added, on_pod_changed, on_pod_token, on_pod_removed, on_pods_settled};
	struct agent *a = mem_zalloc(sizeof(*a));

	a->config = c;
	a->shared.loop = l;
	a->shared.link = link_new(l, broker_fd, on_broker_lost, a, e);
	if (!a->shared.link) {
		free(a);
		return NULL;
	}
	link_log(a->shared.link);
	if (!strcmp(c->attest, "require"))
		link_require_attestation(a->shared.link);
	a->shared.rpc = rpc_new(l);
	a->broker = heartbeat_new(l, a->shared.link);
	a->shared.redirect = pod_redirects_new(a->shared.link);
	a->shared.accounts = accounts_new();
	a->shared.names = dns_keep_new(l, a->shared.link);
	a->shared.served =
	    pod_served_new(&(struct pod_served_of){l, a->shared.link, pod_rows, c->ready_anyway});
	set_limits(a);
	make_planes(a);
	a->pods = pod_registry_new(&observer, a);
	a->state = agent_state_restore(&a->shared, place_of_keys(c), on_restored, a);
	log_info(NULL, "agentd-worker %s started, %zu control plane%s", version_text, c->nplanes,
	    c->nplanes == 1 ? "" : "s");
	return a;
}

bool agent_broker_lost(const struct agent *a)
{
	return a->broker_lost;
}

void agent_stop_accepting(struct agent *a)
{
	pod_served_look(a->shared.served);
	for (struct pod *p = pod_first(a->pods); p; p = p->next)
		if (p->services)
			pod_services_stop_accepting(p->services);
	kubelet_stop_accepting(a->kubelet);
	pages_stop_accepting(a->pages);
}

/* At the end of the process the pods stay pods: services stop, nothing is removed. */
static void stop_all_pods(struct agent *a)
{
	for (struct pod *p = pod_first(a->pods); p; p = p->next)
		pod_services_stop(&p->services);
}

void agent_free(struct agent **agent)
{
	struct agent *a = take(*agent);

	if (!a)
		return;
	agent_state_free(&a->state);
	pages_free(&a->pages);
	heartbeat_free(&a->broker);
	kubelet_free(&a->kubelet);
	manifest_dir_free(&a->manifests);
	pod_served_free(&a->shared.served);
	stop_all_pods(a);
	pod_registry_free(&a->pods);
	for (size_t i = 0; i < a->shared.node.nplanes; i++) {
		crl_free(&a->shared.planes[i].crl);
		cert_cache_free(&a->shared.planes[i].certs);
		ca_client_free(&a->shared.planes[i].ca);
		istiod_free(&a->shared.planes[i].istiod);
	}
	free(a->shared.planes);
	free(a->node_planes);
	rpc_free(&a->shared.rpc);
	pod_redirects_free(&a->shared.redirect);
	accounts_free(&a->shared.accounts);
	dns_keep_free(&a->shared.names);
	link_free(&a->shared.link);
	metrics_clear();
	free(a);
}
