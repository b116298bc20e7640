/* env_keys.c - the closed list of what a pod's owner may say, and where each of it may point.
 *
 * One row per key; its reader takes the value within the row's bounds, passes it on to istiod,
 * lists the key as ignored or not yet supported, or refuses the pod and names the key.  Rules:
 * security-rules.md 3; what a key means: istio-agent.md 10; in words: docs/ENVIRONMENT.md.
 */
#include "env_keys.h"
#include "common/err.h"
#include "common/mem.h"
#include "common/words.h"
#include "duration.h"
#include "identity.h"
#include "own_address.h"
#include "pod.h"
#include "refusal.h"
#include "targets.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
	DRAIN_MAX_S = 3600,
	CONCURRENCY_MAX = 256,
};

static void list(json_t *names, const char *name)
{
	json_array_append_new(names, json_string(name));
}

/* --- the readers of the table's rows --- */

static int read_used(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	(void)r, (void)row, (void)key, (void)value, (void)e;
	return 0;
}

static int read_ignored(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	(void)row, (void)value, (void)e;
	list(r->out->ignored, key);
	return 0;
}

/* Listed, unless the pod only asks for what happens anyway. */
static int read_unsupported(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	(void)e;
	if (!row->allowed || strcmp(row->allowed, value) != 0)
		list(r->out->unsupported, key);
	return 0;
}

static bool is_one_of(const char *value, const char *allowed)
{
	size_t n = strlen(value);

	for (const char *at = allowed;; at++) {
		size_t len = strcspn(at, "|");

		if (len == n && !memcmp(at, value, n))
			return true;
		at += len;
		if (!*at)
			return false;
	}
}

static int read_one_of(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	(void)r;
	if (is_one_of(value, row->allowed))
		return 0;
	return refusal(key, value, *row->allowed ? row->allowed : "only empty", e);
}

/* A claim that disagrees with the source is an error, never a preference
 * (security-rules.md G4). */
static int read_own(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	const char *own = (const char *)r->pod + row->at;

	return strcmp(own, value) != 0 ? refusal(key, value, own, e) : 0;
}

bool env_key_yields(
    const struct node_reader *r, const char *key, const char *value, const char *own)
{
	char shown[50];

	if (!r->pod->running)
		return false;
	err_printable(shown, sizeof(shown), value, (unsigned)strlen(value));
	json_array_append_new(
	    r->out->ignored, json_sprintf("%s (\"%s\"; on this node now: %s)", key, shown, own));
	return true;
}

/* What the node does not know (a trust domain not learned yet) cannot be compared, nor is it used.
 */
static int read_plane_value(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	const char *const plane = (const char *)r->plane;
	const char *own = *(const char *const *)(plane + row->at);

	if (!*own)
		return read_ignored(r, row, key, value, e);
	if (!strcmp(own, value) ||
	    (row->former && words_has(*(const char *const *)(plane + row->former), value)) ||
	    env_key_yields(r, key, value, own))
		return 0;
	return refusal(key, value, own, e);
}

/* Go's spellings. */
static int read_bool(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	bool yes = is_one_of(value, "1|t|T|TRUE|true|True");

	if (!yes && !is_one_of(value, "0|f|F|FALSE|false|False"))
		return refusal(key, value, "true, false", e);
	*(bool *)((char *)&r->out->settings + row->at) = yes;
	return 0;
}

static int refuse_range(
    const struct env_key *row, const char *key, const char *value, struct err *e)
{
	char allowed[64];

	(void)snprintf(allowed, sizeof(allowed), "%g to %g", row->min, row->max);
	return refusal(key, value, allowed, e);
}

/* Digits and at most one dot: no sign, exponent, "inf" or hex. */
static bool parse_decimal(const char *value, double *out)
{
	size_t whole = strspn(value, "0123456789");
	size_t part = value[whole] == '.' ? strspn(value + whole + 1, "0123456789") : 0;
	size_t all = value[whole] == '.' ? whole + 1 + part : whole;

	if (whole + part == 0 || all > 20 || value[all])
		return false;
	*out = strtod(value, NULL);
	return true;
}

static int read_fraction(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	double v;

	if (!parse_decimal(value, &v) || v < row->min || v > row->max)
		return refuse_range(row, key, value, e);
	memcpy((char *)&r->out->settings + row->at, &v, sizeof(v));
	return 0;
}

static bool parse_int(const char *value, const struct env_key *row, int *out)
{
	double v;

	if (strchr(value, '.') || !parse_decimal(value, &v) || v < row->min || v > row->max)
		return false;
	*out = (int)v;
	return true;
}

static int read_int(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	if (!parse_int(value, row, (int *)((char *)&r->out->settings + row->at)))
		return refuse_range(row, key, value, e);
	return 0;
}

/* Cores of the limit, or of the node: many are no reason to refuse the pod. */
static int read_cpu_limit(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	int cores;

	if (!parse_int(value, row, &cores))
		return refuse_range(row, key, value, e);
	if (cores && r->out->settings.concurrency < 0)
		r->out->settings.concurrency = cores < CONCURRENCY_MAX ? cores : CONCURRENCY_MAX;
	return 0;
}

static int read_port(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	const struct env_key bounds = {.max = 65535};
	int port;

	if (!parse_int(value, &bounds, &port) || (port && port < 1024) || port == 15001 ||
	    port == 15006 || port == 15008 || port == 15053)
		return refusal(key, value, "0, 1024 to 65535 but 15001 15006 15008 15053", e);
	*(unsigned *)((char *)&r->out->settings + row->at) = (unsigned)port;
	return 0;
}

static int read_ttl(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	const struct node_context *c = r->context;
	int64_t ms, *s = &r->out->settings.ttl_s;
	char allowed[64];

	(void)row;
	(void)snprintf(allowed, sizeof(allowed), "%llds to %llds (as 24h or 1h30m)",
	    (long long)c->ttl_min_s, (long long)c->ttl_max_s);
	if (!duration_parse(value, &ms))
		return refusal(key, value, allowed, e);
	*s = ms < c->ttl_min_s * 1000   ? c->ttl_min_s
	     : ms > c->ttl_max_s * 1000 ? c->ttl_max_s
					: ms / 1000;
	if (*s == ms / 1000 || env_key_yields(r, key, value, allowed))
		return 0;
	return refusal(key, value, allowed, e);
}

/* In milliseconds. */
static int read_drain(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	int64_t ms;

	if (!duration_parse(value, &ms) || ms > DRAIN_MAX_S * 1000LL)
		return refusal(key, value, "0s to 3600s", e);
	*(int64_t *)((char *)&r->out->settings + row->at) = ms;
	return 0;
}

/* As Envoy's command line takes it. */
static int read_flush(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	int64_t ms;

	(void)r, (void)row;
	if (!duration_parse(value, &ms) || ms < 1 || ms > DRAIN_MAX_S * 1000LL)
		return refusal(key, value, "1ms to 3600s", e);
	return 0;
}

static int read_flush_size(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	int size;

	(void)r;
	return parse_int(value, row, &size) ? 0 : refuse_range(row, key, value, e);
}

static int read_address(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	unsigned char bytes[16];

	(void)r, (void)row;
	if (inet_pton(AF_INET, value, bytes) != 1 && inet_pton(AF_INET6, value, bytes) != 1)
		return refusal(key, value, "an IP address", e);
	return 0;
}

/* In the order of `enum node_cluster`. */
static int read_cluster_name(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	static const char *const names[] = {
	    "APP_LABEL_AND_NAMESPACE", "CANONICAL_NAME_ONLY", "CANONICAL_NAME_AND_NAMESPACE"};

	(void)row;
	for (unsigned i = 0; i < 3; i++)
		if (!strcmp(value, names[i])) {
			r->out->settings.cluster = (enum node_cluster)i;
			return 0;
		}
	return refusal(key, value,
	    "APP_LABEL_AND_NAMESPACE, CANONICAL_NAME_ONLY, CANONICAL_NAME_AND_NAMESPACE", e);
}

static int read_dns_timeout(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	int64_t ms;

	(void)row;
	if (!duration_parse(value, &ms) || ms < 100 || ms > 10000)
		return refusal(key, value, "0.1s to 10s", e);
	r->out->settings.dns_timeout_ms = ms;
	return 0;
}

/* A pod may ask for more than the node does, never for less (security-rules.md 2). */
static int read_scope(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	if (r->context->scope_pod)
		return strcmp(value, "pod") != 0 && !env_key_yields(r, key, value, "pod")
			   ? refusal(key, value, "pod", e)
			   : 0;
	r->out->settings.scope_pod = !strcmp(value, "pod");
	return read_one_of(r, row, key, value, e);
}

/* Three numbers of up to three digits. */
static bool is_version(const char *value)
{
	for (unsigned part = 0; part < 3; part++) {
		size_t digits = strspn(value, "0123456789");

		if (digits < 1 || digits > 3 || value[digits] != (part < 2 ? '.' : '\0'))
			return false;
		value += digits + 1;
	}
	return true;
}

/* x.y.z, or it is not passed on: absent makes istiod take the proxy for a new one. */
static int read_version(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	if (!is_version(value))
		return read_ignored(r, row, key, value, e);
	(void)snprintf(r->out->istio_version, sizeof(r->out->istio_version), "%s", value);
	return 0;
}

/* Peers dial it: only root may say where a machine is.  INSTANCE_IP wins: keys are walked in the
 * order of the alphabet. */
static int read_own_address(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	char address[INET6_ADDRSTRLEN] = "";

	if (!r->pod->machine)
		return read_ignored(r, row, key, value, e);
	if (*value && !own_address_read(value, address))
		return refusal(key, value, "an IP address that other machines can dial", e);
	if (!*r->out->settings.address)
		memcpy(r->out->settings.address, address, sizeof(address));
	return 0;
}

/* Only root may: istiod makes an endpoint of the mesh of it (bare-metal-identity.md 4). */
static int read_registration(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	if (!r->pod->machine)
		return read_ignored(r, row, key, value, e);
	if (!*value)
		return 0;
	if (!identity_valid_sa(value))
		return refusal(key, value, "a DNS subdomain (lower case, at most 253)", e);
	json_object_set_new(r->out->metadata, key + strlen("ISTIO_META_"), json_string(value));
	r->out->settings.registers = true;
	return 0;
}

/* It is of the metadata, too: istiod passes on what it says. */
static int read_load_stats(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	struct node_settings *s = &r->out->settings;

	(void)row;
	if (env_meta_count(&r->meta, key, value, e) ||
	    !(s->load_stats = env_parse_object(key, value, e)))
		return -1;
	json_object_set_new(r->out->metadata, key + strlen("ISTIO_META_"), json_string(value));
	return 0;
}

static int read_probers(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	json_t *document = env_parse_object(key, value, e);

	(void)row;
	if (document)
		r->out->settings.probers = targets_probers(key, document, e);
	json_decref(document);
	return r->out->settings.probers ? 0 : -1;
}

/* The kubelet asks its own pods. */
static int read_machine_probe(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	if (!r->pod->machine)
		return read_unsupported(r, row, key, value, e);
	return 0; /* env.c reads it */
}

static int read_scrapes(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	json_t *document = env_parse_object(key, value, e);

	(void)row;
	if (document)
		r->out->settings.scrapes = targets_scrapes(key, document, e);
	json_decref(document);
	return r->out->settings.scrapes ? 0 : -1;
}

static int read_meta(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	if (env_meta_count(&r->meta, key, value, e))
		return -1;
	return env_meta_add(&r->meta, key + strlen(row->key) - 1, value)
		   ? 0
		   : read_ignored(r, row, key, value, e);
}

static int read_metajson(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	json_t *o;

	if (!*value)
		return 0;
	if ((!row->large && env_meta_count(&r->meta, key, value, e)) ||
	    !(o = env_parse_object(key, value, e)))
		return -1;
	env_meta_add_all(&r->meta, key, o);
	json_decref(o);
	return 0;
}

/* --- the table --- */

#define SETTING(field) offsetof(struct node_settings, field)
#define PLANE(field) offsetof(struct node_plane, field)
#define POD(field) offsetof(struct pod_spec, field)
#define ROW(name, how, ...)                                                                        \
	{                                                                                          \
		.key = (name), .read = read_##how, __VA_ARGS__                                     \
	}

/* Exact keys before the prefixes that they begin with. */
static const struct env_key rows[] = {
    /* read before the rest: they choose the control plane or carry other keys */
    ROW("PROXY_CONFIG", used, .lines = true),
    ROW("PROXY_CONFIG.discoveryAddress", used),
    ROW("PROXY_CONFIG.proxyMetadata", used),
    ROW("CA_ADDR", used),
    ROW("annotation sidecar.istio.io/discoveryAddress", used),
    ROW("annotation proxy.istio.io/config", used),

    /* the pod's identity is the source's */
    ROW("POD_NAME", own, .at = POD(name)),
    ROW("POD_NAMESPACE", own, .at = POD(ns)),
    ROW("SERVICE_ACCOUNT", own, .at = POD(sa)),
    ROW("INSTANCE_IP", own_address),
    ROW("ISTIO_SVC_IP", own_address),

    /* must be what the control plane has */
    ROW("ISTIOD_SAN", plane_value, .at = PLANE(server_name)),
    ROW("TRUST_DOMAIN", plane_value, .at = PLANE(trust_domain),
	.former = PLANE(former_trust_domains)),
    ROW("ISTIO_META_CLUSTER_ID", plane_value, .at = PLANE(cluster_id),
	.former = PLANE(former_cluster_ids)),
    ROW("ISTIO_META_MESH_ID", plane_value, .at = PLANE(mesh_id), .former = PLANE(former_mesh_ids)),
    ROW("ISTIO_META_CERT_SIGNER", one_of, .allowed = ""),
    ROW("XDS_ROOT_CA", one_of, .allowed = ""),
    ROW("CA_ROOT_CA", one_of, .allowed = ""),
    ROW("PILOT_CERT_PROVIDER", one_of, .allowed = "istiod"),
    ROW("CA_PROVIDER", one_of, .allowed = "Citadel|"),
    ROW("PROXY_CONFIG.controlPlaneAuthPolicy", one_of, .allowed = "MUTUAL_TLS"),

    /* fixed */
    ROW("CREDENTIAL_FETCHER_TYPE", one_of, .allowed = "JWT|"),
    ROW("JWT_POLICY", one_of, .allowed = "third-party-jwt"),
    ROW("XDS_AUTH_PROVIDER", one_of, .allowed = ""),
    ROW("ISTIO_BOOTSTRAP", one_of, .allowed = ""),
    /* another socket is another CA's */
    ROW("WORKLOAD_IDENTITY_SOCKET_FILE", one_of, .allowed = "socket"),
    ROW("PROXY_CONFIG.configPath", one_of, .allowed = "./etc/istio/proxy"),
    ROW("PROXY_CONFIG.binaryPath", one_of, .allowed = "/usr/local/bin/envoy"),
    ROW("PROXY_CONFIG.customConfigFile", one_of, .allowed = ""),
    ROW("PROXY_CONFIG.proxyBootstrapTemplatePath", one_of, .allowed = ""),

    /* the node's business */
    ROW("GRPC_KEEPALIVE_*", ignored),
    ROW("ISTIO_GPRC_*", ignored),
    ROW("XDS_HEADER_*", ignored),
    ROW("CA_HEADER_*", ignored),
    ROW("GCP_*", ignored),
    ROW("WASM_*", ignored),
    ROW("COMPLIANCE_POLICY", ignored),
    ROW("PILOT_ENABLE_CA_CRL", ignored),
    ROW("PROXY_CONFIG_XDS_AGENT", ignored),
    ROW("CLOUD_PLATFORM", ignored),
    ROW("KUBERNETES_SERVICE_HOST", ignored),
    ROW("FILE_DEBOUNCE_DURATION", ignored),

    /* bounded; the key type is put together in env.c */
    ROW("SECRET_TTL", ttl),
    ROW("SECRET_GRACE_PERIOD_RATIO", fraction, .at = SETTING(ratio), .min = 0.2, .max = 0.8),
    ROW("SECRET_GRACE_PERIOD_RATIO_JITTER", fraction, .at = SETTING(jitter), .max = 0.1),
    ROW("WORKLOAD_RSA_KEY_SIZE", one_of, .allowed = "2048|3072|4096"),
    ROW("ECC_SIGNATURE_ALGORITHM", one_of, .allowed = "ECDSA|"),
    ROW("ECC_CURVE", one_of, .allowed = "P256|P384"),
    ROW("PKCS8_KEY", bool, .at = SETTING(key.pkcs8)),
    ROW("annotation agentd.node.mesh/scope", scope, .allowed = "service-account|pod"),
    ROW("DNS_FORWARD_TIMEOUT", dns_timeout),
    ROW("DNS_FORWARD_PARALLEL", bool, .at = SETTING(dns_parallel)),
    ROW("PROXY_CONFIG.drainDuration", drain, .at = SETTING(drain_ms)),
    ROW("PROXY_CONFIG.terminationDrainDuration", drain, .at = SETTING(termination_drain_ms)),
    ROW("MINIMUM_DRAIN_DURATION", drain, .at = SETTING(minimum_drain_ms)),
    ROW("PROXY_CONFIG.concurrency", int, .at = SETTING(concurrency), .max = CONCURRENCY_MAX),
    ROW("ISTIO_CPU_LIMIT", cpu_limit, .max = 65535),

    /* ports */
    ROW("PROXY_CONFIG.proxyAdminPort", port, .at = SETTING(admin_port)),
    ROW("PROXY_CONFIG.statusPort", port, .at = SETTING(agent_port)),
    ROW("ENVOY_STATUS_PORT", port, .at = SETTING(status_port)),
    ROW("ENVOY_PROMETHEUS_PORT", port, .at = SETTING(prometheus_port)),
    ROW("ENVOY_SECURE_METRICS_PORT", port, .at = SETTING(secure_port)),
    ROW("ENVOY_SECURE_MERGED_METRICS_PORT", port, .at = SETTING(secure_merged_port)),

    /* switches */
    ROW("ISTIO_DELTA_XDS", bool, .at = SETTING(delta_xds)),
    ROW("ISTIO_DUAL_STACK", bool, .at = SETTING(dual_stack)),
    ROW("EXIT_ON_ZERO_ACTIVE_CONNECTIONS", bool, .at = SETTING(exit_on_zero)),
    ROW("PILOT_AGENT_MERGE_ENVOY_STATS", bool, .at = SETTING(merge_envoy_stats)),
    ROW("METRICS_LOCALHOST_ACCESS_ONLY", bool, .at = SETTING(metrics_local_only)),
    ROW("REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", bool, .at = SETTING(probe_loopback)),
    ROW("PROXY_CONFIG.statsCompression", bool, .at = SETTING(stats_compression)),
    ROW("ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL", bool, .at = SETTING(proxy_protocol)),
    ROW("PROXY_CONFIG.tracingServiceName", cluster_name),

    /* of Envoy's command line: who starts it reads them */
    ROW("PROXY_CONFIG.fileFlushInterval", flush),
    ROW("PROXY_CONFIG.fileFlushMinSizeKb", flush_size, .max = 65535),

    /* documents: collectors_asked.c, runtime.c and override.c read and check them */
    ROW("PROXY_CONFIG.tracing", used),
    ROW("PROXY_CONFIG.statsdUdpAddress", used),
    ROW("PROXY_CONFIG.envoyMetricsService", used),
    ROW("PROXY_CONFIG.envoyAccessLogService", used),
    ROW("HOST_IP", address),
    ROW("PROXY_CONFIG.runtimeValues", used),
    ROW("PROXY_CONFIG.connectionSettings", used),
    ROW("ISTIO_META_LOAD_STATS_CONFIG_JSON", load_stats, .lines = true),
    ROW("ISTIO_BOOTSTRAP_OVERRIDE", used, .lines = true),

    /* what of the pod is asked on its status port */
    ROW("ISTIO_KUBE_APP_PROBERS", probers, .lines = true),
    ROW("ISTIO_PROMETHEUS_ANNOTATIONS", scrapes, .lines = true),

    /* not yet supported, unless it is what happens anyway */
    ROW("PROV_CERT", unsupported, .allowed = ""),
    ROW("FILE_MOUNTED_CERTS", unsupported, .allowed = "false"),
    ROW("OUTPUT_CERTS", unsupported, .allowed = ""),
    ROW("GRPC_XDS_BOOTSTRAP", unsupported, .allowed = ""),
    ROW("DISABLE_ENVOY", unsupported, .allowed = "false"),
    ROW("DNS_PROXY_ADDR", unsupported),
    ROW("ISTIO_META_ENABLE_SELF_DISCOVERY", unsupported, .allowed = "false"),
    ROW("annotation sidecar.istio.io/bootstrapOverride", unsupported),
    /* Envoy has no such flag any more */
    ROW("HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED", unsupported, .allowed = "true"),
    ROW("PEER_METADATA_DISCOVERY", unsupported, .allowed = "false"),
    ROW("PROXY_CONFIG.readinessProbe", machine_probe),
    ROW("PROXY_CONFIG.privateKeyProvider", unsupported),

    /* statistics: stats_asked.c reads and checks them */
    ROW("PROXY_CONFIG.proxyStatsMatcher", used),
    ROW("PROXY_CONFIG.extraStatTags", used),
    ROW("annotation sidecar.istio.io/statsInclusionPrefixes", used),
    ROW("annotation sidecar.istio.io/statsInclusionSuffixes", used),
    ROW("annotation sidecar.istio.io/statsInclusionRegexps", used),
    ROW("annotation sidecar.istio.io/extraStatTags", used),
    ROW("annotation sidecar.istio.io/statsHistogramBuckets", used),
    ROW("annotation sidecar.istio.io/statsFlushInterval", used),
    ROW("annotation sidecar.istio.io/statsEvictionInterval", used),

    /* traffic: redirect/ reads and checks them */
    ROW("annotation traffic.sidecar.istio.io/*", used),
    ROW("annotation sidecar.istio.io/interceptionMode", used),
    ROW("annotation istio.io/reroute-virtual-interfaces", used),
    ROW("annotation agentd.node.mesh/redirect", used),
    ROW("annotation agentd.node.mesh/redirectPolicy", used),
    ROW("annotation agentd.node.mesh/probePorts", used),
    ROW("annotation agentd.node.mesh/redirectAccelerate", ignored),
    ROW("ISTIO_INBOUND_INTERCEPTION_MODE", used),
    ROW("ENVOY_PORT", used),
    ROW("INBOUND_CAPTURE_PORT", used),
    ROW("INBOUND_TUNNEL_PORT", used),
    ROW("ISTIO_INBOUND_PORTS", used),
    ROW("AGENTD_PROBE_PORTS", used),
    ROW("ISTIO_LOCAL_EXCLUDE_PORTS", used),
    ROW("ISTIO_SERVICE_CIDR", used),
    ROW("ISTIO_SERVICE_EXCLUDE_CIDR", used),
    ROW("ISTIO_OUTBOUND_PORTS", used),
    ROW("ISTIO_LOCAL_OUTBOUND_PORTS_EXCLUDE", used),
    ROW("ISTIO_EXCLUDE_INTERFACES", used),
    ROW("KUBE_VIRT_INTERFACES", used),
    ROW("ISTIO_OUTBOUND_OWNER_GROUPS", used),
    ROW("ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE", used),
    ROW("INVALID_DROP", used),

    /* into the node metadata */
    ROW("ISTIO_META_ISTIO_VERSION", version),
    ROW("ISTIO_META_AUTO_REGISTER_GROUP", registration),
    ROW("ISTIO_META_WORKLOAD_ENTRY", registration),
    ROW("ISTIO_METAJSON_LABELS", metajson, .lines = true, .large = true),
    ROW("ISTIO_METAJSON_ANNOTATIONS", metajson, .lines = true, .large = true),
    ROW("ISTIO_METAJSON_*", metajson, .lines = true),
    ROW("ISTIO_META_*", meta),
};

const struct env_key *env_key_find(const char *key)
{
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		size_t n = strlen(rows[i].key);

		if (rows[i].key[n - 1] == '*' ? !strncmp(rows[i].key, key, n - 1)
					      : !strcmp(rows[i].key, key))
			return &rows[i];
	}
	return NULL;
}

const char *env_key_name(unsigned n)
{
	return n < sizeof(rows) / sizeof(*rows) ? rows[n].key : NULL;
}
