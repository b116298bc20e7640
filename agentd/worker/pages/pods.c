/* pods.c - pages of every pod: what its services say, over their table. */
#include "pages_internal.h"
#include "worker/kubelet/kubelet.h"
#include "worker/pod/pod_services.h"
#include "worker/pod/redirect.h"
#include "worker/pod/shared.h"
#include "worker/pods/manifest_dir.h"
#include "worker/pods/pod.h"

static json_t *uid_of(const struct pod *p)
{
	char uid[UUID_TEXT_SIZE];

	uuid_format(&p->spec.uid, uid);
	return json_string(uid);
}

static json_t *dump_pod(const struct pages_of *of, const struct pod *p)
{
	struct err why = {0};
	const enum served served = pod_services_served(p, &why);
	json_t *o = json_pack("{s:o, s:s, s:s, s:s, s:s, s:b, s:s, s:s, s:s}", "uid", uid_of(p),
	    "namespace", p->spec.ns, "name", p->spec.name, "service_account", p->spec.sa, "source",
	    p->source->name, "ready", p->ready, "why_not", pod_why_not(p), "served",
	    served_word(served), "why_unserved", why.msg);
	json_t *volume = kubelet_dump_volume(of->kubelet, &p->spec.uid);

	if (p->services)
		pod_services_dump(p->services, o);
	if (volume)
		json_object_set_new(o, "volume", volume);
	return o;
}

json_t *pages_unserved(const struct pages_of *of)
{
	json_t *all = json_array();

	for (struct pod *p = pod_first(of->pods); p; p = p->next) {
		struct err why = {0};
		const enum served served = pod_services_served(p, &why);

		if (served >= SERVED_HELD)
			json_array_append_new(
			    all, json_pack("{s:s, s:s, s:s, s:s}", "namespace", p->spec.ns, "name",
				     p->spec.name, "served", served_word(served), "why", why.msg));
	}
	return all;
}

json_t *pages_pods(const struct pages_of *of)
{
	json_t *all = json_array();

	for (struct pod *p = pod_first(of->pods); p; p = p->next)
		json_array_append_new(all, dump_pod(of, p));
	return json_pack("{s:o, s:o, s:o}", "pods", all, "refused_manifests",
	    manifest_dir_refused(of->manifests), "waiting_volumes",
	    kubelet_dump_waiting(of->kubelet));
}

static json_t *show_pod(const struct pod *p, const char *page, bool by_label, const char *name)
{
	json_t *o = json_object();

	if (p->services)
		pod_services_show(p->services, page, o, name);
	json_object_set_new(o, "pod", json_string(p->spec.label));
	if (by_label)
		return o;
	json_object_set_new(o, "uid", uid_of(p));
	if (!p->services)
		json_object_set_new(o, "why_not", json_string(p->state.msg));
	return o;
}

json_t *pages_identities(const struct pages_of *of)
{
	json_t *all = json_array();

	for (struct pod *p = pod_first(of->pods); p; p = p->next) {
		json_t *o = json_object();

		if (p->services)
			pod_services_show(p->services, "certs", o, NULL);
		if (json_object_size(o))
			json_array_append(all, json_object_get(o, "identity"));
		json_decref(o);
	}
	return all;
}

json_t *pages_services(const struct pages_of *of, const char *page, bool by_label, const char *name)
{
	json_t *all = json_array();

	for (struct pod *p = pod_first(of->pods); p; p = p->next)
		json_array_append_new(all, show_pod(p, page, by_label, name));
	return json_pack("{s:o}", page, all);
}
