/* collectors.h - the clusters, tracer and sinks of what a pod's Envoy sends elsewhere
 * (collectors_asked.h): zipkin, datadog_agent, envoy_metrics_service, envoy_accesslog_service,
 * statsd.  The access log service is a cluster alone: istiod's listeners name it.
 *
 * istio-agent.md 8.4, 8.6.
 */
#pragma once
#include <jansson.h>

struct node;

/* Adds to static_resources.clusters, and `tracing` and `stats_sinks` to the bootstrap. */
void collectors_add(const struct node *n, json_t *bootstrap);
