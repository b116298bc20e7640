/* workload.c - see workload.h. */
#include "workload.h"
#include "common/err.h"
#include "common/mem.h"
#include "inject_internal.h"
#include <string.h>

enum { LISTS_MAX = 4 };

static const struct kind {
	const char *kind, *group, *path; /* of what has the pod's metadata and spec */
} kinds[] = {
    {"Pod", "v1", ""},
    {"ReplicationController", "v1", "spec.template"},
    {"Deployment", "apps/", "spec.template"},
    {"DaemonSet", "apps/", "spec.template"},
    {"StatefulSet", "apps/", "spec.template"},
    {"ReplicaSet", "apps/", "spec.template"},
    {"Job", "batch/", "spec.template"},
    {"CronJob", "batch/", "spec.jobTemplate.spec.template"},
    {"DeploymentConfig", "apps.openshift.io/", "spec.template"},
    {"List", "v1", NULL},
};

static const struct kind *find_kind(const char *api, const char *kind)
{
	for (unsigned i = 0; api && kind && i < sizeof(kinds) / sizeof(*kinds); i++) {
		size_t n = strlen(kinds[i].group);
		bool group = kinds[i].group[n - 1] == '/' ? !strncmp(kinds[i].group, api, n)
							  : !strcmp(kinds[i].group, api);

		if (group && !strcmp(kinds[i].kind, kind))
			return &kinds[i];
	}
	return NULL;
}

bool inject_has_pods(const char *api_version, const char *kind)
{
	return find_kind(api_version, kind);
}

static const char *text_of(const json_t *o, const char *path)
{
	const char *text = json_string_value(inject_at(o, path));

	return text ? text : "";
}

/* --- the owner: injection.md 3 --- */

struct owned {
	struct inject_owner owner;
	char *name;
};

static const json_t *controller_of(const json_t *pod)
{
	json_t *ref;
	size_t i;

	if (!*text_of(pod, "metadata.generateName"))
		return NULL;
	json_array_foreach (inject_at(pod, "metadata.ownerReferences"), i, ref)
		if (json_is_true(json_object_get(ref, "controller")))
			return ref;
	return NULL;
}

/* `name` without "-hash", if it ends so. */
static bool cut_hash(struct owned *o, const json_t *pod, const char *label)
{
	const char *hash =
	    json_string_value(json_object_get(inject_at(pod, "metadata.labels"), label));
	size_t n = strlen(o->name), len = hash ? strlen(hash) : 0;

	if (!len || n <= len + 1 || strcmp(o->name + n - len, hash) != 0)
		return false;
	if (o->name[n - len - 1] == '-')
		o->name[n - len - 1] = '\0';
	return true;
}

/* "name-28412345": of a CronJob. */
static bool cut_time(struct owned *o)
{
	size_t n = strlen(o->name), digits = 0;

	while (digits < n && strchr("0123456789", o->name[n - digits - 1]))
		digits++;
	if (digits < 8 || digits > 10 || digits + 1 >= n || o->name[n - digits - 1] != '-')
		return false;
	o->name[n - digits - 1] = '\0';
	return true;
}

static void climb(struct owned *o, const json_t *pod)
{
	const char *kind = o->owner.kind, *config;

	if (!strcmp(kind, "ReplicaSet") && cut_hash(o, pod, "rollouts-pod-template-hash")) {
		o->owner.kind = "Rollout";
		o->owner.api_version = "v1alpha1";
	} else if (!strcmp(kind, "ReplicaSet") && cut_hash(o, pod, "pod-template-hash")) {
		o->owner.kind = "Deployment";
	} else if (!strcmp(kind, "ReplicationController")) {
		config = json_string_value(
		    json_object_get(inject_at(pod, "metadata.labels"), "deploymentconfig"));
		if (!config || !*config)
			return;
		o->owner.kind = "DeploymentConfig";
		free(o->name);
		o->name = mem_strdup(config);
	} else if (!strcmp(kind, "Job") && cut_time(o)) {
		o->owner.kind = "CronJob";
		o->owner.api_version = "batch/v1";
	}
}

static void read_owner(struct owned *o, const json_t *object, bool is_pod)
{
	const json_t *ref = is_pod ? controller_of(object) : NULL;

	o->owner.api_version = ref ? text_of(ref, "apiVersion") : text_of(object, "apiVersion");
	o->owner.kind = ref ? text_of(ref, "kind") : text_of(object, "kind");
	o->owner.ns = text_of(object, "metadata.namespace");
	o->name = mem_strdup(ref ? text_of(ref, "name") : text_of(object, "metadata.name"));
	if (ref)
		climb(o, object);
	o->owner.name = o->name;
}

json_t *inject_owned_pod(const struct inject_config *c, const json_t *pod, const char *ns,
    json_t *warnings, struct err *e)
{
	struct owned o;
	json_t *out;

	read_owner(&o, pod, true);
	o.owner.ns = ns;
	out = inject_pod(c, &o.owner, pod, warnings, e);
	free(o.name);
	return out;
}

/* --- one pod template --- */

static json_t *note(const struct inject_work *w, const json_t *object)
{
	const char *name = text_of(object, "metadata.name");
	const char *ns = text_of(object, "metadata.namespace");
	json_t *n;

	if (!*name)
		name = text_of(object, "metadata.generateName");
	n = json_pack("{s:o, s:b, s:[]}", "object",
	    json_sprintf("%s \"%s%s%s\"", text_of(object, "kind"), ns, *ns ? "/" : "", name),
	    "injected", 0, "warnings");
	json_array_append_new(w->said, n);
	return n;
}

static json_t *do_pod(const struct inject_work *w, const struct owned *o, const json_t *pod,
    json_t *said, struct err *e)
{
	struct inject_rule rule = inject_rule_of(pod, o->owner.ns);

	if (w->action == INJECT_TAKE_BACK) {
		json_object_set_new(said, "injected", json_boolean(inject_is_injected(pod)));
		return inject_take_back(pod, e);
	}
	json_object_set_new(said, "rule", json_string(rule.why));
	json_object_set_new(said, "injected", json_boolean(rule.yes));
	if (rule.yes)
		return inject_pod(w->config, &o->owner, pod, json_object_get(said, "warnings"), e);
	json_object_set_new(said, "skipped", json_string(rule.skip));
	return json_deep_copy(pod);
}

/* metadata and spec come and go with the injection. */
static void put_pod(json_t *holder, const json_t *pod)
{
	static const char *const keys[] = {"metadata", "spec"};

	for (unsigned i = 0; i < 2; i++) {
		json_t *v = json_object_get(pod, keys[i]);

		if (v)
			json_object_set(holder, keys[i], v);
		else
			json_object_del(holder, keys[i]);
	}
}

static int do_template(
    const struct inject_work *w, json_t *object, const struct kind *k, struct err *e)
{
	json_t *holder = inject_at(object, k->path), *said = note(w, object), *pod;
	struct owned o;

	if (!json_is_object(holder))
		return err_set(e, ERR_INVALID, "%s: %s: must be a map",
		    json_string_value(json_object_get(said, "object")), k->path);
	read_owner(&o, object, !*k->path);
	json_object_set_new(said, "owner",
	    json_pack("{s:s, s:s, s:s}", "kind", o.owner.kind, "namespace", o.owner.ns, "name",
		o.owner.name));
	pod = do_pod(w, &o, holder, said, e);
	free(o.name);
	if (!pod)
		json_object_set_new(said, "refused", json_string(e->msg));
	if (!pod && w->action == INJECT_CHECK)
		return 0;
	if (!pod)
		return err_wrap(e, "%s", json_string_value(json_object_get(said, "object")));
	if (w->action != INJECT_CHECK)
		put_pod(holder, pod);
	json_decref(pod);
	return 0;
}

static int do_object(const struct inject_work *w, json_t *object, unsigned depth, struct err *e)
{
	const struct kind *k = find_kind(text_of(object, "apiVersion"), text_of(object, "kind"));
	json_t *item;
	size_t i;

	if (!k)
		return 0;
	if (k->path)
		return do_template(w, object, k, e);
	if (depth == LISTS_MAX)
		return err_set(e, ERR_INVALID, "Lists in Lists in Lists");
	json_array_foreach (json_object_get(object, "items"), i, item)
		if (do_object(w, item, depth + 1, e))
			return -1;
	return 0;
}

json_t *inject_object(const struct inject_work *w, const json_t *object, struct err *e)
{
	json_t *out = json_deep_copy(object);

	if (do_object(w, out, 0, e))
		json_decref(take(out));
	return out;
}
