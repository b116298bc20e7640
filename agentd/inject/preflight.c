/* preflight.c - a pod comes -> as it was before -> injected -> what was refused, what is said of
 * it, what is different -> into its owner's row -> at the end plugins find the rows that they are
 * for.
 */
#include "preflight.h"
#include "before.h"
#include "common/err.h"
#include "common/mem.h"
#include "inject_internal.h"
#include "workload.h"
#include <string.h>

static const char *const verdicts[] = {"cannot", "changes", "moves", "moved", "outside"};
enum verdict { CANNOT, CHANGES, MOVES, MOVED, OUTSIDE, NVERDICTS };
enum { TEXT_SIZE = 256, ROW_SIZE = (2 * PREFLIGHT_TEXTS_MAX + 2) * TEXT_SIZE };

struct preflight {
	struct inject_config *config;
	json_t *rows; /* by "KIND NAMESPACE/NAME" */
	json_t *plugins;
	size_t kept; /* bytes, at most */
};

/* Where nobody has said it, the image is of no interest. */
static void put_image(json_t *values)
{
	static const char *const keys[] = {"hub", "tag"};
	json_t *global = inject_at(values, "global");

	for (unsigned i = 0; i < 2; i++)
		if (!inject_at(global, keys[i]))
			json_object_set_new(global, keys[i], json_string("any"));
}

struct preflight *preflight_new(struct inject_config *c)
{
	struct preflight *p = mem_zalloc(sizeof(*p));

	p->config = c;
	p->rows = json_object();
	p->plugins = json_array();
	put_image(c->values);
	return p;
}

void preflight_free(struct preflight **preflight)
{
	struct preflight *p = take(*preflight);

	if (!p)
		return;
	inject_config_free(&p->config);
	json_decref(p->rows);
	json_decref(p->plugins);
	free(p);
}

/* --- texts --- */

static const char *text_of(const json_t *o, const char *path)
{
	const char *text = json_string_value(inject_at(o, path));

	return text ? text : "";
}

static json_t *printable(const char *text)
{
	char shown[TEXT_SIZE];

	return json_string(err_printable(shown, sizeof(shown), text, (unsigned)strlen(text)));
}

/* Once, and not without end. */
static void say(json_t *list, const char *text)
{
	json_t *said = printable(text), *v;
	size_t i;

	json_array_foreach (list, i, v)
		if (json_equal(v, said)) {
			json_decref(said);
			return;
		}
	if (json_array_size(list) < PREFLIGHT_TEXTS_MAX)
		json_array_append(list, said);
	json_decref(said);
}

/* --- rows --- */

static int charge(struct preflight *p, size_t bytes, struct err *e)
{
	if (bytes > PREFLIGHT_KEPT_MAX - p->kept)
		return err_set(e, ERR_INVALID,
		    "more workloads than can be kept: ask for one namespace after the other");
	p->kept += bytes;
	return 0;
}

static json_t *new_row(const json_t *owner, json_t *labels)
{
	return json_pack("{s:o, s:o, s:o, s:i, s:i, s:[], s:[], s:O}", "kind",
	    printable(text_of(owner, "kind")), "namespace", printable(text_of(owner, "namespace")),
	    "name", printable(text_of(owner, "name")), "pods", 0, "verdict", OUTSIDE, "refused",
	    "changes", "labels", labels);
}

/* Its owner's; NULL: there are too many. */
static json_t *row_of(struct preflight *p, const json_t *owner, const json_t *pod, struct err *e)
{
	auto_free char *key = mem_printf("%s %s/%s", text_of(owner, "kind"),
	    text_of(owner, "namespace"), text_of(owner, "name"));
	json_t *row = json_object_get(p->rows, key), *labels;

	if (row)
		return row;
	labels = inject_at(pod, "metadata.labels");
	labels = labels ? json_deep_copy(labels) : json_object();
	if (!charge(p, ROW_SIZE + strlen(key) + json_dumpb(labels, NULL, 0, 0), e)) {
		row = new_row(owner, labels);
		json_object_set_new(p->rows, key, row);
	}
	json_decref(labels);
	return row;
}

static void put_verdict(json_t *row, enum verdict v)
{
	json_t *now = json_object_get(row, "verdict");

	if ((json_int_t)v < json_integer_value(now))
		json_integer_set(now, v);
}

/* --- what is different of a pod --- */

static bool is_native(const json_t *pod)
{
	return inject_named(inject_at(pod, "spec.initContainers"), INJECT_PROXY);
}

static void compare_end(const json_t *owner, const json_t *now, const json_t *then, json_t *changes)
{
	const char *kind = text_of(owner, "kind");

	if (strcmp(kind, "Job") != 0 && strcmp(kind, "CronJob") != 0)
		return;
	if (!is_native(then))
		say(changes, "a Job does not end while Envoy runs: it must POST /quitquitquit to "
			     "the status port");
	else if (!is_native(now))
		say(changes, "Envoy becomes a native sidecar, and ends with the Job");
}

static void compare(const struct inject_before *b, const json_t *said, const json_t *now,
    const json_t *then, json_t *changes)
{
	const json_t *annotations = inject_at(now, "metadata.annotations");
	json_t *warning;
	size_t i;

	json_array_foreach (json_object_get(said, "warnings"), i, warning)
		say(changes, json_string_value(warning));
	/* Where Envoy would ask for the kubelet again, nothing is different. */
	if (b->probes && json_object_get(inject_at(then, "metadata.annotations"), INJECT_REWRITE))
		say(changes, "probes: the kubelet asks the app itself, not its Envoy");
	if (json_object_get(annotations, "sidecar.istio.io/userVolumeMount"))
		say(changes, "sidecar.istio.io/userVolumeMount: Envoy itself reads certificates "
			     "that are named by a file, and does not see one that is written in "
			     "place");
	compare_end(json_object_get(said, "owner"), now, then, changes);
}

/* --- a pod --- */

static bool is_ours(const json_t *pod)
{
	json_t *v;
	size_t i;

	json_array_foreach (inject_at(pod, "spec.volumes"), i, v)
		if (!strcmp(text_of(v, "csi.driver"), INJECT_DRIVER))
			return true;
	return false;
}

/* As whoever moves it would ask for it; the API's own lists have no kinds. */
static void prepare(json_t *pod)
{
	static const char asked[] = "inject.istio.io/templates";
	json_t *annotations = inject_at(pod, "metadata.annotations");
	const char *wanted = json_string_value(json_object_get(annotations, asked));

	if (wanted && !strcmp(wanted, "sidecar"))
		json_object_del(annotations, asked);
	json_object_set_new(pod, "apiVersion", json_string("v1"));
	json_object_set_new(pod, "kind", json_string("Pod"));
}

/* One that is ours is refused for its volume alone: it may have the sidecar by hand. */
static enum verdict judge(
    const struct inject_before *b, const json_t *pod, const json_t *then, struct err *e)
{
	if (is_ours(pod))
		return inject_check_volumes(json_object_get(pod, "spec"), e) ? CANNOT : MOVED;
	if (!inject_is_injected(pod) || !b->proxy)
		return OUTSIDE;
	return then ? MOVES : CANNOT;
}

/* The rule that passes over it is a reason, too: its sidecar is by hand. */
static void put_pod(json_t *row, const struct inject_before *b, const json_t *pod,
    const json_t *said, const json_t *then)
{
	json_t *changes = json_object_get(row, "changes");
	const char *skipped = text_of(said, "skipped"), *refused = text_of(said, "refused");
	struct err why;
	enum verdict v = judge(b, pod, then, &why);

	json_integer_set(
	    json_object_get(row, "pods"), json_integer_value(json_object_get(row, "pods")) + 1);
	if (*skipped && v == MOVES)
		v = CANNOT;
	if (v == CANNOT)
		say(json_object_get(row, "refused"), is_ours(pod) ? why.msg
						     : *skipped   ? skipped
								  : refused);
	if (v == MOVES)
		compare(b, said, pod, then, changes);
	put_verdict(row, v == MOVES && json_array_size(changes) ? CHANGES : v);
}

static json_t *attributes_of(const json_t *pod)
{
	return inject_at(
	    inject_named(inject_at(pod, "spec.volumes"), INJECT_VOLUME), "csi.volumeAttributes");
}

/* What is to be seen of the pod that runs alone: volumes that the injector added, variables. */
static int check_running(const struct inject_config *c, const struct inject_before *b,
    const json_t *pod, const json_t *then, json_t *said)
{
	json_t *warnings = json_object_get(said, "warnings");
	struct err e;

	if (!inject_check_volumes(json_object_get(pod, "spec"), &e) &&
	    (!then || !inject_check_variables(c, b->proxy, attributes_of(then), warnings, &e)))
		return 0;
	if (!json_object_get(said, "refused"))
		json_object_set_new(said, "refused", json_string(e.msg));
	return -1;
}

static int take_pod(struct preflight *p, const json_t *pod, struct err *e)
{
	struct inject_config config = *p->config;
	struct inject_work w = {&config, INJECT_ADD, json_array()};
	struct inject_before b;
	struct err why;
	json_t *then, *said, *row;

	inject_before(&b, pod);
	prepare(b.pod);
	inject_before_tells(&b, &config);
	then = inject_object(&w, b.pod, &why);
	said = json_array_get(w.said, 0);
	if (check_running(&config, &b, pod, then, said))
		json_decref(take(then));
	row = row_of(p, json_object_get(said, "owner"), pod, e);
	if (row)
		put_pod(row, &b, pod, said, then);
	json_decref(config.mesh);
	json_decref(config.values);
	json_decref(then);
	json_decref(w.said);
	inject_before_clear(&b);
	return row ? 0 : -1;
}

/* --- plugins --- */

/* Envoy reads a file itself. */
static int take_plugin(struct preflight *p, json_t *plugin, struct err *e)
{
	static const char file[] = "file://";

	if (!strncmp(text_of(plugin, "spec.url"), file, strlen(file)))
		return 0;
	if (charge(p, json_dumpb(plugin, NULL, 0, 0), e))
		return -1;
	return json_array_append(p->plugins, plugin);
}

static bool is_for(const struct preflight *p, const json_t *plugin, const json_t *row)
{
	auto_free char *root = inject_text(p->config->values, "global.istioNamespace");
	const char *ns = text_of(plugin, "metadata.namespace"), *key;
	json_t *v;

	if (strcmp(ns, text_of(row, "namespace")) != 0 &&
	    strcmp(ns, root ? root : "istio-system") != 0)
		return false;
	if (inject_at(plugin, "spec.targetRef") || inject_at(plugin, "spec.targetRefs"))
		return false; /* of gateways and waypoints */
	json_object_foreach (inject_at(plugin, "spec.selector.matchLabels"), key, v)
		if (!json_equal(v, json_object_get(json_object_get(row, "labels"), key)))
			return false;
	return true;
}

static void put_plugins(const struct preflight *p, json_t *row)
{
	json_t *plugin;
	size_t i;

	if (json_integer_value(json_object_get(row, "verdict")) > MOVES)
		return;
	json_array_foreach (p->plugins, i, plugin) {
		auto_free char *text = mem_printf(
		    "WasmPlugin %s/%s: nobody fetches its module; give it as a file of the image",
		    text_of(plugin, "metadata.namespace"), text_of(plugin, "metadata.name"));

		if (!is_for(p, plugin, row))
			continue;
		say(json_object_get(row, "changes"), text);
		put_verdict(row, CHANGES);
	}
}

int preflight_take(json_t *object, struct err *e, void *ctx)
{
	const char *kind = text_of(object, "kind"), *api = text_of(object, "apiVersion");

	if (!strcmp(kind, "Pod") || (!*kind && inject_at(object, "spec.containers")))
		return take_pod(ctx, object, e);
	if (!strcmp(kind, "WasmPlugin") && !strncmp(api, "extensions.istio.io/", 20))
		return take_plugin(ctx, object, e);
	return 0;
}

/* --- the answer --- */

static json_t *finished(const struct preflight *p, const json_t *row)
{
	json_t *out = json_deep_copy(row);

	put_plugins(p, out);
	json_object_del(out, "labels");
	return out;
}

json_t *preflight_answer(const struct preflight *p)
{
	json_t *sorted[NVERDICTS], *all = json_array(), *counts = json_object(), *row;
	const char *key;

	for (unsigned i = 0; i < NVERDICTS; i++)
		sorted[i] = json_array();
	json_object_foreach (p->rows, key, row) {
		json_t *out = finished(p, row);
		json_int_t v = json_integer_value(json_object_get(out, "verdict"));

		json_object_set_new(out, "verdict", json_string(verdicts[v]));
		json_array_append_new(sorted[v], out);
	}
	for (unsigned i = 0; i < NVERDICTS; i++) {
		json_object_set_new(
		    counts, verdicts[i], json_integer((json_int_t)json_array_size(sorted[i])));
		json_array_extend(all, sorted[i]);
		json_decref(sorted[i]);
	}
	return json_pack("{s:o, s:o}", "workloads", all, "verdicts", counts);
}
