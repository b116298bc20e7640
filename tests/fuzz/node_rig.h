/* node_rig.h - what the fuzz targets of Envoy's node and bootstrap share: a node and a pod. */
#pragma once
#include "common/err.h"
#include "tests/unit/worker/envoy/node_context.h"
#include "worker/envoy/bootstrap.h"
#include "worker/envoy/node.h"
#include "worker/pods/pod.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static inline void must(bool held)
{
	if (!held)
		abort();
}

static inline json_t *at(json_t *v, const char *key)
{
	return json_object_get(v, key);
}

/* The node of a pod with these keys alone in its environment; NULL: refused. */
static inline struct node *rig_node_of(json_t *env, bool machine, struct err *e)
{
	struct pod p = {.ns = "demo", .name = "web", .sa = "web", .env = env, .machine = machine};
	struct node *n;

	p.labels = json_object();
	p.annotations = json_object();
	n = node_new(&p, &node_context, e);
	json_decref(p.labels);
	json_decref(p.annotations);
	return n;
}

static inline struct node *rig_node(json_t *env, struct err *e)
{
	return rig_node_of(env, false, e);
}

static inline struct node *rig_machine(json_t *env, struct err *e)
{
	return rig_node_of(env, true, e);
}
