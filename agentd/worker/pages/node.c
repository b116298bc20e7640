/* node.c - pages of the node and its control planes: /status, /version, /certs. */
#include "base/loop.h"
#include "common/log.h"
#include "common/mem.h"
#include "common/version.h"
#include "library_versions.h"
#include "pages_internal.h"
#include "rpc/rpc.h"
#include "worker/certs/cert_cache.h"
#include "worker/certs/crl.h"
#include "worker/config/config.h"
#include "worker/istiod/istiod.h"
#include "worker/kubelet/kubelet.h"
#include "worker/link/cage.h"
#include "worker/link/heartbeat.h"
#include "worker/link/link.h"
#include "worker/pod/pod_services.h"
#include "worker/pod/redirect.h"
#include "worker/pod/served.h"
#include "worker/pod/shared.h"
#include "worker/pods/manifest_dir.h"
#include "worker/pods/pod.h"
#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 2, 3))) static void say(json_t *to, const char *fmt, ...)
{
	char text[2 * ERR_MSG_SIZE];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	json_array_append_new(to, json_string(text));
}

/* Its warnings change no exit status. */
static json_t *dump_plane(const struct plane *p)
{
	json_t *o = istiod_dump(p->istiod);

	json_t *crl = crl_dump(p->crl), *warnings = cert_cache_warnings(p->certs);
	const char *of_crl = json_string_value(json_object_get(crl, "warning")),
		   *of_root = json_string_value(json_object_get(o, "root_note"));

	if (*of_root)
		say(warnings, "root certificate: %s", of_root);
	if (*of_crl)
		say(warnings, "%s", of_crl);
	json_object_set_new(o, "crl", crl);
	json_object_set_new(o, "warnings", warnings);
	return o;
}

/* Whether it knows us; null: this node has none. */
static json_t *dump_kubelet(const struct kubelet *k)
{
	const char *why_not = kubelet_why_not(k);

	if (!k)
		return json_null();
	return json_pack("{s:b, s:s?}", "registered", !why_not, "why_not", why_not);
}

/* Whether it answers. */
static json_t *dump_broker(struct heartbeat *broker)
{
	const char *why_not = heartbeat_why_not(broker);

	return json_pack("{s:b, s:s?}", "answers", !why_not, "why_not", why_not);
}

/* What is on its way from control planes to Envoys, all pods' (bytes), and the streams that wait.
 */
static json_t *dump_pushes(const struct rpc *r)
{
	const struct rpc_flow f = rpc_flow(r);

	return json_pack("{s:I, s:I, s:I, s:i}", "bound", (json_int_t)f.bound, "held",
	    (json_int_t)f.held, "waiting", (json_int_t)f.waiting, "streams", (int)f.streams);
}

/* Of many pods the first one's: one disk fails for all of them. */
static void say_trouble_of_pods(const struct pages_of *of, json_t *all)
{
	const struct pod *first = NULL;
	struct err why, e;
	unsigned n = 0;

	for (const struct pod *p = pod_first(of->pods); p; p = p->next) {
		if (!p->services || !pod_services_trouble(p->services, &e) || n++)
			continue;
		first = p;
		why = e;
	}
	if (n > 1)
		say(all, "%s and %u more: %s", first->spec.label, n - 1, why.msg);
	else if (n)
		say(all, "%s: %s", first->spec.label, why.msg);
}

/* What is wrong with the node, or was not done yet and is tried again, of no pod that could say it.
 */
static json_t *dump_problems(const struct pages_of *of)
{
	const struct agent_shared *s = of->shared;
	json_t *all = json_array();
	const unsigned long long unsaid = log_unsaid();
	const char *of_broker = heartbeat_problem(of->broker);
	auto_free char *above = pod_redirects_above(s->redirect);
	struct err why;
	unsigned n;

	if (of_broker)
		say(all, "%s", of_broker);
	if (unsaid)
		say(all, "nobody reads the log: %llu lines of the worker were dropped", unsaid);
	if ((n = link_insists(s->link, &why)))
		say(all, "%u request%s to the broker not done yet: %s", n, n == 1 ? "" : "s",
		    why.msg);
	if ((n = rpc_flow(s->rpc).unseen))
		say(all,
		    "%u streams whose pushes push_memory_mib does not bound: this grpc decrypts "
		    "elsewhere",
		    n);
	if (above)
		say(all, "%s", above);
	if ((n = kubelet_troubled(of->kubelet, &why)))
		say(all, "%u volume%s with a problem: %s", n, n == 1 ? "" : "s", why.msg);
	say_trouble_of_pods(of, all);
	for (size_t i = 0; i < s->node.nplanes; i++) {
		const struct err *e = cert_cache_why_unstored(s->planes[i].certs);

		if (e)
			say(all,
			    "certificates are not stored, so a restart requests each one again: %s",
			    e->msg);
		if ((n = cert_cache_over(s->planes[i].certs, &why)))
			say(all, "%u certificate%s over: %s", n, n == 1 ? " is" : "s are", why.msg);
	}
	return all;
}

json_t *pages_status(const struct pages_of *of)
{
	const struct agent_shared *shared = of->shared;
	json_t *planes = json_array();
	unsigned ready = 0, total = 0;

	for (size_t i = 0; i < shared->node.nplanes; i++)
		json_array_append_new(planes, dump_plane(&shared->planes[i]));
	for (struct pod *p = pod_first(of->pods); p; p = p->next, total++)
		ready += p->ready;
	return json_pack("{s:s, s:s, s:b, s:I, s:s, s:i, s:i, s:b, s:o, s:o, s:o, s:o, s:o, s:o, "
			 "s:o, s:o, s:o, s:b, s:o}",
	    "version", version_text, "cage", cage_describe(), "confined", cage_state().entered,
	    "uptime_s", (json_int_t)((loop_now_ms(shared->loop) - of->started_ms) / 1000),
	    "node_name", of->config->node_name, "pods", (int)total, "pods_ready", (int)ready,
	    "settled", pod_registry_is_settled(of->pods), "control_planes", planes,
	    "refused_manifests", manifest_dir_refused(of->manifests), "waiting_volumes",
	    kubelet_dump_waiting(of->kubelet), "csi_socket", kubelet_dump(of->kubelet), "kubelet",
	    dump_kubelet(of->kubelet), "broker", dump_broker(of->broker), "pushes",
	    dump_pushes(shared->rpc), "problems", dump_problems(of), "unserved", pages_unserved(of),
	    "in_charge", pod_served_is_in_charge(shared->served), "lost",
	    pod_served_lost(shared->served));
}

static void add_version(void *ctx, const char *library, const char *version)
{
	json_object_set_new(ctx, library, json_string(version));
}

json_t *pages_version(const struct pages_of *of)
{
	json_t *libraries = json_object();

	(void)of;
	library_versions_each(add_version, libraries);
	return json_pack("{s:s, s:o}", "agentd", version_text, "libraries", libraries);
}

json_t *pages_certs(const struct pages_of *of)
{
	json_t *all = json_array();

	for (size_t i = 0; i < of->shared->node.nplanes; i++) {
		json_t *some = cert_cache_dump(of->shared->planes[i].certs);

		json_array_extend(all, some);
		json_decref(some);
	}
	return json_pack("{s:o, s:o}", "certificates", all, "identities", pages_identities(of));
}
