/* agent_csi.h - the node's kubelet: its volumes restored, its calls served. */
#pragma once
#include <jansson.h>

struct agent_csi;
struct agent_shared;
struct config;
struct pod_registry;
struct uuid;

/* NULL: this node has no kubelet.  Before anybody said that all pods are known. */
struct agent_csi *agent_csi_new(
    const struct agent_shared *a, const struct config *c, struct pod_registry *pods);
void agent_csi_free(struct agent_csi **c);
void agent_csi_stop_accepting(struct agent_csi *c);

/* All accept NULL. */
json_t *agent_csi_dump_volume(const struct agent_csi *c, const struct uuid *pod); /* or NULL */
json_t *agent_csi_dump_waiting(const struct agent_csi *c);
json_t *agent_csi_dump(const struct agent_csi *c); /* of the socket, for /status */
void agent_csi_measure(const struct agent_csi *c);
