/* wishes.c - what a pod asks for in its annotations, and the mesh and the values where it is
 * silent. */
#include "base/json_text.h"
#include "common/err.h"
#include "common/mem.h"
#include "inject_internal.h"
#include "mesh/proxy_config.h"
#include <string.h>

/* {name: {..}}, as [{.., name}]. */
static json_t *list_of(const json_t *map)
{
	json_t *list = json_array(), *v;
	const char *name;

	json_object_foreach ((json_t *)map, name, v) {
		json_t *item = json_is_object(v) ? json_deep_copy(v) : json_null();

		json_object_set_new(item, "name", json_string(name));
		json_array_append_new(list, item);
	}
	return list;
}

/* An annotation that is a map {name: {..}}, or a list [{.., name}] already. */
static json_t *named_list(const struct inject_job *j, const char *annotation, struct err *e)
{
	const char *text = inject_annotation(j, annotation);
	json_t *given = json_loads(text && *text ? text : "{}", JSON_REJECT_DUPLICATES, NULL);
	json_t *list = json_is_array(given) ? json_incref(given) : list_of(given), *v;
	bool fine = given && (json_is_object(given) || json_is_array(given)) &&
		    json_array_size(list) <= INJECT_ITEMS_MAX;
	size_t i;

	json_array_foreach (list, i, v)
		fine = fine && *inject_name_of(v);
	json_decref(given);
	if (fine)
		return list;
	json_decref(list);
	err_set(e, ERR_INVALID,
	    "annotation %s: must be a JSON map of at most %d maps, or a list of maps with a name",
	    annotation, INJECT_ITEMS_MAX);
	return NULL;
}

/* The mesh's and the pod's, without what is default anyway. */
static json_t *read_proxy_config(const struct inject_job *j, struct err *e)
{
	json_t *mesh = inject_at(j->config->mesh, "defaultConfig"), *defaults, *own, *all, *v;
	auto_free char *text = json_is_object(mesh) ? json_text(mesh, JSON_COMPACT) : NULL;
	const char *annotation = inject_annotation(j, INJECT_CONFIG), *key;

	own = json_object();
	if (annotation)
		json_object_set_new(own, INJECT_CONFIG, json_string(annotation));
	defaults = proxy_config_read(NULL, NULL, e);
	all = proxy_config_read(text, own, e);
	json_object_foreach (defaults, key, v)
		if (json_equal(json_object_get(all, key), v))
			json_object_del(all, key);
	json_decref(defaults);
	json_decref(own);
	return all;
}

/* hub/name:tag-type, unless one of two names is an image already. */
static char *image_of(const struct inject_job *j, struct err *e)
{
	static const char *const types[] = {"-distroless", "-debug"};
	const json_t *values = j->config->values;
	auto_free char *name =
	    inject_annotation_or(j, "sidecar.istio.io/proxyImage", "global.proxy.image", "");
	auto_free char *own = inject_text(values, "global.proxy.image");
	auto_free char *hub = inject_text(values, "global.hub");
	auto_free char *tag = inject_text(values, "global.tag");
	auto_free char *variant = inject_text(values, "global.variant");
	auto_free char *type = inject_proxy_field(j, "image.imageType", variant ? variant : "");
	const char *asked = inject_annotation(j, "sidecar.istio.io/proxyImageType");
	size_t n = tag ? strlen(tag) : 0;

	if (strchr(name, '/'))
		return mem_strdup(name);
	if (!hub || !tag) {
		err_set(e, ERR_INVALID,
		    "values: global.hub and global.tag must say which image Envoy is in");
		return NULL;
	}
	if (!asked)
		asked = type;
	for (unsigned i = 0; *asked && i < 2; i++)
		if (n > strlen(types[i]) && !strcmp(tag + n - strlen(types[i]), types[i]))
			tag[n -= strlen(types[i])] = '\0';
	if (!strcmp(asked, "default"))
		asked = "";
	return mem_printf(
	    "%s/%s:%s%s%s", hub, own ? own : "proxyv2", tag, *asked ? "-" : "", asked);
}

static bool wants_merge(const struct inject_job *j)
{
	const char *own = inject_annotation(j, "prometheus.istio.io/merge-metrics");
	auto_free char *mesh = inject_text(j->config->mesh, "enablePrometheusMerge");

	return !inject_is_false(own ? own : mesh ? mesh : "true");
}

/* Only where istio's own rules redirect, the kubelet has to ask Envoy. */
static bool wants_rewrite(const struct inject_job *j)
{
	const char *mode = inject_annotation(j, "agentd.node.mesh/redirect");
	const char *own = inject_annotation(j, INJECT_REWRITE);
	auto_free char *values =
	    inject_text(j->config->values, "sidecarInjectorWebhook.rewriteAppHTTPProbe");

	if (!mode || !*mode)
		mode = j->config->redirect_mode;
	if (strcmp(mode, "istio-cni") != 0 && strcmp(mode, "istio-init") != 0)
		return false;
	return !inject_is_false(own && *own ? own : values ? values : "true");
}

int inject_read_wishes(struct inject_job *j, struct err *e)
{
	const char *form = inject_annotation(j, "sidecar.istio.io/nativeSidecar");
	const char *port = inject_annotation(j, "status.sidecar.istio.io/port");

	j->user_volumes = named_list(j, INJECT_USER_VOLUME, e);
	if (!j->user_volumes || inject_check_names(j, e) ||
	    !(j->user_mounts = named_list(j, INJECT_USER_MOUNT, e)) ||
	    !(j->proxy_config = read_proxy_config(j, e)) || !(j->image = image_of(j, e)))
		return -1;
	j->native = form && *form ? strcmp(form, "false") != 0 : j->config->native;
	j->hold = !j->native && (inject_true(j->proxy_config, "holdApplicationUntilProxyStarts") ||
				    inject_true(j->config->values,
					"global.proxy.holdApplicationUntilProxyStarts"));
	j->mesh_status_port = inject_text(j->config->mesh, "defaultConfig.statusPort");
	if (!j->mesh_status_port)
		j->mesh_status_port = mem_strdup("15020");
	j->status_port = port ? mem_strdup(port) : inject_proxy_field(j, "statusPort", "15020");
	j->merge = wants_merge(j);
	j->rewrite = wants_rewrite(j);
	return 0;
}
