/* stats_asked.h - what a pod asks of Envoy's statistics, read once when it comes.  Pure.
 *
 * An annotation of sidecar.istio.io/ wins over the field of ProxyConfig of the same meaning; tags
 * of both are taken (istio-agent.md 8.5).
 */
#pragma once
#include <jansson.h>

struct err;

enum { STATS_ASKED_ENTRIES_MAX = 64, STATS_ASKED_TEXT_MAX = 256, STATS_ASKED_BUCKETS_MAX = 64 };

/* {"prefix": [..], "suffix": [..], "regex": [..], "tags": [..], "buckets": {prefix: [1, 2.5]},
 * "flush_ms": 5000, "eviction_ms": 60000}; the last three only if they are asked for.  NULL:
 * refused, with the key and what is allowed. */
json_t *stats_asked_read(const json_t *proxy_config, const json_t *annotations, struct err *e);

/* `text` with `ip` in the place of each {pod_ip}; the caller frees it. */
char *stats_asked_with(const char *text, const char *ip);
