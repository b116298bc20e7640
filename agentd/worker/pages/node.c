/* node.c - pages of the node and its control planes: /status, /version, /certs. */
#include "pages_internal.h"
#include "worker/base/library_versions.h"
#include "worker/base/loop.h"
#include "worker/certs/cert_cache.h"
#include "worker/certs/crl.h"
#include "worker/config/config.h"
#include "worker/istiod/istiod.h"
#include "worker/kubelet/kubelet.h"
#include "worker/link/cage.h"
#include "worker/pod/shared.h"
#include "worker/pods/manifest_dir.h"
#include "worker/pods/pod.h"

static json_t *dump_plane(const struct plane *p)
{
	json_t *o = istiod_dump(p->istiod);

	json_object_set_new(o, "crl", crl_dump(p->crl));
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

json_t *pages_status(const struct pages_of *of)
{
	const struct agent_shared *shared = of->shared;
	json_t *planes = json_array();
	unsigned ready = 0, total = 0;

	for (size_t i = 0; i < shared->node.nplanes; i++)
		json_array_append_new(planes, dump_plane(&shared->planes[i]));
	for (struct pod *p = pod_first(of->pods); p; p = p->next, total++)
		ready += p->ready;
	return json_pack("{s:s, s:s, s:b, s:I, s:s, s:i, s:i, s:b, s:o, s:o, s:o, s:o}", "version",
	    AGENTD_VERSION, "cage", cage_describe(), "confined", cage_state().entered, "uptime_s",
	    (json_int_t)((loop_now_ms(shared->loop) - of->started_ms) / 1000), "node_name",
	    of->config->node_name, "pods", (int)total, "pods_ready", (int)ready, "settled",
	    pod_registry_is_settled(of->pods), "control_planes", planes, "refused_manifests",
	    manifest_dir_refused(of->manifests), "csi_socket", kubelet_dump(of->kubelet), "kubelet",
	    dump_kubelet(of->kubelet));
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
	return json_pack("{s:s, s:o}", "agentd", AGENTD_VERSION, "libraries", libraries);
}

json_t *pages_certs(const struct pages_of *of)
{
	json_t *all = json_array();

	for (size_t i = 0; i < of->shared->node.nplanes; i++) {
		json_t *some = cert_cache_dump(of->shared->planes[i].certs);

		json_array_extend(all, some);
		json_decref(some);
	}
	return json_pack("{s:o}", "certificates", all);
}
