/* attributes.c - the attributes of agentd's volume: what pilot-agent would find in its environment
 * and its downward API (docs/ENVIRONMENT.md).  All are text.
 */
#include "base/json_text.h"
#include "common/mem.h"
#include "inject_internal.h"
#include <ctype.h>
#include <string.h>

static void put(json_t *out, const char *key, const char *text)
{
	if (text && *text)
		json_object_set_new(out, key, json_string(text));
}

static void put_take(json_t *out, const char *key, char *text)
{
	put(out, key, text);
	free(text);
}

static char *first_of(char *a, char *b)
{
	if (a)
		free(b);
	return a ? a : b;
}

/* --- the mesh --- */

char *inject_istiod(const struct inject_config *c)
{
	auto_free char *revision = inject_text(c->values, "revision");
	auto_free char *ns = inject_text(c->values, "global.istioNamespace");

	return mem_printf("istiod%s%s.%s.svc:15012", revision ? "-" : "", revision ? revision : "",
	    ns ? ns : "istio-system");
}

json_t *inject_mesh_attributes(const struct inject_config *c)
{
	const json_t *values = c->values;
	auto_free char *domain = first_of(inject_text(c->mesh, "trustDomain"),
	    first_of(inject_text(values, "global.trustDomain"), mem_strdup("cluster.local")));
	json_t *out = json_object();

	put_take(
	    out, "CA_ADDR", first_of(inject_text(values, "global.caAddress"), inject_istiod(c)));
	put(out, "TRUST_DOMAIN", domain);
	put_take(out, "ISTIO_META_MESH_ID",
	    first_of(inject_text(values, "global.meshID"), mem_strdup(domain)));
	put_take(out, "ISTIO_META_CLUSTER_ID",
	    first_of(
		inject_text(values, "global.multiCluster.clusterName"), mem_strdup("Kubernetes")));
	return out;
}

static void put_network(const struct inject_job *j, json_t *out)
{
	const char *network =
	    json_string_value(json_object_get(j->labels, "topology.istio.io/network"));

	put_take(out, "ISTIO_META_NETWORK",
	    first_of(network && *network ? mem_strdup(network) : NULL,
		first_of(inject_text(j->config->values, "global.network"),
		    mem_strdup(j->config->network))));
}

/* --- the workload --- */

static void put_containers(const struct inject_job *j, json_t *out)
{
	json_t *ports = json_array(), *c, *list = inject_at(j->spec, "containers");
	json_t *apps = json_object();
	auto_free char *names = NULL;
	size_t i;

	json_array_foreach (list, i, c) {
		json_array_extend(ports, json_object_get(c, "ports"));
		if (strcmp(inject_name_of(c), INJECT_PROXY) != 0)
			json_object_set_new(apps, inject_name_of(c), json_true());
	}
	put_take(out, "ISTIO_META_POD_PORTS", json_text(ports, JSON_COMPACT));
	names = inject_joined(apps);
	json_object_set_new(out, "ISTIO_META_APP_CONTAINERS", json_string(names));
	json_decref(apps);
	json_decref(ports);
}

static void put_owner(const struct inject_job *j, json_t *out)
{
	const struct inject_owner *o = j->owner;
	const char *name =
	    json_string_value(json_object_get(j->labels, "service.istio.io/workload-name"));
	auto_free char *kind = mem_strdup(o->kind);

	for (char *at = kind; *at; at++)
		*at = (char)tolower((unsigned char)*at);
	put(out, "ISTIO_META_WORKLOAD_NAME", name && *name ? name : o->name);
	if (*o->api_version && *o->name)
		put_take(out, "ISTIO_META_OWNER",
		    mem_printf("kubernetes://apis/%s/namespaces/%s/%ss/%s", o->api_version,
			*o->ns ? o->ns : "default", kind, o->name));
}

/* The first ":x.y.z" of the image. */
static void put_version(const struct inject_job *j, json_t *out)
{
	for (const char *at = strchr(j->image, ':'); at; at = strchr(at + 1, ':')) {
		size_t n = 1;
		unsigned parts = 0;

		for (; parts < 3; parts++) {
			size_t digits = strspn(at + n, "0123456789");

			if (!digits)
				break;
			n += digits;
			if (parts < 2 && at[n] != '.')
				break;
			n += parts < 2;
		}
		if (parts == 3) {
			put_take(out, "ISTIO_META_ISTIO_VERSION",
			    mem_printf("%.*s", (int)n - 1, at + 1));
			return;
		}
	}
}

/* Those of Istio and of agentd, without what an injector writes. */
static bool is_told(const char *annotation)
{
	static const char *const written[] = {INJECT_STATUS, INJECT_OVERRIDES, "istio.io/rev",
	    "prometheus.istio.io/merge-metrics", INJECT_REWRITE};

	for (unsigned i = 0; i < sizeof(written) / sizeof(*written); i++)
		if (!strcmp(written[i], annotation))
			return false;
	return strstr(annotation, "istio.io/") ||
	       !strncmp(annotation, INJECT_DRIVER "/", strlen(INJECT_DRIVER "/"));
}

static void put_metadata(const struct inject_job *j, json_t *out, const json_t *labels_added)
{
	json_t *labels = json_copy(j->labels), *told = json_object(), *v;
	const char *key;

	json_object_update(labels, (json_t *)labels_added);
	json_object_foreach (j->annotations, key, v)
		if (is_told(key))
			json_object_set(told, key, v);
	put_take(out, "ISTIO_METAJSON_LABELS", json_text(labels, JSON_COMPACT | JSON_SORT_KEYS));
	put_take(out, "ISTIO_METAJSON_ANNOTATIONS", json_text(told, JSON_COMPACT | JSON_SORT_KEYS));
	json_decref(labels);
	json_decref(told);
}

/* --- traffic --- */

/* The mesh's defaults; a pod's annotation wins. */
static void put_redirect(const struct inject_job *j, json_t *out)
{
	static const char *const keys[][2] = {{"ISTIO_SERVICE_CIDR", "includeIPRanges"},
	    {"ISTIO_SERVICE_EXCLUDE_CIDR", "excludeIPRanges"},
	    {"ISTIO_INBOUND_PORTS", "includeInboundPorts"},
	    {"ISTIO_LOCAL_EXCLUDE_PORTS", "excludeInboundPorts"},
	    {"ISTIO_OUTBOUND_PORTS", "includeOutboundPorts"},
	    {"ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE", "excludeOutboundPorts"}};
	const json_t *proxy = inject_at(j->config->values, "global.proxy");

	put_take(out, "ISTIO_INBOUND_INTERCEPTION_MODE",
	    inject_proxy_field(j, "interceptionMode", "REDIRECT"));
	for (unsigned i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		put_take(out, keys[i][0], inject_text(proxy, keys[i][1]));
}

/* What of the app is asked: by the kubelet, by Prometheus through Envoy. */
static void put_asked(const struct inject_job *j, json_t *out)
{
	put_take(out, "AGENTD_PROBE_PORTS", inject_probe_ports(j));
	put_take(out, "ISTIO_PROMETHEUS_ANNOTATIONS", inject_scrape(j));
	if (!j->rewrite)
		return;
	put_take(out, "ISTIO_KUBE_APP_PROBERS", inject_probers(j));
	auto_free char *mode = inject_text(j->config->mesh, "inboundTrafficPolicy.mode");
	if (mode && !strcmp(mode, "LOCALHOST"))
		put(out, "REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", "true");
}

json_t *inject_attributes(const struct inject_job *j, const json_t *labels_added)
{
	json_t *out = inject_mesh_attributes(j->config);
	json_t *metadata = json_object_get(j->proxy_config, "proxyMetadata");
	json_t *resources = inject_resources(j), *v;
	long cores = inject_cores(resources);
	const char *key;

	put_take(out, "PROXY_CONFIG", json_text(j->proxy_config, JSON_COMPACT | JSON_SORT_KEYS));
	put_network(j, out);
	put_containers(j, out);
	put_owner(j, out);
	put_version(j, out);
	if (cores)
		put_take(out, "ISTIO_CPU_LIMIT", mem_printf("%ld", cores));
	put_metadata(j, out, labels_added);
	put_redirect(j, out);
	put_asked(j, out);
	json_object_foreach (metadata, key, v)
		put_take(out, key, inject_scalar(v));
	json_decref(resources);
	return out;
}
