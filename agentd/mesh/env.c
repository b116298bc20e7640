/* env.c - everything a pod's owner declared, read once, in this order:
 *
 * sizes and characters -> labels and annotations -> ProxyConfig -> the control plane that all of it
 * names -> each key by its row of the closed list (env_keys.c), in the order of the alphabet ->
 * what must hold between keys.  The first thing out of bounds refuses the pod.
 */
#include "env.h"
#include "base/json_text.h"
#include "collectors_asked.h"
#include "common/err.h"
#include "common/mem.h"
#include "env_keys.h"
#include "misspelt.h"
#include "override.h"
#include "pod.h"
#include "proxy_config.h"
#include "refusal.h"
#include "runtime_asked.h"
#include "stats_asked.h"
#include <stdio.h>
#include <string.h>

static const char key_characters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-";

enum { JSON_DEPTH_MAX = 32, LARGE_MAX = 512 << 10, MISSPELT_MAX = 16 };

struct limits {
	const char *what;
	size_t entries, key, value, total;
	bool lines; /* line breaks are fine in every value */
};
/* security-rules.md 3.  Of labels and annotations an API server takes any number. */
static const struct limits of_env = {"env", 256, 128, 64 << 10, 256 << 10, false};
static const struct limits of_labels = {"labels", SIZE_MAX, 317, LARGE_MAX, LARGE_MAX, false};
static const struct limits of_annotations = {
    "annotations", SIZE_MAX, 317, LARGE_MAX, LARGE_MAX, true};

/* Their texts in the environment have the limits of what is in them. */
static bool is_large(const struct limits *m, const char *key)
{
	const struct env_key *row = m == &of_env ? env_key_find(key) : NULL;

	return row && row->large;
}

static bool valid_key(const struct limits *m, const char *key)
{
	size_t n = strlen(key);

	return n >= 1 && n <= m->key && strspn(key, key_characters) == n;
}

/* JSON may stand on several lines, also where it is only passed on: Istio's injector writes
 * ISTIO_META_POD_PORTS so. */
static bool may_have_lines(const struct limits *m, const char *key, const char *text)
{
	const struct env_key *row;
	json_t *v;

	if (m != &of_env)
		return m->lines;
	row = env_key_find(key);
	if (row && row->lines)
		return true;
	v = json_loads(text, 0, NULL);
	json_decref(v);
	return v != NULL;
}

/* jansson's own check is the cheapest: it makes no string of invalid UTF-8. */
static bool valid_text(const struct limits *m, const char *key, const json_t *v)
{
	const char *text = json_string_value(v);
	size_t n = json_string_length(v);
	json_t *copy;

	if (n > (is_large(m, key) ? LARGE_MAX : m->value) || strlen(text) != n)
		return false;
	if (text[strcspn(text, "\r\n")] && !may_have_lines(m, key, text))
		return false;
	copy = json_stringn(text, n);
	json_decref(copy);
	return copy != NULL;
}

static int check_limits(const struct limits *m, json_t *map, struct err *e)
{
	size_t total = 0;
	const char *key;
	json_t *v;

	if (json_object_size(map) > m->entries)
		return err_set(e, ERR_INVALID, "%s: more than %zu entries", m->what, m->entries);
	json_object_foreach (map, key, v) {
		char printable[130];

		err_printable(printable, sizeof(printable), key, (unsigned)strlen(key));
		if (!valid_key(m, key))
			return err_set(e, ERR_INVALID,
			    "%s: key \"%s\" refused; allowed: 1 to %zu of A-Z a-z 0-9 _ . / -",
			    m->what, printable, m->key);
		if (!json_is_string(v) || !valid_text(m, key, v))
			return err_set(e, ERR_INVALID,
			    "%s: %s refused; allowed: UTF-8 text of at most %zu bytes%s", m->what,
			    printable, is_large(m, key) ? (size_t)LARGE_MAX : m->value,
			    m->lines ? "" : " without line breaks");
		if (!is_large(m, key))
			total += strlen(key) + json_string_length(v);
	}
	if (total > m->total)
		return err_set(e, ERR_INVALID, "%s: more than %zu bytes in all", m->what, m->total);
	return 0;
}

static unsigned json_depth(const json_t *v)
{
	unsigned deepest = 0, d;
	const char *key;
	json_t *child;
	size_t i;

	json_object_foreach ((json_t *)v, key, child)
		if ((d = json_depth(child)) > deepest)
			deepest = d;
	json_array_foreach (v, i, child)
		if ((d = json_depth(child)) > deepest)
			deepest = d;
	return json_is_object(v) || json_is_array(v) ? deepest + 1 : 0;
}

json_t *env_parse_object(const char *key, const char *value, struct err *e)
{
	json_t *o = json_loads(value, JSON_REJECT_DUPLICATES, NULL);

	if (json_is_object(o) && json_depth(o) <= JSON_DEPTH_MAX)
		return o;
	json_decref(o);
	refusal(key, value, "a JSON object, 32 deep", e);
	return NULL;
}

json_t *env_sorted(const json_t *v)
{
	char *text = json_text(v, JSON_SORT_KEYS | JSON_COMPACT);
	json_t *copy = json_loads(text, 0, NULL);

	free(text);
	if (!copy)
		abort(); /* what was checked can be written; else memory is gone */
	return copy;
}

/* Labels or annotations that came as a JSON object inside the environment; NULL: none. */
static int read_declared(
    const struct pod_spec *p, const char *key, const struct limits *m, json_t **out, struct err *e)
{
	const char *text = json_string_value(json_object_get(p->env, key));

	*out = NULL;
	if (!text || !*text)
		return 0;
	*out = env_parse_object(key, text, e);
	if (!*out || check_limits(m, *out, e)) {
		json_decref(take(*out));
		return err_wrap(e, "%s", key);
	}
	return 0;
}

static json_t *merged(const json_t *under, json_t *over)
{
	json_t *all = under ? json_copy((json_t *)under) : json_object();

	json_object_update(all, over);
	return all;
}

/* istio-agent.md 8.3; what the source knows wins over what the environment claims. */
static int read_labels(struct env *n, const struct pod_spec *p, struct err *e)
{
	json_t *declared = NULL;

	if (check_limits(&of_labels, p->labels, e) ||
	    check_limits(&of_annotations, p->annotations, e) ||
	    read_declared(p, "ISTIO_METAJSON_LABELS", &of_labels, &n->static_labels, e) ||
	    read_declared(p, "ISTIO_METAJSON_ANNOTATIONS", &of_annotations, &declared, e))
		return -1;
	n->labels = merged(n->static_labels, p->labels);
	json_object_del(n->labels, "pod-template-hash");
	n->annotations = merged(declared, p->annotations);
	json_decref(declared);
	return 0;
}

/* The environment and, below it, the ISTIO_META_* of ProxyConfig's proxyMetadata. */
static json_t *effective_env(struct env *n, const struct pod_spec *p, struct err *e)
{
	json_t *from_config = json_object_get(n->proxy_config, "proxyMetadata"), *value;
	json_t *env = json_copy(p->env);
	const char *key;

	json_object_foreach (from_config, key, value) {
		char printable[130];

		err_printable(printable, sizeof(printable), key, (unsigned)strlen(key));
		auto_free char *path = mem_printf("PROXY_CONFIG.proxyMetadata.%s", printable);

		if (strncmp(key, "ISTIO_META_", 11) != 0)
			json_array_append_new(n->ignored, json_string(path));
		else if (!json_object_get(env, key))
			json_object_set(env, key, value);
	}
	if (!check_limits(&of_env, env, e))
		return env;
	json_decref(env);
	return NULL;
}

/* A Service of istiod's namespace may be spelled with and without the cluster's domain. */
static char *short_address(const struct node_context *c, const char *address)
{
	auto_free char *domain = mem_printf(".%s.svc.%s:", c->istio_namespace, c->cluster_domain);
	const char *at = strstr(address, domain);

	if (!at)
		return mem_strdup(address);
	return mem_printf("%.*s.%s.svc:%s", (int)(at - address), address, c->istio_namespace,
	    at + strlen(domain));
}

static int refuse_plane(
    const struct node_context *c, const char *key, const char *address, struct err *e)
{
	char allowed[160] = "";
	size_t n = 0;

	for (size_t i = 0; i < c->nplanes && n < sizeof(allowed); i++)
		n += (size_t)snprintf(
		    allowed + n, sizeof(allowed) - n, "%s%s", i ? ", " : "", c->planes[i].address);
	return refusal(key, address, allowed, e);
}

/* 1: a running pod's control plane that the node does not have any more. */
static int plane_at(
    const struct node_reader *r, const char *key, const char *address, size_t *index, struct err *e)
{
	const struct node_context *c = r->context;
	auto_free char *wanted = short_address(c, address);

	for (size_t i = 0; i < c->nplanes; i++) {
		auto_free char *known = short_address(c, c->planes[i].address);

		if (!strcmp(known, wanted)) {
			*index = i;
			return 0;
		}
	}
	if (env_key_yields(r, key, address, c->planes[0].address))
		return 1;
	return refuse_plane(c, key, address, e);
}

/* Only control planes of the node's configuration; all names a pod uses must mean the same one. */
static int choose_plane(struct node_reader *r, struct err *e)
{
	struct env *n = r->out;
	const char *discovery =
	    json_string_value(json_object_get(n->proxy_config, "discoveryAddress"));
	const char *ca = json_string_value(json_object_get(r->pod->env, "CA_ADDR"));
	const char *key = json_object_get(n->annotations, "sidecar.istio.io/discoveryAddress")
			      ? "annotation sidecar.istio.io/discoveryAddress"
			      : "PROXY_CONFIG.discoveryAddress";
	size_t second = 0;
	int named = 1, by_ca = 1; /* 0: it is one of the node's */

	if (discovery)
		named = plane_at(r, key, discovery, &n->settings.plane, e);
	if (named >= 0 && ca && *ca)
		by_ca = plane_at(r, "CA_ADDR", ca, &second, e);
	if (named < 0 || by_ca < 0)
		return -1;
	if (!named && !by_ca && second != n->settings.plane)
		return err_set(e, ERR_INVALID, "CA_ADDR and %s name different control planes", key);
	if (!by_ca)
		n->settings.plane = second;
	r->plane = &r->context->planes[n->settings.plane];
	json_object_set_new(n->proxy_config, "discoveryAddress", json_string(r->plane->address));
	return 0;
}

/* An empty value counts as absent, but not for keys that are only passed on. */
static int read_key(struct node_reader *r, const char *key, const char *value, struct err *e)
{
	const struct env_key *row = env_key_find(key);
	bool prefix = row && row->key[strlen(row->key) - 1] == '*';

	if (!*value && !prefix)
		return 0;
	if (row)
		return row->read(r, row, key, value, e);
	json_array_append_new(r->out->ignored, json_string(key));
	return 0;
}

static int read_env(struct node_reader *r, json_t *env, struct err *e)
{
	json_t *sorted = env_sorted(env), *v;
	const char *key;
	int rc = 0;

	json_object_foreach (sorted, key, v)
		if (!rc)
			rc = read_key(r, key, json_string_value(v), e);
	json_decref(sorted);
	return rc;
}

/* The first ones: to find what was meant costs. */
static void ignore_misspelt(struct node_reader *r, const char *annotation)
{
	const char *meant =
	    r->misspelt < MISSPELT_MAX ? misspelt_annotation(annotation, env_key_name) : NULL;

	if (!meant)
		return;
	r->misspelt++;
	json_array_append_new(
	    r->out->ignored, json_sprintf("annotation %s (nearest: %s)", annotation, meant));
}

/* Fields of ProxyConfig and annotations that the list does not know are not agentd's business, but
 * for annotations of a closed list. */
static int read_named(struct node_reader *r, const char *prefix, json_t *map, struct err *e)
{
	json_t *sorted = env_sorted(map), *v;
	const char *key;
	int rc = 0;

	json_object_foreach (sorted, key, v) {
		auto_free char *name = mem_printf("%s%s", prefix, key);
		const struct env_key *row = env_key_find(name);
		auto_free char *text = json_is_string(v) ? mem_strdup(json_string_value(v))
							 : json_text(v, JSON_ENCODE_ANY);

		if (!rc && row)
			rc = row->read(r, row, name, text, e);
		if (!rc && map == r->out->annotations)
			ignore_misspelt(r, key);
	}
	json_decref(sorted);
	return rc;
}

/* decisions.md 5: P-256 unless RSA is asked for, in one of Istio's two ways. */
static void choose_key(struct env *n, const json_t *env)
{
	const char *algorithm = json_string_value(json_object_get(env, "ECC_SIGNATURE_ALGORITHM"));
	const char *curve = json_string_value(json_object_get(env, "ECC_CURVE"));
	const char *bits = json_string_value(json_object_get(env, "WORKLOAD_RSA_KEY_SIZE"));
	bool has_bits = bits && *bits, has_curve = curve && *curve;

	if (algorithm ? !*algorithm : has_bits && !has_curve)
		n->settings.key.type = !has_bits || !strcmp(bits, "2048") ? X509_RSA_2048
				       : !strcmp(bits, "3072")            ? X509_RSA_3072
									  : X509_RSA_4096;
	else
		n->settings.key.type =
		    has_curve && !strcmp(curve, "P384") ? X509_EC_P384 : X509_EC_P256;
}

static int check_ports(const struct node_settings *s, struct err *e)
{
	static const char *const names[NODE_PORTS] = {"PROXY_CONFIG.proxyAdminPort",
	    "PROXY_CONFIG.statusPort", "ENVOY_STATUS_PORT", "ENVOY_PROMETHEUS_PORT",
	    "ENVOY_SECURE_METRICS_PORT", "ENVOY_SECURE_MERGED_METRICS_PORT"};
	unsigned ports[NODE_PORTS];

	node_own_ports(s, ports);
	if (!s->admin_port)
		return refusal(names[0], "0", "1024 to 65535", e);
	for (unsigned i = 1; i < NODE_PORTS; i++)
		for (unsigned j = 0; j < i; j++)
			if (ports[i] && ports[i] == ports[j])
				return err_set(e, ERR_INVALID, "%s and %s are both %u", names[j],
				    names[i], ports[i]);
	return 0;
}

/* Nothing of Envoy's own is asked as if it were the app's. */
static int check_targets(
    const char *key, json_t *targets, const struct node_settings *s, struct err *e)
{
	unsigned own[NODE_PORTS];
	json_t *target;
	size_t i;

	node_own_ports(s, own);
	json_array_foreach (targets, i, target)
		for (unsigned k = 0; k < NODE_PORTS; k++)
			if (json_integer_value(json_object_get(target, "port")) == own[k])
				return err_set(e, ERR_INVALID, "%s: port %lld is Envoy's own", key,
				    (long long)own[k]);
	return 0;
}

/* The app would be there first, or never. */
static int check_status_port(const struct env *n, struct err *e)
{
	const char *text = json_string_value(json_object_get(n->metadata, "POD_PORTS"));
	json_t *ports = text ? json_loads(text, 0, NULL) : NULL, *port;
	int rc = 0;
	size_t i;

	json_array_foreach (ports, i, port) {
		const char *protocol = json_string_value(json_object_get(port, "protocol"));

		if (json_integer_value(json_object_get(port, "containerPort")) ==
			n->settings.agent_port &&
		    n->settings.agent_port && (!protocol || !strcmp(protocol, "TCP")))
			rc = err_set(e, ERR_INVALID,
			    "PROXY_CONFIG.statusPort: %u is a container's port, too, in "
			    "ISTIO_META_POD_PORTS",
			    n->settings.agent_port);
	}
	json_decref(ports);
	return rc;
}

static int check_together(const struct env *n, struct err *e)
{
	const struct node_settings *s = &n->settings;

	if (check_ports(s, e) || check_targets("ISTIO_KUBE_APP_PROBERS", s->probers, s, e) ||
	    check_targets("ISTIO_PROMETHEUS_ANNOTATIONS", s->scrapes, s, e))
		return -1;
	return check_status_port(n, e);
}

/* A text that the pod's environment may hold; NULL: it does not. */
static const char *declared(const struct node_reader *r, const char *key)
{
	const char *text = json_string_value(json_object_get(r->pod->env, key));

	return text && *text ? text : NULL;
}

/* The pod's own word, else the node's; NULL: nobody knows. */
static const char *host_ip(const struct node_reader *r)
{
	const char *own = declared(r, "HOST_IP"), *of_node = r->context->host_ip;

	return own ? own : of_node && *of_node ? of_node : NULL;
}

static int read_override(struct node_reader *r, struct err *e)
{
	static const char key[] = "ISTIO_BOOTSTRAP_OVERRIDE";
	struct node_settings *s = &r->out->settings;
	const char *declared_text = declared(r, key);
	unsigned ports[NODE_PORTS];
	json_t *document;

	if (!declared_text)
		return 0;
	auto_free char *text = override_text(declared_text, host_ip(r));
	document = env_parse_object(key, text, e);
	node_own_ports(s, ports);
	if (document)
		s->override = override_read(key, document, ports, NODE_PORTS, e);
	json_decref(document);
	return s->override ? 0 : -1;
}

/* What Envoy is asked for in whole documents, before the single keys. */
static int read_documents(struct node_reader *r, struct err *e)
{
	struct env *n = r->out;
	struct node_settings *s = &n->settings;

	s->stats = stats_asked_read(n->proxy_config, n->annotations, e);
	if (!s->stats)
		return -1;
	s->collectors = collectors_asked_read(n->proxy_config, host_ip(r), e);
	if (!s->collectors)
		return -1;
	s->runtime_values = runtime_asked_values(n->proxy_config, e);
	return s->runtime_values ? 0 : -1;
}

/* One more prober of Envoy's status port. */
static int read_machine_probe(struct node_reader *r, struct err *e)
{
	static const char key[] = "PROXY_CONFIG.readinessProbe";
	const json_t *probe = json_object_get(r->out->proxy_config, "readinessProbe");
	struct node_settings *s = &r->out->settings;
	json_t *probers;

	if (!r->pod->machine || !probe)
		return 0;
	if (!s->agent_port)
		return err_set(e, ERR_INVALID, "%s: it needs PROXY_CONFIG.statusPort", key);
	probers = probe_asked_read(key, probe, &s->probe, e);
	if (!probers)
		return -1;
	if (!s->probers)
		s->probers = json_array();
	json_array_extend(s->probers, probers);
	json_decref(probers);
	return check_targets(key, s->probers, s, e);
}

/* And what depends on these. */
static int read_dependents(struct node_reader *r, struct err *e)
{
	struct env *n = r->out;

	n->settings.connections_max = runtime_asked_connections(n->proxy_config, n->metadata, e);
	if (n->settings.connections_max < 0 || check_together(n, e) || read_machine_probe(r, e))
		return -1;
	return read_override(r, e);
}

static void set_defaults(struct env *n, const struct node_context *c)
{
	int64_t day = 24LL * 3600, ttl = day < c->ttl_max_s ? day : c->ttl_max_s;

	*n = (struct env){
	    .settings = {.scope_pod = c->scope_pod,
		.ttl_s = ttl > c->ttl_min_s ? ttl : c->ttl_min_s,
		.ratio = 0.5,
		.jitter = 0.01,
		.delta_xds = true,
		.admin_port = 15000,
		.agent_port = 15020,
		.status_port = 15021,
		.prometheus_port = 15090,
		.concurrency = -1,
		.drain_ms = 45000,
		.dns_timeout_ms = 5000,
		.termination_drain_ms = 5000,
		.minimum_drain_ms = 5000,
		.merge_envoy_stats = true,
		.stats_compression = true},
	    .metadata = json_object(),
	    .leftovers = json_pack("{s:[], s:[]}", "ignored", "unsupported"),
	};
	n->ignored = json_object_get(n->leftovers, "ignored");
	n->unsupported = json_object_get(n->leftovers, "unsupported");
}

static int read_all(struct node_reader *r, struct err *e)
{
	struct env *n = r->out;
	json_t *env = r->pod->env;
	int rc;

	if (check_limits(&of_env, env, e) || read_labels(n, r->pod, e))
		return -1;
	n->proxy_config = proxy_config_read(
	    json_string_value(json_object_get(env, "PROXY_CONFIG")), n->annotations, e);
	if (!n->proxy_config || choose_plane(r, e) || read_documents(r, e) ||
	    !(env = effective_env(n, r->pod, e)))
		return -1;
	rc = read_named(r, "PROXY_CONFIG.", n->proxy_config, e) ||
		     read_named(r, "annotation ", n->annotations, e) || read_env(r, env, e) ||
		     read_dependents(r, e)
		 ? -1
		 : 0;
	choose_key(n, env);
	json_decref(env);
	return rc;
}

int env_read(struct env *n, const struct pod_spec *p, const struct node_context *c, struct err *e)
{
	struct node_reader r = {.out = n, .pod = p, .context = c};

	set_defaults(n, c);
	r.meta = (struct env_meta){.metadata = n->metadata, .ignored = n->ignored};
	if (!read_all(&r, e))
		return 0;
	env_clear(n);
	return -1;
}

void env_clear(struct env *n)
{
	json_decref(n->metadata);
	json_decref(n->static_labels);
	json_decref(n->labels);
	json_decref(n->annotations);
	json_decref(n->proxy_config);
	json_decref(n->leftovers);
	free(n->settings.probe.headers);
	json_decref(n->settings.probers);
	json_decref(n->settings.scrapes);
	json_decref(n->settings.stats);
	json_decref(n->settings.collectors);
	json_decref(n->settings.runtime_values);
	json_decref(n->settings.load_stats);
	json_decref(n->settings.override);
	*n = (struct env){0};
}
