/* csi_volume.h - pods' volumes: each from the kubelet's first call to its last; a source of pods.
 *
 * One volume for a pod (security-rules.md 4).  Publish starts the pod's services, waits until its
 * containers may start (a strict pod's for its cgroup, at most 100 s) and a little for the first
 * certificate, keeps what a next worker needs, and has the broker mount.  A publish of a mounted
 * volume brings a token and is never refused for it (kubelet-csi.md 5).  Calls for one volume join
 * the same work; when the kubelet has given up all of them nothing is mounted.
 */
#pragma once
#include "csi_kept.h"
#include "csi_server.h"

struct csi_volumes;
struct loop;
struct pod_registry;
struct link;

struct csi_volumes_options {
	struct loop *loop;
	struct link *link;
	struct pod_registry *pods;
	int64_t publish_wait_ms; /* for the first certificate */
};
struct csi_volumes *csi_volumes_new(const struct csi_volumes_options *o);
/* After its calls are gone; its pods stay in the registry, as manifest_dir's do. */
void csi_volumes_free(struct csi_volumes **v);

/* Both take the call; publish takes what it can use of `p`.  An unpublish of what was never
 * published does nothing; of a published target under another id it is refused. */
void csi_volumes_publish(struct csi_volumes *v, struct csi_call *c, const struct csi_publish *p);
void csi_volumes_unpublish(
    struct csi_volumes *v, struct csi_call *c, const struct csi_unpublish *u);

/* What an earlier worker published; `kept` NULL: only its mount is left, and the kubelet's next
 * publish tells the rest.  -1: it is no pod; its mount is known all the same. */
int csi_volumes_adopt(struct csi_volumes *v, const struct csi_target *t,
    const struct csi_publish *kept, bool mounted, struct err *e);
void csi_volumes_synced(struct csi_volumes *v); /* that was all */

/* Of a pod, for agentctl: name, id, state, published, last_publish_age_s, waiting_calls, problem;
 * NULL: it has none. */
json_t *csi_volume_dump(const struct csi_volumes *v, const struct uuid *pod);
/* Those without a pod that is served, [{uid, volume, problem}]: they wait for the kubelet, or were
 * refused (then `pod`, too). */
json_t *csi_volumes_waiting(struct csi_volumes *v);
/* How many have a problem, of which `why` is one. */
unsigned csi_volumes_troubled(const struct csi_volumes *v, struct err *why);
void csi_volumes_measure(struct csi_volumes *v);
