/* agent_pages.c - see agent_pages.h: each page is put together when it is asked for. */
#include "pages.h"
#include "common/err.h"
#include "common/mem.h"
#include "dns.h"
#include "redirect.h"
#include "worker/admin/admin.h"
#include "worker/admin/metrics_port.h"
#include "worker/base/library_versions.h"
#include "worker/base/loop.h"
#include "worker/base/metrics.h"
#include "worker/certs/cert_cache.h"
#include "worker/certs/crl.h"
#include "worker/config/config.h"
#include "worker/istiod/istiod.h"
#include "worker/kubelet/kubelet.h"
#include "worker/link/cage.h"
#include "worker/link/link.h"
#include "worker/link/log.h"
#include "worker/pod/pod_services.h"
#include "worker/pods/manifest_dir.h"
#include "worker/pods/pod.h"
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

struct pages {
	struct pages_of of;
	struct admin *admin; /* NULL: nobody can look */
	struct pages_redirect *redirect;
	struct metrics_port *port; /* NULL: nobody asked for one */
	int64_t started_ms;
	struct {
		struct metric *pods, *sds, *xds, *lag, *build, *fds, *rss, *cage;
	} gauges;
};

char *pages_pod_labels(const struct pod *p, char *out, unsigned size)
{
	return metric_labels(out, size, "pod", p->name, "namespace", p->ns, NULL);
}

static json_t *dump_pod(const struct pages *a, const struct pod *p)
{
	char uid[UUID_TEXT_SIZE];
	json_t *o, *volume;

	uuid_format(&p->uid, uid);
	o = json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:s}", "uid", uid, "namespace", p->ns, "name",
	    p->name, "service_account", p->sa, "source", p->source->name, "ready", p->ready,
	    "why_not", p->state.code ? p->state.msg : "");
	if (p->services) {
		json_t *more = pod_services_dump(p->services);

		json_object_update(o, more);
		json_decref(more);
	}
	if ((volume = kubelet_dump_volume(a->of.kubelet, &p->uid)))
		json_object_set_new(o, "volume", volume);
	return o;
}

static json_t *dump_pods(void *ctx)
{
	const struct pages *a = ctx;
	json_t *all = json_array();

	for (struct pod *p = pod_first(a->of.pods); p; p = p->next)
		json_array_append_new(all, dump_pod(a, p));
	return json_pack("{s:o, s:o, s:o}", "pods", all, "refused_manifests",
	    manifest_dir_refused(a->of.manifests), "waiting_volumes",
	    kubelet_dump_waiting(a->of.kubelet));
}

static json_t *dump_certs(void *ctx)
{
	const struct pages *a = ctx;
	json_t *all = json_array();

	for (size_t i = 0; i < a->of.shared->node.nplanes; i++) {
		json_t *some = cert_cache_dump(a->of.shared->planes[i].certs);

		json_array_extend(all, some);
		json_decref(some);
	}
	return json_pack("{s:o}", "certificates", all);
}

static json_t *dump_xds(void *ctx)
{
	const struct pages *a = ctx;
	json_t *all = json_array();

	for (struct pod *p = pod_first(a->of.pods); p; p = p->next) {
		json_t *o = p->services ? pod_services_dump_xds(p->services) : json_object();

		json_object_set_new(o, "pod", json_string(p->label));
		json_array_append_new(all, o);
	}
	return json_pack("{s:o}", "xds", all);
}

static json_t *dump_plane(const struct plane *p)
{
	json_t *o = istiod_dump(p->istiod);

	json_object_set_new(o, "crl", crl_dump(p->crl));
	return o;
}

static void add_version(void *ctx, const char *library, const char *version)
{
	json_object_set_new(ctx, library, json_string(version));
}

static json_t *dump_version(void *ctx)
{
	json_t *libraries = json_object();

	(void)ctx;
	library_versions_each(add_version, libraries);
	return json_pack("{s:s, s:o}", "agentd", AGENTD_VERSION, "libraries", libraries);
}

static json_t *dump_status(void *ctx)
{
	const struct pages *a = ctx;
	json_t *planes = json_array();
	unsigned ready = 0, total = 0;

	for (size_t i = 0; i < a->of.shared->node.nplanes; i++)
		json_array_append_new(planes, dump_plane(&a->of.shared->planes[i]));
	for (struct pod *p = pod_first(a->of.pods); p; p = p->next, total++)
		ready += p->ready;
	return json_pack("{s:s, s:s, s:b, s:I, s:s, s:i, s:i, s:b, s:o, s:o, s:o}", "version",
	    AGENTD_VERSION, "cage", cage_describe(), "confined", cage_state().entered, "uptime_s",
	    (json_int_t)((loop_now_ms(a->of.shared->loop) - a->started_ms) / 1000), "node_name",
	    a->of.config->node_name, "pods", (int)total, "pods_ready", (int)ready, "settled",
	    pod_registry_is_settled(a->of.pods), "control_planes", planes, "refused_manifests",
	    manifest_dir_refused(a->of.manifests), "csi_socket", kubelet_dump(a->of.kubelet));
}

static double count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	double n = -3; /* ".", ".." and the directory itself */

	if (!d)
		return 0;
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static double resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	long total = 0, pages = 0;

	if (!f)
		return 0;
	if (fscanf(f, "%ld %ld", &total, &pages) != 2) /* NOLINT(cert-err34-c): the kernel's own */
		pages = 0;
	(void)fclose(f);
	return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

static void on_before_metrics(void *ctx)
{
	const struct pages *a = ctx;
	unsigned ready = 0, total = 0, sds = 0, xds = 0;
	char labels[400];

	for (struct pod *p = pod_first(a->of.pods); p; p = p->next, total++) {
		ready += p->ready;
		if (!p->services)
			continue;
		pod_services_streams(p->services, &sds, &xds);
		pod_services_measure(p->services, pages_pod_labels(p, labels, sizeof(labels)));
	}
	metric_set(a->gauges.pods, "state=\"ready\"", ready);
	metric_set(a->gauges.pods, "state=\"not_ready\"", total - ready);
	metric_set(a->gauges.sds, "", sds);
	metric_set(a->gauges.xds, "", xds);
	metric_set(a->gauges.lag, "", (double)loop_stall_ms(a->of.shared->loop) / 1000);
	metric_set(a->gauges.build, "version=\"" AGENTD_VERSION "\"", 1);
	metric_set(a->gauges.cage, "protection=\"seccomp\"", cage_state().seccomp);
	metric_set(a->gauges.cage, "protection=\"landlock\"", cage_state().landlock);
	metric_set(a->gauges.fds, "", count_fds());
	metric_set(a->gauges.rss, "", resident_bytes());
	kubelet_measure(a->of.kubelet);
}

/* That the loop turns is said by an answer. */
static const char *on_health_asked(void *ctx)
{
	const struct pages *a = ctx;

	return pod_registry_is_settled(a->of.pods)
		   ? NULL
		   : "starting: not all pods of before are served again";
}

static void make_gauges(struct pages *a)
{
	a->gauges.pods = metric_gauge("agentd_pods", "Pods of this node.");
	a->gauges.sds = metric_gauge("agentd_sds_streams", "Streams of Envoys for secrets.");
	a->gauges.xds = metric_gauge(
	    "agentd_xds_streams", "Streams of Envoys for configuration that istiod answers.");
	a->gauges.lag = metric_gauge("agentd_event_loop_lag_seconds",
	    "Longest callback of the event loop in the last minute or two.");
	a->gauges.build = metric_gauge("agentd_build_info", "Version of agentd.");
	a->gauges.cage = metric_gauge("agentd_cage_level",
	    "What confines the worker: 0 nothing, else 1, or the level of Landlock's ABI.");
	a->gauges.fds = metric_gauge("process_open_fds", "Open file descriptors of the worker.");
	a->gauges.rss =
	    metric_gauge("process_resident_memory_bytes", "Resident memory of the worker.");
}

static void on_levels(void *ctx)
{
	link_log(((struct pages *)ctx)->of.shared->link);
}

struct pages *pages_new(const struct pages_of *of)
{
	struct pages *a = mem_zalloc(sizeof(*a));
	const struct agent_shared *s = of->shared;
	int fd = link_take_listener(s->link, LINK_NODE_METRICS);

	a->of = *of;
	a->started_ms = loop_now_ms(s->loop);
	make_gauges(a);
	if (fd >= 0)
		a->port = metrics_port_new(
		    s->loop, fd, &(struct metrics_port_rig){on_before_metrics, on_health_asked, a});
	fd = link_take_listener(s->link, LINK_NODE_ADMIN);
	if (fd < 0)
		return a;
	a->admin = admin_new(s->loop, fd);
	admin_page(a->admin, "/status", dump_status, a);
	admin_page(a->admin, "/pods", dump_pods, a);
	admin_page(a->admin, "/certs", dump_certs, a);
	admin_page(a->admin, "/xds", dump_xds, a);
	admin_page(a->admin, "/version", dump_version, a);
	pages_dns(a->admin, of->pods);
	a->redirect = pages_redirect_new(s->loop, s->link, of->pods, a->admin);
	admin_on_levels(a->admin, on_levels, a);
	admin_before_metrics(a->admin, on_before_metrics, a);
	return a;
}

void pages_stop_accepting(struct pages *a)
{
	if (a && a->port)
		metrics_port_stop_accepting(a->port);
}

void pages_free(struct pages **pages)
{
	struct pages *a = take(*pages);

	if (!a)
		return;
	metrics_port_free(&a->port);
	pages_redirect_free(&a->redirect);
	admin_free(&a->admin);
	free(a);
}
