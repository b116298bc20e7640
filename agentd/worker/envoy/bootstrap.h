/* bootstrap.h - Envoy's bootstrap document for one pod.  Pure: same input, same bytes.
 *
 * istio-agent.md 8.2-8.4 as far as the features exist: node, clusters xds-grpc, sds-grpc, agent,
 * prometheus_stats, admin, ADS, listeners 15090 (/stats/prometheus), 15021 and 15020 (status.h).
 */
#pragma once
#include <stddef.h>

struct node;

/* JSON text, NUL-terminated, `*len` without the NUL; the caller frees it. */
char *bootstrap_render(const struct node *n, size_t *len);
