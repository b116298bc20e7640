/* node_rig.h - what the fuzz targets of Envoy's node and bootstrap share: a node and a pod. */
#pragma once
#include "common/err.h"
#include "mesh/node.h"
#include "mesh/pod.h"
#include "worker/envoy/bootstrap.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void must(bool held);
json_t *at(json_t *v, const char *key);
/* The node of a pod with these keys alone in its environment; NULL: refused. */
struct node *rig_node(json_t *env, struct err *e);
struct node *rig_machine(json_t *env, struct err *e);
