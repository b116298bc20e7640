/* inject.c - the order of work (injection.md 4):
 *
 * shape -> an earlier injection of ours is taken back -> refusals by name -> annotations,
 * ProxyConfig
 * -> the volume's attributes -> a node's own readers -> container, volumes, secrets -> labels and
 * annotations -> probes -> status, which says how all of it is taken back.
 */
#include "common/err.h"
#include "common/mem.h"
#include "inject_internal.h"
#include "worker/envoy/proxy_config.h"
#include <string.h>

/* --- shall it be injected --- */

/* The label wins; an empty one says nothing. */
static const char *wish_of(const json_t *metadata, const char **from)
{
	static const char *const maps[] = {"labels", "annotations"};
	static const char *const names[] = {"label", "annotation"};

	for (unsigned i = 0; i < 2; i++) {
		const char *v = json_string_value(
		    json_object_get(json_object_get(metadata, maps[i]), INJECT_WISH));

		*from = names[i];
		if (v && *v)
			return v;
	}
	return NULL;
}

struct inject_rule inject_rule_of(const json_t *pod, const char *ns)
{
	static const char *const never[] = {
	    "kube-system", "kube-public", "kube-node-lease", "local-path-storage"};
	static const char disabled[] = "has sidecar injection disabled";
	const char *from, *wish = wish_of(json_object_get(pod, "metadata"), &from);

	if (inject_true(pod, "spec.hostNetwork"))
		return (struct inject_rule){
		    false, "hostNetwork", "has host networking enabled", false};
	for (unsigned i = 0; i < sizeof(never) / sizeof(*never); i++)
		if (!strcmp(never[i], ns))
			return (struct inject_rule){
			    false, "a namespace of Kubernetes' own", disabled, false};
	if (wish && !strcmp(wish, "false"))
		return (struct inject_rule){false,
		    *from == 'l' ? "label sidecar.istio.io/inject is \"false\""
				 : "annotation sidecar.istio.io/inject is \"false\"",
		    disabled, false};
	return (struct inject_rule){true,
	    wish && !strcmp(wish, "true") ? "sidecar.istio.io/inject is \"true\"" : "by default",
	    NULL, !wish || strcmp(wish, "true") != 0};
}

/* --- shape --- */

/* null is as good as nothing in the API. */
static int check_map(const json_t *metadata, const char *key, struct err *e)
{
	json_t *map = json_object_get(metadata, key), *v;
	char shown[64];
	const char *name;

	if (map && !json_is_null(map) && !json_is_object(map))
		return err_set(e, ERR_INVALID, "metadata.%s: must be a map", key);
	json_object_foreach (map, name, v)
		if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
			return err_set(e, ERR_INVALID, "metadata.%s: %s must be text: quote it",
			    key, err_printable(shown, sizeof(shown), name, (unsigned)strlen(name)));
	return 0;
}

/* `names`: those that were met. */
static int check_named(json_t *names, const char *key, const json_t *thing, struct err *e)
{
	const char *name = inject_name_of(thing);
	char shown[64];

	if (!*name)
		return err_set(e, ERR_INVALID, "spec.%s: each must have a name", key);
	if (json_object_get(names, name))
		return err_set(e, ERR_INVALID, "spec.%s: two are named \"%s\"", key,
		    err_printable(shown, sizeof(shown), name, (unsigned)strlen(name)));
	json_object_set_new(names, name, json_true());
	return 0;
}

static int check_list(const json_t *spec, const char *key, json_t *names, struct err *e)
{
	json_t *list = json_object_get(spec, key), *v;
	size_t i;

	if (list && !json_is_null(list) && !json_is_array(list))
		return err_set(e, ERR_INVALID, "spec.%s: must be a list", key);
	json_array_foreach (list, i, v)
		if (check_named(names, key, v, e))
			return -1;
	return 0;
}

/* Names of containers are unique in both lists together. */
static int check_lists(const json_t *spec, struct err *e)
{
	json_t *containers = json_object(), *volumes = json_object(), *secrets = json_object();
	int rc = check_list(spec, "containers", containers, e) ||
		 check_list(spec, "initContainers", containers, e) ||
		 check_list(spec, "volumes", volumes, e) ||
		 check_list(spec, "imagePullSecrets", secrets, e);

	json_decref(containers);
	json_decref(volumes);
	json_decref(secrets);
	if (!rc && !json_array_size(json_object_get(spec, "containers")))
		return err_set(e, ERR_INVALID, "spec.containers: must have a container");
	return rc ? -1 : 0;
}

static int check_shape(const json_t *pod, struct err *e)
{
	const json_t *metadata = json_object_get(pod, "metadata");
	const json_t *spec = json_object_get(pod, "spec");

	if (metadata && !json_is_null(metadata) && !json_is_object(metadata))
		return err_set(e, ERR_INVALID, "metadata: must be a map");
	if (!json_is_object(spec))
		return err_set(e, ERR_INVALID, "spec: must be a map");
	if (check_map(metadata, "labels", e) || check_map(metadata, "annotations", e))
		return -1;
	return check_lists(spec, e);
}

/* A map or list to add to; what was null or missing becomes an empty one. */
static json_t *part(json_t *o, const char *key, json_t *empty)
{
	json_t *v = json_object_get(o, key);

	if (v && !json_is_null(v)) {
		json_decref(empty);
		return v;
	}
	json_object_set_new(o, key, empty);
	return empty;
}

/* --- refusals by name --- */

static int refuse_sandbox(const struct inject_job *j, struct err *e)
{
	const char *class = json_string_value(inject_at(j->spec, "runtimeClassName"));
	json_t *v;
	size_t i;

	json_array_foreach (j->config->sandboxes, i, v)
		if (class && !strcmp(class, json_string_value(v)))
			return err_set(e, ERR_INVALID,
			    "runtimeClassName %s is a sandbox: sockets and cgroups of the node end "
			    "at it",
			    class);
	return 0;
}

static int refuse_template(const struct inject_job *j, struct err *e)
{
	const char *wanted = inject_annotation(j, "inject.istio.io/templates");
	char shown[64];

	if (!wanted || !*wanted || !strcmp(wanted, j->config->template_name))
		return 0;
	return err_set(e, ERR_INVALID, "requested template \"%s\" not found; have %s",
	    err_printable(shown, sizeof(shown), wanted, (unsigned)strlen(wanted)),
	    j->config->template_name);
}

static int refuse_volume(const struct inject_job *j, const char *name, struct err *e)
{
	if (!inject_named(json_object_get(j->spec, "volumes"), name))
		return 0;
	return err_set(e, ERR_INVALID, "the pod has a volume \"%.64s\" already: rename it", name);
}

/* A label that is there is never changed: a ReplicaSet would lose its pods. */
static int refuse_wish(const struct inject_job *j, struct err *e)
{
	if (!j->config->hide_from_istiod || !json_object_get(j->labels, INJECT_WISH))
		return 0;
	return err_set(e, ERR_INVALID,
	    "label %s: istiod's injector would inject this pod, too: remove the label",
	    INJECT_WISH);
}

static int refuse(const struct inject_job *j, struct err *e)
{
	json_t *v;
	size_t i;

	if (inject_true(j->spec, "hostNetwork"))
		return err_set(e, ERR_INVALID,
		    "a pod with hostNetwork has no network of its own to be meshed");
	if (refuse_sandbox(j, e) || refuse_template(j, e) || refuse_volume(j, INJECT_VOLUME, e) ||
	    refuse_wish(j, e))
		return -1;
	json_array_foreach (j->user_volumes, i, v)
		if (refuse_volume(j, inject_name_of(v), e))
			return -1;
	return inject_check_annotations(j->annotations, e);
}

/* --- what the annotations ask for --- */

/* {name: {..}} of an annotation, as a list of {.., name}. */
static json_t *named_list(const struct inject_job *j, const char *annotation, struct err *e)
{
	const char *text = inject_annotation(j, annotation);
	json_t *map = json_loads(text && *text ? text : "{}", JSON_REJECT_DUPLICATES, NULL);
	json_t *list = json_array(), *v;
	const char *name;
	bool fine = json_is_object(map);

	json_object_foreach (map, name, v) {
		json_t *item = json_is_object(v) ? json_deep_copy(v) : NULL;

		fine = fine && item && *name;
		json_object_set_new(item, "name", json_string(name));
		json_array_append_new(list, item);
	}
	json_decref(map);
	if (fine)
		return list;
	json_decref(list);
	err_set(e, ERR_INVALID, "annotation %s: must be a JSON map of maps", annotation);
	return NULL;
}

/* The mesh's and the pod's, without what is default anyway. */
static json_t *read_proxy_config(const struct inject_job *j, struct err *e)
{
	json_t *mesh = inject_at(j->config->mesh, "defaultConfig"), *defaults, *own, *all, *v;
	auto_free char *text = json_is_object(mesh) ? json_dumps(mesh, JSON_COMPACT) : NULL;
	const char *annotation = inject_annotation(j, "proxy.istio.io/config"), *key;

	own = json_object();
	if (annotation)
		json_object_set_new(own, "proxy.istio.io/config", json_string(annotation));
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

static int read_wishes(struct inject_job *j, struct err *e)
{
	const char *form = inject_annotation(j, "sidecar.istio.io/nativeSidecar");
	const char *port = inject_annotation(j, "status.sidecar.istio.io/port");

	j->user_volumes = named_list(j, "sidecar.istio.io/userVolume", e);
	if (!j->user_volumes || refuse(j, e) ||
	    !(j->user_mounts = named_list(j, "sidecar.istio.io/userVolumeMount", e)) ||
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

/* --- writing --- */

static const char *label_of(const struct inject_job *j, const char *const *names)
{
	for (; *names; names++) {
		const char *v = json_string_value(json_object_get(j->labels, *names));

		if (v && *v)
			return v;
	}
	return NULL;
}

/* A label holds 63 characters. */
static json_t *canonical_name(const char *name)
{
	size_t n = strlen(name);

	n = n > 63 ? 63 : n;
	return json_stringn(name, n && name[n - 1] == '-' ? n - 1 : n);
}

static json_t *labels_added(const struct inject_job *j)
{
	static const char *const modes[] = {"security.istio.io/tlsMode", NULL};
	static const char *const names[] = {
	    "service.istio.io/canonical-name", "app.kubernetes.io/name", "app", NULL};
	static const char *const revisions[] = {
	    "service.istio.io/canonical-revision", "app.kubernetes.io/version", "version", NULL};
	const char *mode = label_of(j, modes), *name = label_of(j, names);
	const char *revision = label_of(j, revisions);

	return json_pack("{s:s, s:o, s:s}", modes[0], mode ? mode : "istio", names[0],
	    canonical_name(name ? name : j->owner->name), revisions[0],
	    revision ? revision : "latest");
}

/* istiod reads there in which network an endpoint is; of our own default no injector says it. */
static void put_labels(struct inject_job *j, const json_t *added)
{
	json_t *labels = part(j->metadata, "labels", json_object());
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
	json_t *list = part(j->spec, key, json_array()), *ours = inject_proxy_container(j), *all;
	const char *image = json_string_value(json_object_get(j->own_proxy, "image"));

	if (j->own_proxy) {
		json_t *overrides = json_pack("{s:[O]}", key, j->own_proxy);
		json_t *over = json_copy(j->own_proxy);
		char *text = json_dumps(overrides, JSON_COMPACT);

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

	list = part(j->spec, "volumes", json_array());
	json_array_extend(list, j->user_volumes);
	json_array_append_new(
	    list, json_pack("{s:s, s:{s:s, s:b, s:O}}", "name", INJECT_VOLUME, "csi", "driver",
		      INJECT_DRIVER, "readOnly", 1, "volumeAttributes", attributes));
	json_array_foreach (secrets, i, v) {
		list = part(j->spec, "imagePullSecrets", json_array());
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

static void write_pod(
    struct inject_job *j, const json_t *before, const json_t *labels, json_t *attributes)
{
	json_t *annotations = part(j->metadata, "annotations", json_object());
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
	text = json_dumps(status, JSON_COMPACT);
	json_object_set_new(annotations, INJECT_STATUS, json_string(text));
	free(text);
	json_decref(status);
	json_decref(probes);
}

static int inject(struct inject_job *j, const json_t *before, json_t *warnings, struct err *e)
{
	json_t *labels, *attributes;
	int rc;

	if (read_wishes(j, e))
		return -1;
	labels = labels_added(j);
	attributes = inject_attributes(j, labels);
	inject_warn_annotations(j->annotations, warnings);
	rc = inject_check_node(j, attributes, warnings, e);
	if (!rc)
		write_pod(j, before, labels, attributes);
	json_decref(labels);
	json_decref(attributes);
	return rc;
}

static void clear(struct inject_job *j)
{
	json_decref(j->proxy_config);
	json_decref(j->own_proxy);
	json_decref(j->user_volumes);
	json_decref(j->user_mounts);
	json_decref(j->annotations);
	json_decref(j->labels);
	free(j->image);
	free(j->status_port);
	free(j->mesh_status_port);
}

static json_t *copy_of_map(const json_t *metadata, const char *key)
{
	json_t *map = json_object_get(metadata, key);

	return json_is_object(map) ? json_copy(map) : json_object();
}

json_t *inject_pod(const struct inject_config *c, const struct inject_owner *o, const json_t *pod,
    json_t *warnings, struct err *e)
{
	struct inject_job j = {.config = c, .owner = o};
	json_t *before;
	int rc;

	if (check_shape(pod, e) || !(before = inject_take_back(pod, e)))
		return NULL;
	if (check_shape(before, e)) { /* its status was not ours */
		json_decref(before);
		return NULL;
	}
	j.pod = json_deep_copy(before);
	j.metadata = part(j.pod, "metadata", json_object());
	j.spec = json_object_get(j.pod, "spec");
	j.annotations = copy_of_map(j.metadata, "annotations");
	j.labels = copy_of_map(j.metadata, "labels");
	rc = inject(&j, before, warnings, e);
	clear(&j);
	json_decref(before);
	if (rc)
		json_decref(take(j.pod));
	return j.pod;
}
