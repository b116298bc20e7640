/* stats.h - which statistics Envoy keeps, under which tags, in which buckets, how often it writes.
 *
 * Istio's own list, what status.h lives on, and what the pod asks for (istio-agent.md 8.5).
 */
#pragma once
#include <jansson.h>

struct node;

/* Adds stats_config and the two intervals to a bootstrap. */
void stats_add(const struct node *n, json_t *bootstrap);
