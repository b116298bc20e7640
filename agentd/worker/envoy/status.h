/* status.h - the status port, answered by the pod's own Envoy: agentd is never asked.
 *
 * One static listener on PROXY_CONFIG.statusPort, with raw and exact paths; all others are 404.
 *
 * - /healthz/ready: 200 when CDS and LDS came and Envoy is live; 503 says why not.
 * - /metrics, /stats/prometheus: Envoy's page, then those of the app, the last one streamed.
 * - /quitquitquit, /drain, /drain/wait: for 127.0.0.1 and ::1 as the direct peer; others: 403.
 * - /app-health/..., /app-lifecycle/...: the declared probers, at the address that was asked.
 *
 * The listener on ENVOY_STATUS_PORT has /healthz/ready alone.  What a route does is in status.lua.
 * The pod's values are the route's metadata: no text of a pod is ever part of a program.
 * istio-agent.md 6.1, 6.2; status-listener.md 1-3.
 */
#pragma once
#include <jansson.h>

struct node;

/* Adds what the pod's settings ask for. */
void status_add_listeners(const struct node *n, json_t *listeners);
void status_add_clusters(const struct node *n, json_t *clusters);
/* Limits for the runtime's static layer: 64 connections to the status port. */
void status_add_limits(const struct node *n, json_t *layer);
/* Patterns of the statistics that it lives on; without them Envoy keeps none. */
void status_add_stats(const struct node *n, json_t *patterns);

/* Compressors for a page of metrics: [] or Envoy's brotli, zstd and gzip. */
json_t *status_compressors(const struct node *n);
