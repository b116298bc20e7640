/* env_meta.c - see env_meta.h. */
#include "env_meta.h"
#include "common/err.h"
#include "refusal.h"
#include <string.h>
#include <strings.h>

enum { KEYS_MAX = 128, BYTES_MAX = 128 << 10 };

static const char key_characters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-";

/* Written by node.c or nobody: dropped when a pod brings them by any way (security-rules.md 3). */
static const char *const reserved[] = {"NAME", "NAMESPACE", "SERVICE_ACCOUNT", "INSTANCE_IPS",
    "CLUSTER_ID", "MESH_ID", "NODE_NAME", "PILOT_SAN", "ISTIO_VERSION", "GENERATOR",
    "INTERCEPTION_MODE", "DNS_CAPTURE", "credential", "file-credential",
    "WORKLOAD_IDENTITY_SOCKET_FILE", "METADATA_DISCOVERY", "ENABLE_HBONE", "PLATFORM_METADATA",
    "STS_PORT", "AUTO_REGISTER_GROUP", "WORKLOAD_ENTRY",
    /* typed keys whose only source is not ISTIO_META_* (istio-agent.md 8.3) */
    "LABELS", "STATIC_LABELS", "ANNOTATIONS", "PROXY_CONFIG", "ENVOY_STATUS_PORT",
    "ENVOY_PROMETHEUS_PORT", "ENVOY_SECURE_METRICS_PORT", "ENVOY_SECURE_MERGED_METRICS_PORT",
    "EXIT_ON_ZERO_ACTIVE_CONNECTIONS", "ENVOY_SKIP_DEPRECATED_LOGS", "DNS_PROXY_ADDR",
    "OUTLIER_LOG_PATH", "AGENTD_VERSION"};

/* istiod decodes metadata with Go's encoding/json, which matches names without regard to case and
 * folds two non-ASCII letters: "namespace" would overwrite NAMESPACE. */
static bool may_echo(const char *name)
{
	if (!*name || name[strspn(name, key_characters)])
		return false;
	for (unsigned i = 0; i < sizeof(reserved) / sizeof(*reserved); i++)
		if (!strcasecmp(name, reserved[i]))
			return false;
	return true;
}

int env_meta_count(struct env_meta *m, const char *key, const char *value, struct err *e)
{
	m->keys++;
	m->bytes += strlen(key) + strlen(value);
	if (m->keys > KEYS_MAX || m->bytes > BYTES_MAX)
		return refusal(
		    key, value, "at most 128 keys and 128 KiB of ISTIO_META_* in all", e);
	return 0;
}

/* Labels and annotations arrive all the same, as LABELS and ANNOTATIONS. */
static bool arrives(const char *key)
{
	return !strcmp(key, "ISTIO_METAJSON_LABELS") || !strcmp(key, "ISTIO_METAJSON_ANNOTATIONS");
}

void env_meta_add_all(struct env_meta *m, const char *key, json_t *values)
{
	const char *name;
	char printable[130];
	json_t *v;

	json_object_foreach (values, name, v) {
		if (may_echo(name))
			json_object_set(m->metadata, name, v);
		if (may_echo(name) || arrives(key))
			continue;
		err_printable(printable, sizeof(printable), name, (unsigned)strlen(name));
		json_array_append_new(m->ignored, json_sprintf("%s.%s", key, printable));
	}
}

bool env_meta_add(struct env_meta *m, const char *name, const char *value)
{
	if (!may_echo(name))
		return false;
	if (!json_object_get(m->metadata, name))
		json_object_set_new(m->metadata, name, json_string(value));
	return true;
}
