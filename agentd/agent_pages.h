/* agent_pages.h - what agentctl and Prometheus see of the worker; changes nothing. */
#pragma once

struct agent_csi;
struct agent_pages;
struct agent_shared;
struct config;
struct manifest_dir;
struct pod;
struct pod_registry;

/* All outlive the pages. */
struct agent_pages_of {
	const struct agent_shared *shared;
	const struct config *config;
	struct pod_registry *pods;
	const struct manifest_dir *manifests;
	const struct agent_csi *csi;
};
struct agent_pages *agent_pages_new(const struct agent_pages_of *of);
void agent_pages_stop_accepting(struct agent_pages *p); /* scrapes; NULL: none */
void agent_pages_free(struct agent_pages **p);

/* How a pod's samples begin: metrics_drop(). */
char *agent_pod_labels(const struct pod *p, char *out, unsigned size);
