/* table.c - every flat key: one line in one table.
 *
 * A new setting is a field in struct config, a row here and one in common/flags.c, which has its
 * default and its help.  Settings of the broker alone exist only as flags of agentd, because the
 * broker reads no YAML (decisions.md 2).
 */
#include "common/flags.h"
#include "mesh/identity.h"
#include "row.h"
#include <arpa/inet.h>
#include <string.h>

static bool is_name(const char *s)
{
	return *s && config_is_word(s);
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

static bool is_address(const char *s)
{
	return is_addresses(s) && !strchr(s, ',');
}

static bool is_directories(const char *s)
{
	for (; *s; s += strcspn(s, ",") + (s[strcspn(s, ",")] == ','))
		if (*s != '/')
			return false;
	return true;
}

#define TEXT_ROW(field, valid, must) CONFIG_TEXT(struct config, field, NULL, valid, must)
#define BOOLEAN_ROW(field) CONFIG_BOOLEAN(struct config, field)
#define NUMBER_ROW(field, min, max) CONFIG_NUMBER(struct config, field, NULL, min, max)

/* name, [check, what it must be] [least, most] */
const struct config_row config_rows[] = {
    TEXT_ROW(log_level, is_name, "levels such as info or default:warn,xds:debug"),
    BOOLEAN_ROW(log_json),
    TEXT_ROW(node_name, config_is_word, "one word"),
    TEXT_ROW(host_ip, is_address, "an IP address"),
    TEXT_ROW(istio_namespace, identity_valid_ns, "a DNS label"),
    TEXT_ROW(cluster_domain, identity_valid_sa, "a DNS name"),
    TEXT_ROW(ip_family, NULL, "ipv4 or ipv6"),
    NUMBER_ROW(secret_ttl_min_s, 1, YEAR),
    NUMBER_ROW(secret_ttl_max_s, 1, YEAR),
    NUMBER_ROW(certificate_reissue_min_s, 1, DAY),
    NUMBER_ROW(certificate_linger_s, 0, DAY),
    BOOLEAN_ROW(pcds),
    BOOLEAN_ROW(ready_anyway),
    TEXT_ROW(certificate_scope, NULL, "service-account or pod"),
    NUMBER_ROW(csr_per_second, 1, 100),
    TEXT_ROW(attest, NULL, "require or prefer"),
    TEXT_ROW(state_keys, NULL, "tmpfs or memory"),
    TEXT_ROW(redirect, NULL, "ebpf, istio-cni, istio-init or none"),
    TEXT_ROW(redirect_policy, NULL, "strict or permissive"),
    TEXT_ROW(redirect_accelerate, NULL, "off: " FLAGS_ACCELERATE_GONE),
    NUMBER_ROW(publish_wait_ms, 0, 60000),
    TEXT_ROW(dns_upstream, is_addresses, "IP addresses, separated by commas"),
    TEXT_ROW(certificate_directories, is_directories, "absolute paths, separated by commas"),
    NUMBER_ROW(pod_connections, 2, 1024),
    NUMBER_ROW(pod_streams, 2, 16384),
    NUMBER_ROW(pod_message_mib, 1, 64),
    NUMBER_ROW(pod_memory_mib, 8, 1024),
    NUMBER_ROW(pods_memory_mib, 8, 65536),
    NUMBER_ROW(push_memory_mib, 8, 65536),
    NUMBER_ROW(pod_queued_mib, 1, 64),
    NUMBER_ROW(pod_requests_per_second, 1, 1000000),
    NUMBER_ROW(pod_requests_burst, 1, 1000000),
    NUMBER_ROW(pods_requests_per_second, 10, 10000000),
    NUMBER_ROW(pod_silent_s, 1, 3600),
    NUMBER_ROW(pod_header_kib, 4, 1024),
    {"check", BOOLEAN, offsetof(struct config, check), NULL, NULL, NULL, 0, 0, true},
    {"connect", BOOLEAN, offsetof(struct config, connect), NULL, NULL, NULL, 0, 0, true},
    {"check_state", BOOLEAN, offsetof(struct config, check_state), NULL, NULL, NULL, 0, 0, true},
};
const unsigned config_nrows = sizeof(config_rows) / sizeof(*config_rows);
