/* config_table.c - every flat key: one line in one table.
 *
 * A new setting is a field in struct config and a row here; file, flag, --help, errors and the
 * nearest known name come from the row.  What only the broker needs exists only as a flag of
 * agentd, because the broker reads no YAML (decisions.md 2).
 */
#include "row.h"
#include "worker/crypto/identity.h"
#include <arpa/inet.h>
#include <string.h>

static bool is_name(const char *s)
{
	return *s && config_is_word(s);
}

static bool is_family(const char *s)
{
	return !strcmp(s, "ipv4") || !strcmp(s, "ipv6");
}

static bool is_scope(const char *s)
{
	return !strcmp(s, "service-account") || !strcmp(s, "pod");
}

static bool is_policy(const char *s)
{
	return !strcmp(s, "require") || !strcmp(s, "prefer");
}

static bool is_place(const char *s)
{
	return !strcmp(s, "tmpfs") || !strcmp(s, "memory");
}

static bool is_redirect(const char *s)
{
	return !strcmp(s, "ebpf") || !strcmp(s, "istio-cni") || !strcmp(s, "istio-init") ||
	       !strcmp(s, "none");
}

static bool is_strictness(const char *s)
{
	return !strcmp(s, "strict") || !strcmp(s, "permissive");
}

static bool is_addresses(const char *s)
{
	char text[INET6_ADDRSTRLEN];
	uint8_t bytes[16];

	for (; *s; s += strcspn(s, ",") + (s[strcspn(s, ",")] == ',')) {
		size_t n = strcspn(s, ",");

		snprintf(text, sizeof(text), "%.*s", (int)n, s);
		if (n >= sizeof(text) ||
		    inet_pton(strchr(text, ':') ? AF_INET6 : AF_INET, text, bytes) != 1)
			return false;
	}
	return true;
}

#define TEXT_ROW(...) CONFIG_TEXT(struct config, __VA_ARGS__)
#define BOOLEAN_ROW(...) CONFIG_BOOLEAN(struct config, __VA_ARGS__)
#define NUMBER_ROW(...) CONFIG_NUMBER(struct config, __VA_ARGS__)

/* name, default, [check, what it must be,] [least, most,] help */
const struct config_row config_rows[] = {
    TEXT_ROW(log_level, "info", is_name, "levels such as info or default:warn,xds:debug",
	"levels: info, or sds:debug,default:warn"),
    BOOLEAN_ROW(log_json, "log JSON instead of logfmt"),
    TEXT_ROW(
	node_name, "", config_is_word, "one word", "name of this node (default: the host's name)"),
    TEXT_ROW(istio_namespace, "istio-system", identity_valid_ns, "a DNS label",
	"namespace istiod runs in"),
    TEXT_ROW(cluster_domain, "cluster.local", identity_valid_sa, "a DNS name",
	"DNS domain of the cluster"),
    TEXT_ROW(ip_family, "ipv4", is_family, "ipv4 or ipv6",
	"ipv4 or ipv6: of a pod whose addresses are not known yet"),
    NUMBER_ROW(secret_ttl_min_s, "3600", 1, YEAR, "shortest SECRET_TTL a pod may ask"),
    NUMBER_ROW(secret_ttl_max_s, "86400", 1, YEAR, "longest SECRET_TTL a pod may ask"),
    NUMBER_ROW(certificate_reissue_min_s, "300", 1, DAY,
	"pause between two certificates of one service account"),
    NUMBER_ROW(
	certificate_linger_s, "300", 0, DAY, "how long a certificate is kept after its last pod"),
    BOOLEAN_ROW(pcds, "take further trust anchors from istiod (its ISTIO_MULTIROOT_MESH)"),
    TEXT_ROW(certificate_scope, "service-account", is_scope, "service-account or pod",
	"who shares a certificate; pod: nobody, and no pod can ask otherwise"),
    NUMBER_ROW(csr_per_second, "10", 1, 100,
	"certificates asked of one control plane, with bursts of twice as many"),
    TEXT_ROW(attest, "prefer", is_policy, "require or prefer",
	"require: refuse a connection whose pod cannot be proven; prefer: flag it"),
    TEXT_ROW(state_keys, "tmpfs", is_place, "tmpfs or memory",
	"where private keys outlive the worker; memory: nowhere when the broker dies, too"),
    TEXT_ROW(redirect, "none", is_redirect, "ebpf, istio-cni, istio-init or none",
	"who brings the traffic of pods that do not say so to their Envoys"),
    TEXT_ROW(redirect_policy, "strict", is_strictness, "strict or permissive",
	"strict: nothing from outside reaches a pod before its Envoy can take it"),
    NUMBER_ROW(publish_wait_ms, "2000", 0, 60000,
	"how long a pod's start waits for its first certificate"),
    TEXT_ROW(dns_upstream, "", is_addresses, "IP addresses with commas between them",
	"resolvers for what istiod does not name, of pods with redirect_dns and without "
	"dns_servers"),
    NUMBER_ROW(pod_connections, "32", 2, 1024, "connections of one pod at a time"),
    NUMBER_ROW(pod_streams, "256", 2, 16384, "streams of one pod at a time"),
    NUMBER_ROW(pod_message_mib, "4", 1, 64, "largest message from a pod's Envoy"),
    NUMBER_ROW(pod_memory_mib, "32", 8, 1024, "memory for what a pod's Envoy is sending"),
    NUMBER_ROW(pod_queued_mib, "8", 1, 64, "bytes that wait for a pod's Envoy to read"),
    NUMBER_ROW(pod_requests_per_second, "100", 1, 1000000,
	"requests of one pod; above it they are read later"),
    NUMBER_ROW(pod_requests_burst, "200", 1, 1000000, "and so many at once"),
    NUMBER_ROW(pod_silent_s, "60", 1, 3600, "how long a connection may have no stream"),
    NUMBER_ROW(pod_header_kib, "16", 4, 1024, "headers of one stream"),
    {"check", BOOLEAN, offsetof(struct config, check), "false",
	"read the configuration, say so, end", NULL, NULL, 0, 0, true},
};
const unsigned config_nrows = sizeof(config_rows) / sizeof(*config_rows);
