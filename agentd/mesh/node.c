/* node.c - from a checked environment to the node that Envoy and istiod get.
 *
 * A pod comes -> its environment is read (env.c) -> rendered with a placeholder for its address ->
 * its first connection shows the addresses -> rendered again.  The bootstrap's JSON and the Struct
 * that xds_proxy puts into the first request are made from one object, so they cannot differ.
 */
#include "node.h"
#include "base/pbwire.h"
#include "common/err.h"
#include "common/mem.h"
#include "env.h"
#include "pod.h"
#include <arpa/inet.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ADDRESSES_MAX = 64 };

struct node {
	struct env env;
	struct node_context context;
	char ns[64], name[254], sa[254], locality[POD_LOCALITY_SIZE];
	char (*ips)[INET6_ADDRSTRLEN]; /* ADDRESSES_MAX at most */
	size_t nips;
	bool placeholder; /* none was seen */
	bool elsewhere;   /* what the owner says is not among those that were */
	bool captured, dns_captured;
	char *id;
	json_t *json;
	void *bytes; /* google.protobuf.Struct */
	size_t nbytes;
};

static const struct node_plane *plane_of(const struct node *n)
{
	return &n->context.planes[n->env.settings.plane];
}

/* --- google.protobuf.Struct: field numbers of struct.proto --- */

enum { STRUCT_FIELDS = 1, ENTRY_KEY = 1, ENTRY_VALUE = 2, LIST_VALUES = 1 };
enum { VALUE_NULL = 1, VALUE_NUMBER, VALUE_STRING, VALUE_BOOL, VALUE_STRUCT, VALUE_LIST };

static void put_value(struct evbuffer *out, const json_t *v);

static void put_message(struct evbuffer *out, uint32_t number, struct evbuffer *message)
{
	size_t size = evbuffer_get_length(message);

	pbwire_put_bytes(out, number, evbuffer_pullup(message, -1), size);
	evbuffer_free(message);
}

static void put_struct(struct evbuffer *out, const json_t *o)
{
	const char *key;
	json_t *v;

	json_object_foreach ((json_t *)o, key, v) {
		struct evbuffer *entry = evbuffer_new(), *value = evbuffer_new();

		put_value(value, v);
		pbwire_put_bytes(entry, ENTRY_KEY, key, strlen(key));
		put_message(entry, ENTRY_VALUE, value);
		put_message(out, STRUCT_FIELDS, entry);
	}
}

static void put_list(struct evbuffer *out, const json_t *list)
{
	size_t i;
	json_t *v;

	json_array_foreach (list, i, v) {
		struct evbuffer *value = evbuffer_new();

		put_value(value, v);
		put_message(out, LIST_VALUES, value);
	}
}

static void put_number(struct evbuffer *out, double d)
{
	static const unsigned char tag = VALUE_NUMBER << 3 | PBWIRE_FIXED64;
	unsigned char bytes[8];
	uint64_t bits;

	memcpy(&bits, &d, sizeof(bits));
	for (unsigned i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(bits >> 8 * i);
	evbuffer_add(out, &tag, 1);
	evbuffer_add(out, bytes, sizeof(bytes));
}

/* The depth was bounded where the value came in (env_keys.c, base/yaml). */
static void put_value(struct evbuffer *out, const json_t *v)
{
	struct evbuffer *inner;

	if (json_is_string(v))
		return pbwire_put_bytes(
		    out, VALUE_STRING, json_string_value(v), json_string_length(v));
	if (json_is_number(v))
		return put_number(out, json_number_value(v));
	if (json_is_boolean(v))
		return pbwire_put_varint(out, VALUE_BOOL, json_is_true(v));
	if (json_is_null(v))
		return pbwire_put_varint(out, VALUE_NULL, 0);
	inner = evbuffer_new();
	if (json_is_object(v))
		put_struct(inner, v);
	else
		put_list(inner, v);
	put_message(out, json_is_object(v) ? VALUE_STRUCT : VALUE_LIST, inner);
}

static void render_struct(struct node *n)
{
	struct evbuffer *all = evbuffer_new();

	put_struct(all, json_object_get(n->json, "metadata"));
	n->nbytes = evbuffer_get_length(all);
	n->bytes = mem_dup(evbuffer_pullup(all, -1), n->nbytes);
	evbuffer_free(all);
}

/* --- the node: istio-agent.md 8.2, 8.3 --- */

static const char *label(const struct node *n, const char *name)
{
	const char *v = json_string_value(json_object_get(n->env.labels, name));

	return v && *v ? v : NULL;
}

/* The first of these labels that is set, or else the workload's name; NULL: neither is. */
static const char *first_label(const struct node *n, const char *const labels[3])
{
	const char *found = NULL;

	for (unsigned i = 0; i < 3 && !found; i++)
		found = label(n, labels[i]);
	if (!found)
		found = json_string_value(json_object_get(n->env.metadata, "WORKLOAD_NAME"));
	return found && *found ? found : NULL;
}

/* PROXY_CONFIG.serviceCluster or tracingServiceName. */
static char *cluster_name(const struct node *n)
{
	static const char canonical[] = "service.istio.io/canonical-name";
	static const char *const by_app[] = {"app", "app.kubernetes.io/name", canonical};
	static const char *const by_name[] = {canonical, "app.kubernetes.io/name", "app"};
	const char *set = json_string_value(json_object_get(n->env.proxy_config, "serviceCluster"));
	enum node_cluster kind = n->env.settings.cluster;
	const char *app = first_label(n, by_app), *name = first_label(n, by_name);

	if (kind == NODE_CLUSTER_NAME_AND_NS)
		return mem_printf("%s.%s", name ? name : "istio-proxy", n->ns);
	if (kind == NODE_CLUSTER_NAME && name && strcmp(name, "istio-proxy") != 0)
		return mem_strdup(name);
	if (set && strcmp(set, "istio-proxy") != 0)
		return mem_strdup(set);
	return mem_printf("%s.%s", app ? app : "istio-proxy", n->ns);
}

/* Region, zone and sub-zone: the manifest's word, else a label's; divided by '/', or by '.' in a
 * label value. */
static json_t *locality(const struct node *n)
{
	static const char *const parts[] = {"region", "zone", "sub_zone"};
	const char *text = *n->locality ? n->locality : label(n, "topology.istio.io/locality");
	const char *divider = "/";
	json_t *out;

	if (!text && (text = label(n, "istio-locality")) && !strchr(text, '/'))
		divider = ".";
	if (!text)
		return NULL;
	out = json_object();
	for (unsigned i = 0; i < 3 && *text; i++) {
		size_t len = strcspn(text, divider);

		json_object_set_new(out, parts[i], json_stringn(text, len));
		text += text[len] ? len + 1 : len;
	}
	return out;
}

static json_t *instance_ips(const struct node *n)
{
	char text[ADDRESSES_MAX * INET6_ADDRSTRLEN] = "";
	size_t len = 0;

	for (size_t i = 0; i < n->nips; i++)
		len += (size_t)snprintf(
		    text + len, sizeof(text) - len, "%s%s", i ? "," : "", n->ips[i]);
	return json_string(text);
}

static void set_text(json_t *m, const char *key, const char *value)
{
	if (value && *value)
		json_object_set_new(m, key, json_string(value));
}

static void set_map(json_t *m, const char *key, json_t *value)
{
	if (json_object_size(value))
		json_object_set(m, key, value);
}

static json_t *effective_config(const struct node *n)
{
	json_t *config = json_copy(n->env.proxy_config);

	if (n->env.settings.concurrency >= 0)
		json_object_set_new(
		    config, "concurrency", json_integer(n->env.settings.concurrency));
	return config;
}

/* Types matter: a wrong one makes istiod refuse the stream (istio-agent.md 0.16). */
static json_t *metadata(const struct node *n)
{
	const struct node_settings *s = &n->env.settings;
	json_t *m = json_copy(n->env.metadata);

	set_text(m, "NAME", n->name);
	set_text(m, "NAMESPACE", n->ns);
	set_text(m, "SERVICE_ACCOUNT", n->sa);
	json_object_set_new(m, "INSTANCE_IPS", instance_ips(n));
	set_text(m, "CLUSTER_ID", plane_of(n)->cluster_id);
	set_text(m, "MESH_ID", plane_of(n)->mesh_id);
	set_text(m, "NODE_NAME", n->context.node_name);
	set_text(m, "ISTIO_VERSION", n->env.istio_version);
	set_text(m, "AGENTD_VERSION", n->context.version);
	json_object_set_new(m, "PILOT_SAN", json_pack("[s]", plane_of(n)->server_name));
	set_map(m, "LABELS", n->env.labels);
	set_map(m, "STATIC_LABELS", n->env.static_labels);
	set_map(m, "ANNOTATIONS", n->env.annotations);
	json_object_set_new(m, "PROXY_CONFIG", effective_config(n));
	json_object_set_new(m, "ENVOY_STATUS_PORT", json_integer(s->status_port));
	json_object_set_new(m, "ENVOY_PROMETHEUS_PORT", json_integer(s->prometheus_port));
	if (s->secure_port)
		json_object_set_new(m, "ENVOY_SECURE_METRICS_PORT", json_integer(s->secure_port));
	if (s->secure_merged_port)
		json_object_set_new(
		    m, "ENVOY_SECURE_MERGED_METRICS_PORT", json_integer(s->secure_merged_port));
	/* The truth: what redirection really does; never "true" for
	 * the extension that upstream Envoy lacks (istio-agent.md 8.9). */
	set_text(m, "INTERCEPTION_MODE", n->captured ? "REDIRECT" : "NONE");
	set_text(m, "DNS_CAPTURE", n->dns_captured ? "true" : NULL);
	set_text(m, "METADATA_DISCOVERY", "false");
	/* What the pod's command line and bootstrap say. */
	set_text(m, "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", s->exit_on_zero ? "true" : NULL);
	set_text(m, "ENVOY_SKIP_DEPRECATED_LOGS", "true");
	set_text(m, "WORKLOAD_IDENTITY_SOCKET_FILE", "socket");
	return m;
}

static void forget_rendered(struct node *n)
{
	free(take(n->id));
	free(take(n->bytes));
	json_decref(take(n->json));
}

static void render(struct node *n)
{
	auto_free char *cluster = cluster_name(n);
	json_t *all = json_object(), *where = locality(n);

	forget_rendered(n);
	n->id = mem_printf("sidecar~%s~%s.%s~%s.svc.%s", n->ips[0], n->name, n->ns, n->ns,
	    n->context.cluster_domain);
	json_object_set_new(all, "id", json_string(n->id));
	json_object_set_new(all, "cluster", json_string(cluster));
	if (where)
		json_object_set_new(all, "locality", where);
	json_object_set_new(all, "metadata", metadata(n));
	n->json = env_sorted(all);
	json_decref(all);
	render_struct(n);
}

void node_set_dns_captured(struct node *n, bool captured)
{
	n->dns_captured = captured;
}

void node_set_captured(struct node *n, bool captured)
{
	n->captured = captured;
	render(n);
}

struct node *node_new(const struct pod_spec *p, const struct node_context *c, struct err *e)
{
	struct node *n = mem_zalloc(sizeof(*n));

	if (env_read(&n->env, p, c, e)) {
		free(n);
		return NULL;
	}
	n->context = *c;
	memcpy(n->ns, p->ns, sizeof(n->ns));
	memcpy(n->name, p->name, sizeof(n->name));
	memcpy(n->sa, p->sa, sizeof(n->sa));
	memcpy(n->locality, p->locality, sizeof(n->locality));
	node_set_addresses(n, NULL, 0);
	return n;
}

void node_free(struct node **node)
{
	struct node *n = take(*node);

	if (!n)
		return;
	forget_rendered(n);
	env_clear(&n->env);
	free(n->ips);
	free(n);
}

const struct node_settings *node_settings(const struct node *n)
{
	return &n->env.settings;
}

const json_t *node_leftovers(const struct node *n)
{
	return n->env.leftovers;
}

static bool is_v6(const char *ip)
{
	return strchr(ip, ':') != NULL;
}

static bool has_address(const struct node *n, const char *ip)
{
	for (size_t i = 0; i < n->nips; i++)
		if (!strcmp(n->ips[i], ip))
			return true;
	return false;
}

/* Only what istiod can parse, and each address once. */
static void add_address(struct node *n, const char *ip)
{
	unsigned char bytes[16];

	if (n->nips == ADDRESSES_MAX || has_address(n, ip) ||
	    inet_pton(is_v6(ip) ? AF_INET6 : AF_INET, ip, bytes) != 1)
		return;
	n->ips = mem_realloc(n->ips, (n->nips + 1) * sizeof(*n->ips));
	memset(n->ips[n->nips], 0, sizeof(*n->ips)); /* they are compared as they are */
	(void)snprintf(n->ips[n->nips++], sizeof(*n->ips), "%s", ip);
}

static void put_first(struct node *n, const char *ip)
{
	char first[INET6_ADDRSTRLEN] = "";
	size_t at = 0;

	(void)snprintf(first, sizeof(first), "%s", ip);
	while (at < n->nips && strcmp(n->ips[at], ip) != 0)
		at++;
	if (at == n->nips && n->nips < ADDRESSES_MAX)
		n->ips = mem_realloc(n->ips, ++n->nips * sizeof(*n->ips));
	memmove(n->ips[1], n->ips[0], (at < n->nips ? at : n->nips - 1) * sizeof(*n->ips));
	memcpy(n->ips[0], first, sizeof(*n->ips));
}

bool node_set_addresses(struct node *n, const char *const *ips, size_t count)
{
	const char *said = n->env.settings.address;
	const size_t nbefore = n->nips;
	auto_free char(*before)[INET6_ADDRSTRLEN] = take(n->ips);

	n->nips = 0;
	for (size_t i = 0; i < count; i++)
		add_address(n, ips[i]);
	n->placeholder = n->nips == 0;
	if (n->placeholder)
		add_address(n, n->context.ipv6 ? "::1" : "127.0.0.1");
	if (n->placeholder && n->env.settings.dual_stack && n->context.both_families)
		add_address(n, n->context.ipv6 ? "127.0.0.1" : "::1");
	n->elsewhere = *said && !n->placeholder && !has_address(n, said);
	if (*said)
		put_first(n, said);
	if (nbefore && n->nips == nbefore && !memcmp(before, n->ips, nbefore * sizeof(*before)))
		return false;
	render(n);
	return true;
}

const char *node_id(const struct node *n)
{
	return n->id;
}

const json_t *node_json(const struct node *n)
{
	return n->json;
}

const void *node_metadata_struct(const struct node *n, size_t *size)
{
	*size = n->nbytes;
	return n->bytes;
}

bool node_has_addresses(const struct node *n)
{
	return !n->placeholder;
}

bool node_is_elsewhere(const struct node *n)
{
	return n->elsewhere;
}

bool node_has_family(const struct node *n, bool ipv6)
{
	for (size_t i = 0; i < n->nips; i++)
		if (is_v6(n->ips[i]) == ipv6)
			return true;
	return false;
}

/* istio-agent.md 8.4: mixed addresses mean IPv4 unless dual-stack is asked for. */
bool node_is_ipv6(const struct node *n)
{
	return !node_has_family(n, false) || (n->env.settings.dual_stack && is_v6(n->ips[0]));
}
