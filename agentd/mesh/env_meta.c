/* env_meta.c - see env_meta.h. */
#include "env_meta.h"
#include "common/err.h"
#include "common/mem.h"
#include "env_keys.h"
#include "refusal.h"
#include <string.h>
#include <strings.h>

enum { ECHO_KEYS_MAX = 128, ECHO_BYTES_MAX = 128 << 10 };

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

int env_meta_count(struct node_reader *r, const char *key, const char *value, struct err *e)
{
	r->echo_keys++;
	r->echo_bytes += strlen(key) + strlen(value);
	if (r->echo_keys > ECHO_KEYS_MAX || r->echo_bytes > ECHO_BYTES_MAX)
		return refusal(
		    key, value, "at most 128 keys and 128 KiB of ISTIO_META_* in all", e);
	return 0;
}

/* Labels and annotations arrive all the same, as LABELS and ANNOTATIONS. */
static bool arrives(const char *key)
{
	return !strcmp(key, "ISTIO_METAJSON_LABELS") || !strcmp(key, "ISTIO_METAJSON_ANNOTATIONS");
}

static void echo(struct node_reader *r, const char *key, const char *name, json_t *value)
{
	char printable[130];

	if (may_echo(name))
		json_object_set(r->out->metadata, name, value);
	if (may_echo(name) || arrives(key))
		return;
	err_printable(printable, sizeof(printable), name, (unsigned)strlen(name));
	auto_free char *path = mem_printf("%s.%s", key, printable);

	json_array_append_new(r->out->ignored, json_string(path));
}

/* Walked in the order of the alphabet, ISTIO_METAJSON_* comes first; it also wins. */
int env_meta_read(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	const char *name = key + strlen(row->key) - 1;
	json_t *text;

	if (env_meta_count(r, key, value, e))
		return -1;
	if (!may_echo(name)) {
		json_array_append_new(r->out->ignored, json_string(key));
		return 0;
	}
	text = json_string(value);
	if (!json_object_get(r->out->metadata, name))
		json_object_set(r->out->metadata, name, text);
	json_decref(text);
	return 0;
}

int env_meta_read_json(struct node_reader *r, const struct env_key *row, const char *key,
    const char *value, struct err *e)
{
	json_t *o, *child;
	const char *name;

	if (!*value)
		return 0;
	if ((!row->large && env_meta_count(r, key, value, e)) ||
	    !(o = env_parse_object(key, value, e)))
		return -1;
	json_object_foreach (o, name, child)
		echo(r, key, name, child);
	json_decref(o);
	return 0;
}
