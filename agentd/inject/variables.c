/* variables.c - the environment of a container istio-proxy beside the attributes of agentd's
 * volume, which is all that a node sees of a pod.
 *
 * pilot-agent read such a variable, agentd does not: what a node would refuse is refused in its
 * words, the rest is said.
 */
#include "common/err.h"
#include "common/words.h"
#include "inject_internal.h"
#include "mesh/refusal.h"
#include <string.h>

/* Written by Istio's injector, and made again by ours where they are needed; with a value: only
 * that one is. */
static const char *const written[][2] = {
    {"PROXY_CONFIG", NULL},
    {"POD_NAME", NULL},
    {"POD_NAMESPACE", NULL},
    {"SERVICE_ACCOUNT", NULL},
    {"INSTANCE_IP", NULL},
    {"HOST_IP", NULL},
    {"PILOT_CERT_PROVIDER", "istiod"},
    {"JWT_POLICY", "third-party-jwt"},
    {"COMPLIANCE_POLICY", NULL},
    {"GOMEMLIMIT", NULL},
    {"GOMAXPROCS", NULL},
    {"ISTIO_CPU_LIMIT", NULL},
    {"ISTIO_META_POD_PORTS", NULL},
    {"ISTIO_META_APP_CONTAINERS", NULL},
    {"ISTIO_META_NODE_NAME", NULL},
    {"ISTIO_META_INTERCEPTION_MODE", NULL},
    {"ISTIO_META_NETWORK", NULL},
    {"ISTIO_META_WORKLOAD_NAME", NULL},
    {"ISTIO_META_OWNER", NULL},
    {"ISTIO_KUBE_APP_PROBERS", NULL},
    {"ISTIO_PROMETHEUS_ANNOTATIONS", NULL},
    {"REWRITE_PROBE_LEGACY_LOCALHOST_DESTINATION", NULL},
    {"ISTIO_BOOTSTRAP_OVERRIDE", "/etc/istio/custom-bootstrap/custom_bootstrap.json"},
};

/* A pod that has another value is of another mesh. */
static const char of_mesh[] = "CA_ADDR,TRUST_DOMAIN,ISTIO_META_MESH_ID,ISTIO_META_CLUSTER_ID";

static bool is_written(const char *name, const char *value)
{
	for (unsigned i = 0; i < sizeof(written) / sizeof(*written); i++)
		if (!strcmp(written[i][0], name))
			return !written[i][1] || !strcmp(written[i][1], value);
	return false;
}

/* Puts what a node would see into `env`, if it saw it; -1: a word of another mesh. */
static int add(json_t *env, const char *name, const char *value, json_t *warnings, struct err *e)
{
	const char *told = json_string_value(json_object_get(env, name));
	char shown[100];

	if (is_written(name, value) || (told && !strcmp(told, value)))
		return 0;
	if (told && words_has(of_mesh, name))
		return refusal(name, value, told, e);
	if (told) /* what injection makes of it counts */
		return 0;
	json_object_set_new(env, name, json_string(value));
	json_array_append_new(warnings,
	    json_sprintf("variable %s of " INJECT_PROXY ": agentd does not see it; give it in "
			 "proxyMetadata",
		err_printable(shown, sizeof(shown), name, (unsigned)strlen(name))));
	return 0;
}

int inject_check_variables(const struct inject_config *c, const json_t *proxy,
    const json_t *attributes, json_t *warnings, struct err *e)
{
	json_t *env = json_copy((json_t *)attributes), *unsaid = json_array(), *v;
	int rc = 0;
	size_t i;

	json_array_foreach (json_object_get(proxy, "env"), i, v) {
		const char *name = inject_name_of(v);
		const char *value = json_string_value(json_object_get(v, "value"));

		if (!rc && *name && value)
			rc = add(env, name, value, warnings, e);
	}
	if (!rc && json_object_size(env) > json_object_size(attributes))
		rc = inject_check_node(c, env, unsaid, e);
	json_decref(unsaid);
	json_decref(env);
	return rc;
}
