/* undo.c - the annotation sidecar.istio.io/status: what was added, by name, as Istio writes it, and
 * what takes the rest back.
 *
 * {"initContainers": ["istio-proxy"], "containers": null, "volumes": [...], "imagePullSecrets": ..,
 *  "revision": "default", "undo": {
 *   "metadata": {..}    a merge patch (RFC 7386) to labels and annotations as they were
 *   "spec": {..}        the same for lists that were not there, or were others
 *   "at": ["containers", 1]   where the pod's own istio-proxy stood
 *   "probes": {"app": {"livenessProbe": {..}}}   as they were
 * }}
 *
 * istiod passes over a key that it does not know.  All of it is the pod owner's to write: each part
 * is looked at before it is used, and reaches nothing but what injection writes.
 */
#include "base/json_text.h"
#include "common/err.h"
#include "common/mem.h"
#include "inject_internal.h"
#include <string.h>

static const char *const lists[] = {"initContainers", "containers", "volumes"};
/* Which of the spec's members injection may make or change whole. */
static const char *const whole[] = {"initContainers", "volumes", "imagePullSecrets"};
enum { NLISTS = sizeof(lists) / sizeof(*lists), NWHOLE = sizeof(whole) / sizeof(*whole) };

/* --- writing --- */

/* What makes `to` of `from`; NULL: nothing is to do. */
static json_t *patch_to(json_t *from, json_t *to)
{
	json_t *out = json_object(), *v;
	const char *key;

	json_object_foreach (from, key, v)
		if (!json_object_get(to, key))
			json_object_set_new(out, key, json_null());
	json_object_foreach (to, key, v) {
		json_t *now = json_object_get(from, key);

		if (json_is_object(v) && json_is_object(now)) {
			json_t *inner = patch_to(now, v);

			if (inner)
				json_object_set_new(out, key, inner);
		} else if (!now || !json_equal(now, v))
			json_object_set(out, key, v);
	}
	if (json_object_size(out))
		return out;
	json_decref(out);
	return NULL;
}

/* The status itself is written after this. */
static json_t *metadata_patch(const json_t *before, const struct inject_job *j)
{
	json_t *was = json_object_get(before, "metadata");
	json_t *out = patch_to(j->metadata, was), *annotations;

	if (!was || json_is_null(was)) {
		json_decref(out);
		return json_null();
	}
	if (!out)
		out = json_object();
	annotations = json_object_get(out, "annotations");
	if (!annotations) {
		annotations = json_object();
		json_object_set_new(out, "annotations", annotations);
	}
	if (json_is_object(annotations))
		json_object_set_new(annotations, INJECT_STATUS, json_null());
	return out;
}

static json_t *spec_patch(const json_t *before, const struct inject_job *j)
{
	const json_t *spec = json_object_get(before, "spec");
	json_t *out = json_object();

	for (unsigned i = 0; i < NWHOLE; i++) {
		json_t *old = json_object_get(spec, whole[i]);
		json_t *now = json_object_get(j->spec, whole[i]);

		if (now && (!old || json_is_null(old)))
			json_object_set_new(out, whole[i], json_null());
		else if (!strcmp(whole[i], "imagePullSecrets") && !json_equal(old, now))
			json_object_set(out, whole[i], old);
	}
	return out;
}

/* [list, index] of the pod's own container; NULL: it had none. */
static json_t *place_of_own(const json_t *before)
{
	json_t *c;
	size_t i;

	for (unsigned k = 0; k < 2; k++)
		json_array_foreach (inject_at(json_object_get(before, "spec"), lists[k]), i, c)
			if (!strcmp(inject_name_of(c), INJECT_PROXY))
				return json_pack("[s,i]", lists[k], (int)i);
	return NULL;
}

static json_t *volume_names(const struct inject_job *j)
{
	json_t *names = json_array(), *v;
	size_t i;

	json_array_foreach (j->user_volumes, i, v)
		json_array_append_new(names, json_string(inject_name_of(v)));
	json_array_append_new(names, json_string(INJECT_VOLUME));
	return names;
}

/* The same pod has the same status, in whatever order its annotations came. */
static json_t *sorted(json_t *o)
{
	auto_free char *text = json_text(o, JSON_SORT_KEYS | JSON_COMPACT);

	json_decref(o);
	return json_loads(text, 0, NULL);
}

json_t *inject_status(const json_t *before, const struct inject_job *j, json_t *probes)
{
	json_t *proxy = json_pack("[s]", INJECT_PROXY), *secrets, *undo = json_object(), *part;

	secrets = inject_at(j->config->values, "global.imagePullSecrets");
	json_object_set_new(undo, "metadata", metadata_patch(before, j));
	json_object_set_new(undo, "spec", spec_patch(before, j));
	if ((part = place_of_own(before)))
		json_object_set_new(undo, "at", part);
	if (json_object_size(probes))
		json_object_set(undo, "probes", probes);
	return json_pack("{s:o, s:o, s:o, s:o, s:s, s:o}", "initContainers",
	    j->native ? proxy : json_null(), "containers", j->native ? json_null() : proxy,
	    "volumes", volume_names(j), "imagePullSecrets",
	    json_array_size(secrets) ? json_incref(secrets) : json_null(), "revision", "default",
	    "undo", sorted(undo));
}

/* --- taking back --- */

static void remove_named(json_t *list, const json_t *names)
{
	json_t *known = json_object(), *v;
	size_t i;

	json_array_foreach (names, i, v)
		if (json_is_string(v))
			json_object_set_new(known, json_string_value(v), json_true());
	for (i = json_array_size(list); i-- > 0;)
		if (json_object_get(known, inject_name_of(json_array_get(list, i))))
			json_array_remove(list, i);
	json_decref(known);
}

/* RFC 7386, for maps of what `o` holds. */
static void merge_patch(json_t *o, json_t *patch)
{
	const char *key;
	json_t *v;

	json_object_foreach (patch, key, v) {
		if (json_is_null(v))
			json_object_del(o, key);
		else if (json_is_object(v) && json_is_object(json_object_get(o, key)))
			merge_patch(json_object_get(o, key), v);
		else
			json_object_set(o, key, v);
	}
}

static void take_back_metadata(json_t *pod, const json_t *undo)
{
	static const char *const keys[] = {"labels", "annotations"};
	json_t *metadata = json_object_get(pod, "metadata"), *patch, *part;

	patch = json_object_get(undo, "metadata");
	if (json_is_null(patch))
		json_object_del(pod, "metadata");
	for (unsigned i = 0; i < 2; i++) {
		part = json_object_get(patch, keys[i]);
		if (json_is_null(part))
			json_object_del(metadata, keys[i]);
		else if (json_is_object(part))
			merge_patch(json_object_get(metadata, keys[i]), part);
	}
}

static void take_back_lists(json_t *spec, const json_t *undo)
{
	json_t *patch = json_object_get(undo, "spec"), *v;

	for (unsigned i = 0; i < NWHOLE; i++) {
		v = json_object_get(patch, whole[i]);
		if (json_is_null(v))
			json_object_del(spec, whole[i]);
		else if (json_is_array(v) && !strcmp(whole[i], "imagePullSecrets"))
			json_object_set(spec, whole[i], v);
	}
}

static void take_back_probes_of(json_t *container, const json_t *was)
{
	json_t *v;

	for (unsigned i = 0; i < INJECT_PROBED; i++)
		if ((v = json_object_get(was, inject_probed[i])))
			json_object_set(container, inject_probed[i], v);
}

static void take_back_probes(json_t *spec, const json_t *undo)
{
	json_t *probes = json_object_get(undo, "probes"), *c;
	size_t i;

	for (unsigned k = 0; k < 2; k++)
		json_array_foreach (json_object_get(spec, lists[k]), i, c)
			take_back_probes_of(c, json_object_get(probes, inject_name_of(c)));
}

/* The pod's own container, to where it stood. */
static int take_back_own(json_t *pod, const json_t *undo, struct err *e)
{
	const char *text = json_string_value(json_object_get(
	    json_object_get(json_object_get(pod, "metadata"), "annotations"), INJECT_OVERRIDES));
	json_t *at = json_object_get(undo, "at"), *overrides, *own, *list;
	const char *key = json_string_value(json_array_get(at, 0));
	size_t index = (size_t)json_integer_value(json_array_get(at, 1));
	int rc = 0;

	if (!at)
		return 0;
	overrides = json_loads(text ? text : "", 0, NULL);
	own = inject_own_proxy(overrides);
	list = key && (!strcmp(key, lists[0]) || !strcmp(key, lists[1]))
		   ? json_object_get(json_object_get(pod, "spec"), key)
		   : NULL;
	if (!own || !json_is_array(list) || index > json_array_size(list))
		rc = err_set(e, ERR_INVALID,
		    "annotation %s does not say where the pod's own istio-proxy stood",
		    INJECT_STATUS);
	else
		json_array_insert(list, index, own);
	json_decref(overrides);
	return rc;
}

static json_t *status_of(const json_t *pod)
{
	const char *text = json_string_value(json_object_get(
	    json_object_get(json_object_get(pod, "metadata"), "annotations"), INJECT_STATUS));

	return text ? json_loads(text, 0, NULL) : NULL;
}

bool inject_is_injected(const json_t *pod)
{
	const json_t *annotations =
	    json_object_get(json_object_get(pod, "metadata"), "annotations");

	return json_object_get(annotations, INJECT_STATUS);
}

static int take_back(json_t *pod, const json_t *status, struct err *e)
{
	const json_t *undo = json_object_get(status, "undo");
	json_t *spec = json_object_get(pod, "spec");

	if (!json_is_object(undo) || !json_is_object(spec))
		return err_set(e, ERR_INVALID,
		    "injected by another injector (annotation %s): use the manifest that it was "
		    "made from",
		    INJECT_STATUS);
	for (unsigned i = 0; i < NLISTS; i++)
		remove_named(json_object_get(spec, lists[i]), json_object_get(status, lists[i]));
	if (take_back_own(pod, undo, e))
		return -1;
	take_back_lists(spec, undo);
	take_back_probes(spec, undo);
	take_back_metadata(pod, undo);
	return 0;
}

json_t *inject_take_back(const json_t *pod, struct err *e)
{
	json_t *out = json_deep_copy(pod), *status;

	if (!inject_is_injected(pod))
		return out;
	status = status_of(pod);
	if (take_back(out, status, e))
		json_decref(take(out));
	json_decref(status);
	return out;
}
