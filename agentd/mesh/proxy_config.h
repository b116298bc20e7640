/* proxy_config.h - istio.mesh.v1alpha1.ProxyConfig from a pod's environment and annotations.
 *
 * Defaults, then PROXY_CONFIG, then the annotation proxy.istio.io/config (fields are replaced,
 * proxyMetadata is merged), then the annotations for address and status port (istio-agent.md 8.7).
 * Both documents are YAML or JSON; each field has its type (proxy_fields.h).  What a value may be
 * beyond that is checked by mesh/env.
 */
#pragma once
#include <jansson.h>

struct err;

/* In proto JSON: durations are texts.  NULL: refused, by the field's path. */
json_t *proxy_config_read(const char *env, const json_t *annotations, struct err *e);
