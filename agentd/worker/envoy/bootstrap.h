/* bootstrap.h - Envoy's bootstrap document for one pod.  Pure: same input, same bytes.
 *
 * istio-agent.md 8.2-8.4 as far as the features exist: node, clusters xds-grpc, sds-grpc, agent,
 * prometheus_stats, admin, ADS, listeners 15090 (/stats/prometheus) and 15021 (exactly
 * /healthz/ready, answered by Envoy's own admin /ready: no agentd needed for steady readiness).
 */
#pragma once
#include <stddef.h>

struct node;

/* JSON text, NUL-terminated, `*len` without the NUL; the caller frees it. */
char *bootstrap_render(const struct node *n, size_t *len);
