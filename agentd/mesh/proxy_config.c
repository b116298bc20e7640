/* proxy_config.c - defaults <- PROXY_CONFIG <- annotation proxy.istio.io/config <- two annotations.
 *
 * Each document is parsed with all its scalars as text; true and false become booleans (as proto
 * JSON wants them) but inside maps of strings.  Numbers stay text, which proto JSON takes as well.
 * The whole goes to istiod inside the node metadata, fields of no use to agentd included: istiod
 * reads proxyHeaders, tracing and others there (istio-agent.md 10.3).
 */
#include "proxy_config.h"
#include "base/yaml.h"
#include "common/err.h"
#include "common/mem.h"
#include <stdbool.h>
#include <string.h>

/* istio-agent.md 8.7. */
static const char *const defaults[][2] = {
    {"configPath", "./etc/istio/proxy"},
    {"binaryPath", "/usr/local/bin/envoy"},
    {"serviceCluster", "istio-proxy"},
    {"drainDuration", "45s"},
    {"terminationDrainDuration", "5s"},
    {"proxyAdminPort", "15000"},
    {"controlPlaneAuthPolicy", "MUTUAL_TLS"},
    {"statNameLength", "189"},
    {"statusPort", "15020"},
};

/* Fields whose values are texts at any depth, so that "true" stays one. */
static bool holds_texts(const char *key)
{
	return !strcmp(key, "proxyMetadata") || !strcmp(key, "runtimeValues") ||
	       !strcmp(key, "customTags");
}

static json_t *typed(const json_t *v);

static json_t *typed_object(const json_t *v)
{
	json_t *out = json_object(), *value;
	const char *key;

	json_object_foreach ((json_t *)v, key, value)
		json_object_set_new(
		    out, key, holds_texts(key) ? json_deep_copy(value) : typed(value));
	return out;
}

static json_t *typed_array(const json_t *v)
{
	json_t *out = json_array(), *value;
	size_t i;

	json_array_foreach (v, i, value)
		json_array_append_new(out, typed(value));
	return out;
}

/* Recursion is bounded by the depth of base/yaml. */
static json_t *typed(const json_t *v)
{
	if (json_is_object(v))
		return typed_object(v);
	if (json_is_array(v))
		return typed_array(v);
	if (!strcmp(json_string_value(v), "true"))
		return json_true();
	if (!strcmp(json_string_value(v), "false"))
		return json_false();
	return json_deep_copy(v);
}

/* An unset field, in YAML's three spellings. */
static bool is_unset(const json_t *v)
{
	const char *s = json_string_value(v);

	return s && (!*s || !strcmp(s, "~") || !strcmp(s, "null"));
}

/* Proto JSON takes both spellings of a field; we want to look at one only. */
static char *camel_case(const char *key)
{
	char *out = mem_strdup(key), *to = out;

	for (const char *from = key; *from; from++)
		if (from[0] == '_' && from[1] >= 'a' && from[1] <= 'z')
			*to++ = (char)(*++from - 'a' + 'A');
		else
			*to++ = *from;
	*to = '\0';
	return out;
}

static int add_field(json_t *out, const char *key, const json_t *value, struct err *e)
{
	auto_free char *name = camel_case(key);
	char printable[80];

	if (is_unset(value))
		return 0;
	if (json_object_get(out, name)) {
		err_printable(printable, sizeof(printable), name, (unsigned)strlen(name));
		return err_set(e, ERR_INVALID, "%s is given twice", printable);
	}
	json_object_set_new(out, name, holds_texts(name) ? json_deep_copy(value) : typed(value));
	return 0;
}

static int add_fields(json_t *out, const struct yaml_doc *y, struct err *e)
{
	json_t *root = yaml_doc_root(y), *value;
	const char *key;

	if (!root || is_unset(root))
		return 0;
	if (!json_is_object(root))
		return err_set(e, ERR_INVALID, "not a map of fields");
	json_object_foreach (root, key, value)
		if (add_field(out, key, value, e))
			return -1;
	return 0;
}

/* One document onto what is there. */
static int overlay(json_t *config, const char *where, const char *text, struct err *e)
{
	struct yaml_doc *y = yaml_doc_parse(text, strlen(text), e);
	json_t *fields = json_object(), *old = json_object_get(config, "proxyMetadata");
	json_t *fresh;
	int rc = y ? add_fields(fields, y, e) : -1;

	yaml_doc_free(&y);
	fresh = json_object_get(fields, "proxyMetadata");
	if (!rc && json_is_object(old) && json_is_object(fresh))
		json_object_update_missing(fresh, old);
	if (!rc)
		json_object_update(config, fields);
	json_decref(fields);
	return rc ? err_wrap(e, "%s", where) : 0;
}

static void override(
    json_t *config, const char *field, const json_t *annotations, const char *annotation)
{
	json_t *v = json_object_get(annotations, annotation);

	if (v && json_string_length(v))
		json_object_set(config, field, v);
}

json_t *proxy_config_read(const char *env, const json_t *annotations, struct err *e)
{
	const char *annotation =
	    json_string_value(json_object_get(annotations, "proxy.istio.io/config"));
	json_t *config = json_object();

	if ((env && overlay(config, "PROXY_CONFIG", env, e)) ||
	    (annotation && overlay(config, "annotation proxy.istio.io/config", annotation, e))) {
		json_decref(config);
		return NULL;
	}
	override(config, "discoveryAddress", annotations, "sidecar.istio.io/discoveryAddress");
	override(config, "statusPort", annotations, "status.sidecar.istio.io/port");
	for (unsigned i = 0; i < sizeof(defaults) / sizeof(*defaults); i++)
		if (!json_object_get(config, defaults[i][0]))
			json_object_set_new(config, defaults[i][0], json_string(defaults[i][1]));
	if (json_object_get(config, "tracingServiceName")) /* one field of two names */
		json_object_del(config, "serviceCluster");
	return config;
}
