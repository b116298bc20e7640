/* bootstrap.c - Envoy's configuration, written into the pod's directory.
 *
 * directory -> written, unless the pod is held until its rules are in force; redirected -> written;
 * a connection shows the pod's addresses -> the node is rendered anew, and written again; somebody
 * removed it -> written again.
 */
#include "worker/envoy/bootstrap.h"
#include "base/metrics.h"
#include "common/err.h"
#include "common/log.h"
#include "file.h"
#include "redirect.h"
#include "rows.h"
#include "worker/istiod/istiod.h"
#include "worker/pods/pod.h"
#include <stdio.h>
#include <string.h>

LOG_SCOPE("pod");

struct pod_bootstrap {
	struct pod_context *context;
	bool has_directory;
	struct pod_file file;
};

static char *render(void *s, size_t *size)
{
	return bootstrap_render(((const struct pod_bootstrap *)s)->context->node, size);
}

/* Who starts the pod waits for its bootstrap: a strict one shall not run before its rules. */
static void write_unless_held(struct pod_bootstrap *b)
{
	if (b->has_directory && !pod_redirect_holds(b->context->redirect))
		pod_file_write(&b->file);
}

static void on_directory(void *s)
{
	struct pod_bootstrap *b = s;

	b->has_directory = true;
	write_unless_held(b);
}

static void on_redirected(void *s)
{
	write_unless_held(s);
}

/* Who starts again need not begin with the placeholder. */
static void on_addresses(void *s, const char *const *ips, size_t n)
{
	struct pod_bootstrap *b = s;

	if (node_set_addresses(b->context->node, ips, n))
		write_unless_held(b);
}

static void on_lost(void *s, unsigned files)
{
	if (files & 1U << LINK_FILE_BOOTSTRAP)
		pod_file_lost(&((struct pod_bootstrap *)s)->file);
}

static enum pod_progress progress(void *s, const struct err **why)
{
	return pod_file_progress(&((const struct pod_bootstrap *)s)->file, why);
}

static const json_t *leftovers(const struct pod_bootstrap *b, const char *which)
{
	return json_object_get(node_leftovers(b->context->node), which);
}

/* Those of `which` that begin so; false: there are none. */
static bool list_leftovers(
    const struct pod_bootstrap *b, const char *which, const char *begin, char text[ERR_MSG_SIZE])
{
	const json_t *key;
	size_t i, at = 0;

	json_array_foreach (leftovers(b, which), i, key)
		if (at < ERR_MSG_SIZE && !strncmp(json_string_value(key), begin, strlen(begin)))
			at += (size_t)snprintf(text + at, ERR_MSG_SIZE - at, "%s%s", at ? ", " : "",
			    json_string_value(key));
	return at;
}

/* Once for each pod: it is served all the same, and nobody looks. */
static void say_leftovers(const struct pod_bootstrap *b)
{
	const char *subject = b->context->pod->spec.label;
	char text[ERR_MSG_SIZE];

	if (list_leftovers(b, "unsupported", "", text))
		log_warn(subject, "unsupported keys of its environment: %s", text);
	if (list_leftovers(b, "ignored", "annotation ", text))
		log_warn(subject, "ignored of its annotations: %s", text);
}

static int start(void *s, struct err *e)
{
	struct pod_bootstrap *b = s;

	(void)e;
	say_leftovers(b);
	b->file = (struct pod_file){.context = b->context,
	    .file = LINK_FILE_BOOTSTRAP,
	    .name = "its bootstrap",
	    .content = render,
	    .ctx = b};
	return 0;
}

static void stop(void *s)
{
	pod_file_stop(&((struct pod_bootstrap *)s)->file);
}

static const char *text_of(const json_t *o, const char *field)
{
	const char *text = json_string_value(json_object_get(o, field));

	return text ? text : "";
}

static long long number_of(const json_t *o, const char *field)
{
	return json_integer_value(json_object_get(o, field));
}

/* "9090/metrics" */
static json_t *dump_scrapes(const json_t *scrapes)
{
	json_t *all = json_array(), *v;
	size_t i;

	json_array_foreach (scrapes, i, v)
		json_array_append_new(
		    all, json_sprintf("%lld%s", number_of(v, "port"), text_of(v, "path")));
	return all;
}

/* "/app-health/web/livez: http 8080/alive" */
static json_t *dump_probers(const json_t *probers)
{
	json_t *all = json_array(), *v;
	size_t i;

	json_array_foreach (probers, i, v)
		json_array_append_new(
		    all, json_sprintf("%s: %s %lld%s", text_of(v, "route"), text_of(v, "kind"),
			     number_of(v, "port"), text_of(v, "path")));
	return all;
}

/* "zipkin": "zipkin.istio-system:9411" */
static json_t *dump_collectors(const json_t *collectors)
{
	json_t *all = json_object(), *v;
	const char *name;

	json_object_foreach ((json_t *)collectors, name, v)
		json_object_set_new(
		    all, name, json_sprintf("%s:%lld", text_of(v, "host"), number_of(v, "port")));
	return all;
}

/* status_port{port, scrapes, rewritten_probes}: what Envoy asks of the app for others; sends_to:
 * where Envoy sends what it saw; ignored, unsupported: keys of the environment. */
static void dump(void *s, json_t *o)
{
	const struct pod_context *c = ((const struct pod_bootstrap *)s)->context;
	const struct node_settings *settings = node_settings(c->node);

	json_object_set_new(o, "node_id", json_string(node_id(c->node)));
	json_object_set_new(
	    o, "control_plane", json_string(istiod_options(c->plane->istiod)->name));
	json_object_set_new(o, "status_port",
	    json_pack("{s:i, s:o, s:o}", "port", (int)settings->agent_port, "scrapes",
		dump_scrapes(settings->scrapes), "rewritten_probes",
		dump_probers(settings->probers)));
	json_object_set_new(o, "sends_to", dump_collectors(settings->collectors));
	json_object_update(o, (json_t *)node_leftovers(c->node));
}

static void measure(void *s, const char *labels)
{
	metric_set(metric_gauge("agentd_pod_unsupported_keys",
		       "Keys of the pod's environment that agentd has no answer to."),
	    labels, (double)json_array_size(leftovers(s, "unsupported")));
}

const struct pod_service pod_bootstrap_service = {
    .name = "bootstrap",
    .size = sizeof(struct pod_bootstrap),
    .start = start,
    .stop = stop,
    .progress = progress,
    .directory = on_directory,
    .lost = on_lost,
    .redirected = on_redirected,
    .addresses = on_addresses,
    .dump = dump,
    .measure = measure,
};
