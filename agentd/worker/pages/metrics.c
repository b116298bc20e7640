/* metrics.c - gauges, brought up to date when somebody scrapes: the node's, then each pod's, over
 * the table of services.
 */
#include "base/metrics.h"
#include "base/loop.h"
#include "common/err.h"
#include "common/log.h"
#include "common/version.h"
#include "pages_internal.h"
#include "rpc/rpc.h"
#include "worker/certs/crl.h"
#include "worker/istiod/istiod.h"
#include "worker/kubelet/kubelet.h"
#include "worker/link/cage.h"
#include "worker/link/heartbeat.h"
#include "worker/pod/redirect.h"
#include "worker/pod/rows.h"
#include "worker/pod/shared.h"
#include "worker/pods/pod.h"
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

char *pages_pod_labels(const struct pod *p, char *out, unsigned size)
{
	return metric_labels(out, size, "pod", p->spec.name, "namespace", p->spec.ns, NULL);
}

/* --- the process --- */

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

static void measure_process(const struct agent_shared *s)
{
	struct metric *lag = metric_gauge("agentd_event_loop_lag_seconds",
	    "Longest callback of the event loop in the last minute or two.");
	struct metric *build = metric_gauge("agentd_build_info", "Version of agentd.");
	struct metric *cage = metric_gauge("agentd_cage_level",
	    "Confinement of the worker: 0 is none, else 1 or the level of Landlock's ABI.");
	struct metric *fds =
	    metric_gauge("process_open_fds", "Open file descriptors of the worker.");
	struct metric *rss =
	    metric_gauge("process_resident_memory_bytes", "Resident memory of the worker.");
	char labels[100];

	metric_set(lag, "", (double)loop_stall_ms(s->loop) / 1000);
	metric_set(build, metric_labels(labels, sizeof(labels), "version", version_text, NULL), 1);
	metric_set(cage, "protection=\"seccomp\"", cage_state().seccomp);
	metric_set(cage, "protection=\"landlock\"", cage_state().landlock);
	metric_set(fds, "", count_fds());
	metric_set(rss, "", resident_bytes());
}

static void measure_planes(const struct agent_shared *s)
{
	struct metric *connected = metric_gauge("agentd_control_plane_connected",
	    "1: a connection to the control plane is there; 0: agentctl status says why not.");
	struct metric *expiry = metric_gauge("agentd_root_expiry_seconds",
	    "Seconds until the first of the control plane's root certificates expires that no "
	    "later one renews.");
	struct metric *list = metric_gauge("agentd_crl_expiry_seconds",
	    "Seconds until the revocation list in force ends for the node's certificates.");
	struct metric *bad = metric_gauge("agentd_crl_problem",
	    "1: the revocation list is not in force, or Envoys refuse peers under it; agentctl "
	    "status says why.");
	const double now_s = (double)loop_now_ms(s->loop) / 1000;
	char labels[400];

	for (size_t i = 0; i < s->node.nplanes; i++) {
		const struct istiod *istiod = s->planes[i].istiod;
		const struct crl *crl = s->planes[i].crl;
		const int64_t expires = istiod_root_expires(istiod);

		metric_labels(
		    labels, sizeof(labels), "control_plane", istiod_options(istiod)->name, NULL);
		metrics_drop(labels); /* what is there no more */
		metric_set(connected, labels, istiod_connected(istiod));
		metric_set(bad, labels, crl_has_problem(crl));
		if (expires)
			metric_set(expiry, labels, (double)expires - now_s);
		if (crl_ends(crl))
			metric_set(list, labels, (double)crl_ends(crl) - now_s);
	}
}

static void measure_pushes(const struct rpc *r)
{
	struct metric *bytes =
	    metric_gauge("agentd_push_memory_bytes", "Pushes of all pods: on their way, waiting to "
						     "be received, and what may be on its way.");
	struct metric *streams = metric_gauge(
	    "agentd_push_waiting_streams", "Streams whose next push waits to be received.");
	struct metric *unbound = metric_counter("agentd_push_unbounded_streams_total",
	    "Streams whose pushes push_memory_mib does not bound.");
	const struct rpc_flow f = rpc_flow(r);

	metric_set(bytes, "state=\"held\"", (double)f.held);
	metric_set(bytes, "state=\"waiting\"", (double)f.waiting);
	metric_set(bytes, "state=\"bound\"", (double)f.bound);
	metric_set(streams, "", f.streams);
	metric_set(unbound, "", f.unseen);
}

static void measure_broker(const struct heartbeat *broker)
{
	struct metric *silent = metric_gauge("agentd_broker_silent_seconds",
	    "Seconds since the broker answered last; 0: it answers.");
	/* Sums of their own; nobody else adds to it. */
	struct metric *dropped = metric_counter("agentd_log_dropped_total",
	    "Lines of the log that were dropped, since nobody read it.");
	struct metric *restarts = metric_counter("agentd_worker_restarts_total",
	    "Workers that the broker had to replace since it started.");
	struct metric *memory =
	    metric_gauge("agentd_broker_resident_memory_bytes", "Resident memory of the broker.");

	metric_set(silent, "", (double)heartbeat_silent_s(broker));
	metric_set(restarts, "", heartbeat_restarts(broker));
	if (heartbeat_memory(broker))
		metric_set(memory, "", (double)heartbeat_memory(broker));
	metric_set(dropped, "program=\"agentd\"", heartbeat_dropped(broker));
	metric_set(dropped, "program=\"agentd-worker\"", (double)log_dropped());
}

/* --- its pods --- */

static void measure_row(struct pod *first, size_t row)
{
	struct metric *m = metric_gauge(pod_rows[row]->gauge, pod_rows[row]->gauge_help);
	unsigned n = 0;

	for (struct pod *p = first; p; p = p->next)
		n += p->services ? pod_services_count(p->services, row) : 0;
	metric_set(m, "", n);
}

static void measure_pods(struct pod *first)
{
	struct metric *pods = metric_gauge("agentd_pods", "Pods of this node.");
	struct metric *unserved = metric_gauge("agentd_pods_unserved",
	    "Pods that get nothing new now: held with what they have, or not served at all.");
	unsigned ready = 0, total = 0, served[SERVED_NO + 1] = {0};
	struct err why;
	char labels[400];

	for (struct pod *p = first; p; p = p->next, total++) {
		ready += p->ready;
		served[pod_services_served(p, &why)]++;
		if (p->services)
			pod_services_measure(
			    p->services, pages_pod_labels(p, labels, sizeof(labels)));
	}
	metric_set(pods, "state=\"ready\"", ready);
	metric_set(pods, "state=\"not_ready\"", total - ready);
	metric_set(unserved, "served=\"held\"", served[SERVED_HELD]);
	metric_set(unserved, "served=\"no\"", served[SERVED_NO]);
	for (size_t i = 0; pod_rows[i]; i++)
		if (pod_rows[i]->gauge)
			measure_row(first, i);
}

void pages_measure(const struct pages_of *of)
{
	measure_pods(pod_first(of->pods));
	measure_process(of->shared);
	measure_planes(of->shared);
	measure_pushes(of->shared->rpc);
	kubelet_measure(of->kubelet);
	measure_broker(of->broker);
}
