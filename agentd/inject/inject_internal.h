/* inject_internal.h - one pod on its way through the files of this room. */
#pragma once
#include "config.h"
#include "inject.h"

#define INJECT_PROXY "istio-proxy"
#define INJECT_VOLUME "agentd"
#define INJECT_DRIVER "agentd.node.mesh"
#define INJECT_STATUS "sidecar.istio.io/status"
#define INJECT_OVERRIDES "proxy.istio.io/overrides"
#define INJECT_WISH "sidecar.istio.io/inject"
#define INJECT_CONFIG "proxy.istio.io/config"
#define INJECT_USER_VOLUME "sidecar.istio.io/userVolume"
#define INJECT_USER_MOUNT "sidecar.istio.io/userVolumeMount"
#define INJECT_TARGETS "prometheus.istio.io/scrape-targets"
#define INJECT_REWRITE "sidecar.istio.io/rewriteAppHTTPProbers"

struct inject_job {
	const struct inject_config *config;
	const struct inject_owner *owner;
	json_t *pod, *metadata, *spec; /* becomes the result */
	json_t *annotations, *labels;  /* of the pod as it came; objects, borrowed */
	json_t *proxy_config;          /* mesh <- annotation, in proto JSON; without defaults */
	json_t *own_proxy;             /* the pod's own container istio-proxy, or NULL */
	json_t *user_volumes;          /* of sidecar.istio.io/userVolume; array */
	json_t *user_mounts;
	char *image, *status_port, *mesh_status_port;
	bool native, hold, rewrite, merge;
};

/* job.c: what of it is asked for in several places. */
/* An annotation's text; NULL: it is not there.  "" counts as there. */
const char *inject_annotation(const struct inject_job *j, const char *name);
/* The same, else a value's text, else `otherwise`; the caller frees it. */
char *inject_annotation_or(
    const struct inject_job *j, const char *name, const char *value_path, const char *otherwise);
/* A field of the effective ProxyConfig, else its default; the caller frees it. */
char *inject_proxy_field(const struct inject_job *j, const char *path, const char *otherwise);
const char *inject_name_of(const json_t *thing); /* "" has none */
json_t *inject_named(const json_t *list, const char *name);
json_t *inject_own_proxy(
    const json_t *spec); /* of either list of containers; NULL: there is none */
/* The keys of an object, in its order, with commas between; the caller frees it. */
char *inject_joined(const json_t *set);
/* Go's boolean: is it one, and false? */
bool inject_is_false(const char *text);
/* A map or list to add to, borrowed; what was null or missing becomes `empty`, which is taken. */
json_t *inject_part(json_t *o, const char *key, json_t *empty);

/* shape.c: after it each member that is read has the type that the API says. */
int inject_check_shape(const json_t *pod, struct err *e);

/* refusal.c: host network, sandbox, template, volumes, annotations. */
int inject_check_names(const struct inject_job *j, struct err *e);
/* One of ours without readOnly, or another CA's. */
int inject_check_volumes(const json_t *spec, struct err *e);

/* wishes.c: fills the job's last members from annotations, mesh and values; refuses by name. */
int inject_read_wishes(struct inject_job *j, struct err *e);

/* annotations.c: what istiod's injector checks (injection.md 6). */
int inject_check_annotations(const json_t *annotations, struct err *e);
void inject_warn_annotations(const json_t *annotations, json_t *warnings); /* without effect */

/* proxy.c: the container istio-proxy, without what the pod says of it. */
json_t *inject_proxy_container(const struct inject_job *j);
json_t *inject_resources(const struct inject_job *j);
long inject_cores(const json_t *resources); /* of the CPU limit, rounded up; 0: none */

/* labels.c: those that are added; the caller frees it. */
json_t *inject_labels(const struct inject_job *j);

/* attributes.c: those of the volume. */
json_t *inject_attributes(const struct inject_job *j, const json_t *labels_added);
json_t *inject_mesh_attributes(const struct inject_config *c); /* those that are the mesh's alone */
char *inject_istiod(
    const struct inject_config *c); /* HOST:PORT of the chart; the caller frees it */

/* overlay.c: a container over another one, as Kubernetes merges them (injection.md 4). */
json_t *inject_overlay(const json_t *under, const json_t *over);

/* undo.c: the status, and what takes it back. */
json_t *inject_status(const json_t *before, const struct inject_job *j, json_t *probes);

/* probes.c: what the kubelet and Prometheus ask of the app. */
char *inject_probe_ports(const struct inject_job *j); /* "" none */
char *inject_probers(const struct inject_job *j);     /* JSON; NULL: none */
enum { INJECT_PROBED = 4 };
extern const char *const inject_probed[INJECT_PROBED]; /* members that may be rewritten */
void inject_rewrite_probes(struct inject_job *j, json_t *was);
/* As inject_probers() says; how many it were. */
unsigned inject_restore_probes(json_t *spec, const json_t *probers);
char *inject_scrape(const struct inject_job *j); /* JSON; NULL: none */
void inject_merge_metrics(struct inject_job *j, json_t *annotations);

/* node.c: what a node would refuse at mount, and what it would ignore. */
int inject_check_node(
    const struct inject_config *c, const json_t *attributes, json_t *warnings, struct err *e);

/* variables.c: those of a container istio-proxy that are not among the attributes. */
int inject_check_variables(const struct inject_config *c, const json_t *proxy,
    const json_t *attributes, json_t *warnings, struct err *e);

/* write.c: the job's pod becomes the result; `before` is the pod as it came. */
void inject_write(
    struct inject_job *j, const json_t *before, const json_t *labels_added, json_t *attributes);
