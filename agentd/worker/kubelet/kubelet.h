/* kubelet.h - the node's kubelet: its volumes restored, its calls served. */
#pragma once
#include "common/err.h"
#include <jansson.h>
#include <stdint.h>

struct kubelet;
struct link;
struct loop;
struct pod_registry;
struct rpc;
struct uuid;

/* All of it outlives the kubelet. */
struct kubelet_options {
	struct loop *loop;
	struct link *link;
	struct rpc *rpc;
	struct pod_registry *pods;
	const char *node_name;
	int64_t publish_wait_ms; /* for the first certificate; then the pod starts without */
};
/* NULL: this node has no kubelet.  Before anybody said that all pods are known. */
struct kubelet *kubelet_new(const struct kubelet_options *o);
void kubelet_free(struct kubelet **c);
void kubelet_stop_accepting(struct kubelet *c);

/* All accept NULL. */
const char *kubelet_why_not(const struct kubelet *c); /* NULL: registered, or there is none */
json_t *kubelet_dump_volume(const struct kubelet *c, const struct uuid *pod); /* or NULL */
json_t *kubelet_dump_waiting(const struct kubelet *c);
/* Volumes with a problem, of which `why` is one. */
unsigned kubelet_troubled(const struct kubelet *c, struct err *why);
json_t *kubelet_dump(const struct kubelet *c); /* of the socket, for /status */
void kubelet_measure(const struct kubelet *c);
