/* node_context.h - the node that pods of tests and of fuzz targets are on.
 *
 * Plane 0 is istiod.istio-system.svc:15012 (all values known), plane 1 other.example:15012 (trust
 * domain and mesh id not).
 */
#pragma once
#include "mesh/node.h"

static const struct node_plane node_context_planes[] = {
    {.address = "istiod.istio-system.svc:15012",
	.server_name = "istiod.istio-system.svc",
	.trust_domain = "cluster.local",
	.cluster_id = "Kubernetes",
	.mesh_id = "mesh1"},
    {.address = "other.example:15012",
	.server_name = "other.example",
	.trust_domain = "",
	.cluster_id = "east",
	.mesh_id = ""},
};

static const struct node_context node_context = {
    .planes = node_context_planes,
    .nplanes = 2,
    .node_name = "node-1",
    .istio_namespace = "istio-system",
    .cluster_domain = "cluster.local",
    .both_families = true,
    .version = "0.1.0",
    .ttl_min_s = 3600,
    .ttl_max_s = 86400,
};
