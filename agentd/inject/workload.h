/* workload.h - the pods in an object of Kubernetes: of which kinds, where, and who owns them.
 *
 * Pod, Deployment, DaemonSet, StatefulSet, ReplicaSet, ReplicationController, Job, CronJob,
 * DeploymentConfig, and Lists of them (injection.md 8).  The pod template counts, also of a
 * CronJob. Other objects stay as they are.
 */
#pragma once
#include <jansson.h>
#include <stdbool.h>

struct err;
struct inject_config;

enum inject_action { INJECT_ADD, INJECT_TAKE_BACK, INJECT_CHECK };

/* `said` gets an object for each pod template: {"object": "Deployment \"demo/web\"", "owner":
 * {"kind", "namespace", "name"}, "injected": true, "rule": "by default", "skipped": "has host
 * networking enabled", "warnings": [..], "refused": ".."}; `skipped` and `refused` are there where
 * they apply.  `injected`: it is to be, or was. */
struct inject_work {
	const struct inject_config *config;
	enum inject_action action;
	json_t *said; /* array */
};

/* inject_pod() of a pod as an API server shows it, whose owner is read of it (injection.md 3); it
 * is to be in `ns`. */
json_t *inject_owned_pod(const struct inject_config *c, const json_t *pod, const char *ns,
    json_t *warnings, struct err *e);

bool inject_has_pods(const char *api_version, const char *kind); /* NULL is no */

/* A new object with its pods done; INJECT_CHECK changes nothing, and a refusal is only noted. NULL:
 * a pod is refused, and nothing of the object is done. */
json_t *inject_object(const struct inject_work *w, const json_t *object, struct err *e);
