/* write.c - the result: labels, annotations, container, volumes; the status is the last. */
#include "base/json_text.h"
#include "common/mem.h"
#include "inject_internal.h"
#include <string.h>

/* istiod reads there in which network an endpoint is; of our own default no injector says it. */
static void put_labels(struct inject_job *j, const json_t *added)
{
	json_t *labels = inject_part(j->metadata, "labels", json_object());
	auto_free char *network = inject_text(j->config->values, "global.network");

	json_object_update(labels, (json_t *)added);
	if (network && !json_object_get(labels, "topology.istio.io/network"))
		json_object_set_new(labels, "topology.istio.io/network", json_string(network));
	if (j->config->hide_from_istiod)
		json_object_set_new(labels, INJECT_WISH, json_string("false"));
}

/* Ours, and the pod's own words over it; kept for a second injection, as Istio keeps them. */
static void put_container(struct inject_job *j, json_t *annotations)
{
	const char *key = j->native ? "initContainers" : "containers";
	json_t *list = inject_part(j->spec, key, json_array()), *ours = inject_proxy_container(j),
	       *all;
	const char *image = json_string_value(json_object_get(j->own_proxy, "image"));

	if (j->own_proxy) {
		json_t *overrides = json_pack("{s:[O]}", key, j->own_proxy);
		json_t *over = json_copy(j->own_proxy);
		char *text = json_text(overrides, JSON_COMPACT);

		if (!image || !strcmp(image, "auto"))
			json_object_del(over, "image");
		all = inject_overlay(ours, over);
		json_object_set_new(annotations, INJECT_OVERRIDES, json_string(text));
		json_decref(ours);
		json_decref(over);
		json_decref(overrides);
		free(text);
		ours = all;
	}
	if (j->native || j->hold)
		json_array_insert_new(list, 0, ours);
	else
		json_array_append_new(list, ours);
}

static void put_volumes(struct inject_job *j, json_t *attributes)
{
	json_t *secrets = inject_at(j->config->values, "global.imagePullSecrets"), *list, *v;
	size_t i;

	list = inject_part(j->spec, "volumes", json_array());
	json_array_extend(list, j->user_volumes);
	json_array_append_new(
	    list, json_pack("{s:s, s:{s:s, s:b, s:O}}", "name", INJECT_VOLUME, "csi", "driver",
		      INJECT_DRIVER, "readOnly", 1, "volumeAttributes", attributes));
	json_array_foreach (secrets, i, v) {
		list = inject_part(j->spec, "imagePullSecrets", json_array());
		if (json_is_string(v) && !inject_named(list, json_string_value(v)))
			json_array_append_new(list, json_pack("{s:O}", "name", v));
	}
}

static void put_annotations(struct inject_job *j, json_t *annotations)
{
	static const char *const defaults[] = {"kubectl.kubernetes.io/default-logs-container",
	    "kubectl.kubernetes.io/default-container"};
	const char *app = NULL, *own;
	json_t *c;
	size_t i;

	json_array_foreach (json_object_get(j->spec, "containers"), i, c)
		if (!app && strcmp(inject_name_of(c), INJECT_PROXY) != 0)
			app = inject_name_of(c);
	json_object_set_new(annotations, "istio.io/rev", json_string("default"));
	for (i = 0; app && i < 2; i++) {
		own = json_string_value(json_object_get(annotations, defaults[i]));
		if (!own || !*own)
			json_object_set_new(annotations, defaults[i], json_string(app));
	}
	if (!j->rewrite)
		json_object_set_new(annotations, INJECT_REWRITE, json_string("false"));
	inject_merge_metrics(j, annotations);
	json_object_update(annotations, j->config->annotations);
}

/* The pod's own one leaves its list; ours comes, with its words. */
static void take_own_proxy(struct inject_job *j)
{
	static const char *const lists[] = {"containers", "initContainers"};

	for (unsigned k = 0; k < 2; k++) {
		json_t *list = json_object_get(j->spec, lists[k]);

		for (size_t i = json_array_size(list); i-- > 0;) {
			json_t *c = json_array_get(list, i);

			if (strcmp(inject_name_of(c), INJECT_PROXY) != 0)
				continue;
			json_decref(j->own_proxy);
			j->own_proxy = json_incref(c);
			json_array_remove(list, i);
		}
	}
}

void inject_write(
    struct inject_job *j, const json_t *before, const json_t *labels, json_t *attributes)
{
	json_t *annotations = inject_part(j->metadata, "annotations", json_object());
	json_t *probes = json_object(), *status;
	char *text;

	put_labels(j, labels);
	take_own_proxy(j);
	put_annotations(j, annotations);
	put_container(j, annotations);
	put_volumes(j, attributes);
	if (j->rewrite)
		inject_rewrite_probes(j, probes);
	status = inject_status(before, j, probes);
	text = json_text(status, JSON_COMPACT);
	json_object_set_new(annotations, INJECT_STATUS, json_string(text));
	free(text);
	json_decref(status);
	json_decref(probes);
}
