/* pages.h - what agentctl and Prometheus see of the worker; changes nothing. */
#pragma once
#include <stdint.h>

struct heartbeat;
struct kubelet;
struct pages;
struct agent_shared;
struct config;
struct manifest_dir;
struct pod;
struct pod_registry;

/* All outlive the pages. */
struct pages_of {
	const struct agent_shared *shared;
	const struct config *config;
	struct pod_registry *pods;
	const struct manifest_dir *manifests;
	const struct kubelet *kubelet;
	struct heartbeat *broker;
	int64_t started_ms; /* of the loop's clock */
};
struct pages *pages_new(const struct pages_of *of);
void pages_stop_accepting(struct pages *p); /* scrapes; NULL: none */
void pages_free(struct pages **p);

/* How a pod's samples begin: metrics_drop(). */
char *pages_pod_labels(const struct pod *p, char *out, unsigned size);
