/* probes.c - what the kubelet and Prometheus ask of the app, and by which way (injection.md 4, 5).
 *
 * The kubelet's ports are let in by agentd.  Where istio's own rules redirect, its probes go to
 * Envoy instead, which asks the app: they are rewritten, and the originals become an attribute.
 * Prometheus asks Envoy in every mode.
 */
#include "base/json_text.h"
#include "common/mem.h"
#include "inject_internal.h"
#include "mesh/targets.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *const inject_probed[INJECT_PROBED] = {
    "readinessProbe", "livenessProbe", "startupProbe", "lifecycle"};
static const char *const actions[] = {"httpGet", "tcpSocket"};

/* Where a container can be asked; hooks have no timeout, and no gRPC. */
static const struct place {
	const char *holder, *key, *path, *name;
} places[] = {
    {NULL, "readinessProbe", "/app-health/", "readyz"},
    {NULL, "livenessProbe", "/app-health/", "livez"},
    {NULL, "startupProbe", "/app-health/", "startupz"},
    {"lifecycle", "preStop", "/app-lifecycle/", "prestopz"},
    {"lifecycle", "postStart", "/app-lifecycle/", "poststartz"},
};
enum { NPLACES = sizeof(places) / sizeof(*places) };

static json_t *handler_at(const json_t *container, const struct place *p)
{
	const json_t *in = p->holder ? json_object_get(container, p->holder) : container;

	return json_object_get(in, p->key);
}

/* By number, or by a port's name; the caller frees it. */
static char *port_of(const json_t *container, const json_t *action)
{
	char *text = inject_scalar(json_object_get(action, "port"));
	const json_t *port = json_object_get(container, "ports");
	json_t *number = json_object_get(inject_named(port, text ? text : ""), "containerPort");

	if (json_is_integer(number)) {
		free(text);
		text = inject_scalar(number);
	}
	return text ? text : mem_strdup("");
}

static bool is_digits(const char *text)
{
	size_t n = strspn(text, "0123456789");

	return n && !text[n] && n < 6;
}

/* --- where the kubelet asks --- */

/* Envoy's own and agentd's are open to it anyway. */
static bool is_open(const char *port)
{
	static const char open[] = " 0 15000 15001 15004 15006 15008 15020 15021 15053 15090 ";
	char wanted[16];

	snprintf(wanted, sizeof(wanted), " %s ", port);
	return strstr(open, wanted);
}

static void add_port(json_t *ports, const char *port)
{
	if (is_digits(port) && !is_open(port))
		json_object_set_new(ports, port, json_true());
}

static void add_ports_of(json_t *ports, const json_t *container, const struct place *p)
{
	const json_t *handler = handler_at(container, p);
	auto_free char *grpc = inject_text(handler, "grpc.port");

	if (grpc && !p->holder)
		add_port(ports, grpc);
	for (unsigned i = 0; i < 2; i++) {
		const json_t *action = json_object_get(handler, actions[i]);
		auto_free char *host = inject_text(action, "host");
		auto_free char *port = port_of(container, action);

		if (json_is_object(action) && !host)
			add_port(ports, port);
	}
}

/* Calls one() of each container but Envoy's. */
static void each_container(const struct inject_job *j,
    void (*one)(const struct inject_job *j, json_t *c, json_t *into), json_t *into)
{
	static const char *const lists[] = {"containers", "initContainers"};
	json_t *c;
	size_t i;

	for (unsigned k = 0; k < 2; k++)
		json_array_foreach (json_object_get(j->spec, lists[k]), i, c)
			if (strcmp(inject_name_of(c), INJECT_PROXY) != 0)
				one(j, c, into);
}

static void add_ports(const struct inject_job *j, json_t *container, json_t *into)
{
	(void)j;
	for (unsigned i = 0; i < NPLACES; i++)
		add_ports_of(into, container, &places[i]);
}

char *inject_probe_ports(const struct inject_job *j)
{
	json_t *ports = json_object();
	char *all;

	each_container(j, add_ports, ports);
	all = inject_joined(ports);
	json_decref(ports);
	return all;
}

/* --- the originals of rewritten probes --- */

/* NULL: it asks nothing that Envoy could ask instead. */
static json_t *prober_of(
    const struct inject_job *j, const json_t *container, const json_t *handler, bool is_probe)
{
	json_t *grpc = json_object_get(handler, "grpc"), *prober = NULL;
	json_int_t limit = json_integer_value(json_object_get(handler, "timeoutSeconds"));
	bool http = false;

	for (unsigned i = 0; i < 2; i++) {
		json_t *action = json_object_get(handler, actions[i]);
		auto_free char *port = port_of(container, action);

		if (!json_is_object(action) || !is_digits(port) ||
		    !strcmp(port, j->mesh_status_port))
			continue;
		json_decref(prober);
		prober = json_pack("{s:o}", actions[i], json_deep_copy(action));
		json_object_set_new(json_object_get(prober, actions[i]), "port",
		    json_integer(strtoll(port, NULL, 10)));
		http = !i;
	}
	if (is_probe && json_is_object(grpc)) {
		json_decref(prober);
		prober = json_pack("{s:O}", "grpc", grpc);
		http = false;
	}
	/* The kubelet's own limit counts beyond 60 s. */
	if (prober && is_probe && limit > 0 && (limit <= 60 || !http))
		json_object_set_new(
		    prober, "timeoutSeconds", json_integer(limit < 60 ? limit : 60));
	return prober;
}

static char *path_of(const json_t *container, const struct place *p)
{
	return mem_printf("%s%s/%s", p->path, inject_name_of(container), p->name);
}

/* One more than a node takes is enough to be refused by it. */
static void add_probers(const struct inject_job *j, json_t *container, json_t *into)
{
	for (unsigned i = 0; i < NPLACES && json_object_size(into) <= TARGETS_PROBERS_MAX; i++) {
		auto_free char *path = path_of(container, &places[i]);
		json_t *prober =
		    prober_of(j, container, handler_at(container, &places[i]), !places[i].holder);

		if (prober)
			json_object_set_new(into, path, prober);
	}
}

char *inject_probers(const struct inject_job *j)
{
	json_t *all = json_object();
	char *text;

	each_container(j, add_probers, all);
	text = json_object_size(all) ? json_text(all, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	json_decref(all);
	return text;
}

/* Istio rewrites what it cannot resolve, too: the answer is 400 then. */
static void rewrite(const struct inject_job *j, json_t *handler, const char *path, bool is_probe)
{
	json_t *http = json_object_get(handler, "httpGet");

	if (!json_is_object(http) && !json_object_get(handler, "tcpSocket") &&
	    !(is_probe && json_object_get(handler, "grpc")))
		return;
	http = json_is_object(http) ? json_deep_copy(http) : json_object();
	json_object_set_new(http, "port", json_integer(strtoll(j->status_port, NULL, 10)));
	json_object_set_new(http, "path", json_string(path));
	if (json_object_get(http, "scheme"))
		json_object_set_new(http, "scheme", json_string("HTTP"));
	json_object_del(handler, "tcpSocket");
	json_object_del(handler, "grpc");
	json_object_set_new(handler, "httpGet", http);
}

static void rewrite_container(const struct inject_job *j, json_t *container, json_t *was)
{
	json_t *before = json_deep_copy(container), *changed = json_object();

	for (unsigned i = 0; i < NPLACES; i++) {
		auto_free char *path = path_of(container, &places[i]);
		json_t *handler = handler_at(container, &places[i]);

		if (json_is_object(handler))
			rewrite(j, handler, path, !places[i].holder);
	}
	for (unsigned i = 0; i < INJECT_PROBED; i++) {
		json_t *now = json_object_get(container, inject_probed[i]);
		json_t *old = json_object_get(before, inject_probed[i]);

		if (now && !json_equal(now, old))
			json_object_set(changed, inject_probed[i], old);
	}
	if (json_object_size(changed))
		json_object_set(was, inject_name_of(container), changed);
	json_decref(changed);
	json_decref(before);
}

/* `was` gets what each changed container had, by its name. */
void inject_rewrite_probes(struct inject_job *j, json_t *was)
{
	each_container(j, rewrite_container, was);
}

static bool restore(json_t *handler, const json_t *prober)
{
	static const char *const all[] = {"httpGet", "tcpSocket", "grpc"};
	bool found = false;

	for (unsigned i = 0; json_is_object(handler) && i < 3; i++) {
		json_t *action = json_object_get(prober, all[i]);

		if (!json_is_object(action))
			continue;
		json_object_del(handler, "httpGet");
		json_object_set(handler, all[i], action);
		found = true;
	}
	return found;
}

unsigned inject_restore_probes(json_t *spec, const json_t *probers)
{
	static const char *const lists[] = {"containers", "initContainers"};
	unsigned n = 0;
	json_t *c;
	size_t k;

	for (unsigned i = 0; i < 2 * NPLACES; i++)
		json_array_foreach (json_object_get(spec, lists[i % 2]), k, c) {
			const struct place *p = &places[i / 2];
			auto_free char *path = path_of(c, p);

			n += restore(handler_at(c, p), json_object_get(probers, path));
		}
	return n;
}

/* --- metrics --- */

/* "prometheus.io/port", "prometheus_io_port", ... are one key; NULL: it is none of them. */
static const char *scrape_key(const char *annotation)
{
	static const char *const known[] = {"scrape", "path", "port"};
	static const char prefix[] = "prometheus_io_";
	char name[32];
	size_t n = strlen(annotation);

	if (n >= sizeof(name))
		return NULL;
	for (size_t i = 0; i <= n; i++)
		name[i] =
		    isalnum((unsigned char)annotation[i]) || !annotation[i] ? annotation[i] : '_';
	if (strncmp(name, prefix, strlen(prefix)) != 0)
		return NULL;
	for (unsigned i = 0; i < 3; i++)
		if (!strcmp(name + strlen(prefix), known[i]))
			return known[i];
	return NULL;
}

static json_t *scrape_of(const json_t *annotations)
{
	json_t *out = json_object(), *v;
	const char *key;

	json_object_foreach ((json_t *)annotations, key, v)
		if (scrape_key(key))
			json_object_set(out, scrape_key(key), v);
	return out;
}

/* "9090:/a, 9091": the path is /metrics where it is not said. */
static json_t *scrape_targets(const char *text)
{
	json_t *list = json_array();

	while (text && *text && json_array_size(list) < INJECT_ITEMS_MAX) {
		size_t all = strcspn(text, ","), n = all;

		while (n && isspace((unsigned char)*text))
			text++, n--, all--;
		while (n && isspace((unsigned char)text[n - 1]))
			n--;
		const char *colon = memchr(text, ':', n);
		size_t port = colon ? (size_t)(colon - text) : n;
		size_t path = colon ? n - port - 1 : 0;

		if (n)
			json_array_append_new(list,
			    json_pack("{s:s%, s:s%}", "port", text, port, "path",
				path ? colon + 1 : "/metrics", path ? path : strlen("/metrics")));
		text += all + (text[all] == ',');
	}
	return list;
}

/* Somebody points Prometheus at the status port himself. */
static bool is_ours(const struct inject_job *j, const json_t *scrape)
{
	const char *port = json_string_value(json_object_get(scrape, "port"));

	return port && !strcmp(port, j->mesh_status_port);
}

static bool is_off(const struct inject_job *j, const json_t *scrape)
{
	const char *wanted = json_string_value(json_object_get(scrape, "scrape"));

	return !j->merge || is_ours(j, scrape) || (wanted && inject_is_false(wanted));
}

char *inject_scrape(const struct inject_job *j)
{
	json_t *scrape = scrape_of(j->annotations);
	json_t *targets = scrape_targets(inject_annotation(j, INJECT_TARGETS));
	char *text = NULL;

	if (json_array_size(targets))
		json_object_set(scrape, "targets", targets);
	if (json_object_size(scrape) && !is_off(j, scrape))
		text = json_text(scrape, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(targets);
	json_decref(scrape);
	return text;
}

void inject_merge_metrics(struct inject_job *j, json_t *annotations)
{
	json_t *scrape = scrape_of(j->annotations), *v;
	const char *key;
	void *next;

	if (!is_off(j, scrape)) {
		json_object_foreach_safe (annotations, next, key, v)
			if (scrape_key(key))
				json_object_del(annotations, key);
		json_object_set_new(
		    annotations, "prometheus.io/port", json_string(j->mesh_status_port));
		json_object_set_new(
		    annotations, "prometheus.io/path", json_string("/stats/prometheus"));
		json_object_set_new(annotations, "prometheus.io/scrape", json_string("true"));
	}
	json_decref(scrape);
}
