/* runtime.h - Envoy's runtime flags: Istio's, what status.h lives on, and what the pod asks for
 * (istio-agent.md 8.4). */
#pragma once
#include <jansson.h>

struct node;

/* The layers, as `layered_runtime` has them. */
json_t *runtime_layers(const struct node *n);
