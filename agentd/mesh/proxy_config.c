/* proxy_config.c - defaults <- PROXY_CONFIG <- annotation proxy.istio.io/config <- two annotations.
 *
 * Each document is read as Go's YAML, and its fields as their types (proxy_fields.c).  The whole
 * goes to istiod inside the node metadata, fields of no use to agentd included: istiod reads
 * proxyHeaders, tracing and others there (istio-agent.md 10.3).
 */
#include "proxy_config.h"
#include "base/yaml.h"
#include "common/err.h"
#include "proxy_fields.h"
#include <stdlib.h>
#include <string.h>

static const char env_key[] = "PROXY_CONFIG";

/* istio-agent.md 8.7. */
static const char defaults[] =
    "{\"configPath\":\"./etc/istio/proxy\",\"binaryPath\":\"/usr/local/bin/envoy\","
    "\"serviceCluster\":\"istio-proxy\",\"drainDuration\":\"45s\","
    "\"terminationDrainDuration\":\"5s\",\"proxyAdminPort\":15000,"
    "\"controlPlaneAuthPolicy\":\"MUTUAL_TLS\",\"statNameLength\":189,\"statusPort\":15020}";

/* Takes the fields; NULL: they were refused. */
static int put_fields(json_t *config, json_t *fields)
{
	json_t *old = json_object_get(config, "proxyMetadata");
	json_t *fresh = json_object_get(fields, "proxyMetadata");
	int rc = fields ? 0 : -1;

	if (old && fresh)
		json_object_update_missing(fresh, old);
	json_object_update(config, fields);
	json_decref(fields);
	return rc;
}

/* One document onto what is there. */
static int overlay(json_t *config, const char *where, const char *text, struct err *e)
{
	json_t *document = yaml_typed(text, strlen(text), e);
	int rc;

	if (!document)
		return err_wrap(e, "%s", where);
	rc = put_fields(config, proxy_fields_read(where, document, e));
	json_decref(document);
	return rc;
}

/* Annotations of their own for two fields.  A port is read as Go's Atoi() does: "00" is 0. */
static int override(json_t *config, const json_t *annotations, struct err *e)
{
	json_t *given = json_object();
	json_t *address = json_object_get(annotations, "sidecar.istio.io/discoveryAddress");
	json_t *port = json_object_get(annotations, "status.sidecar.istio.io/port");
	const char *digits = port ? json_string_value(port) : "";
	int rc;

	if (address)
		json_object_set(given, "discoveryAddress", address);
	if (*digits && strlen(digits) < 10 && !digits[strspn(digits, "0123456789")])
		json_object_set_new(given, "statusPort", json_integer(strtol(digits, NULL, 10)));
	else if (*digits)
		json_object_set(given, "statusPort", port);
	rc = put_fields(config, proxy_fields_read(env_key, given, e));
	json_decref(given);
	return rc;
}

json_t *proxy_config_read(const char *env, const json_t *annotations, struct err *e)
{
	const char *annotation =
	    json_string_value(json_object_get(annotations, "proxy.istio.io/config"));
	json_t *config = json_object(), *more;

	if ((env && overlay(config, env_key, env, e)) ||
	    (annotation && overlay(config, "annotation proxy.istio.io/config", annotation, e)) ||
	    override(config, annotations, e)) {
		json_decref(config);
		return NULL;
	}
	more = json_loads(defaults, 0, NULL);
	json_object_update_missing(config, more);
	json_decref(more);
	if (json_object_get(config, "tracingServiceName")) /* one field of two names */
		json_object_del(config, "serviceCluster");
	return config;
}
