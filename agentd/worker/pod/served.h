/* served.h - what each pod had of the worker before, and whether it has that again.
 *
 * A row of rows.h says what the pod has of it (pod_services_has()).  What it has is kept beyond
 * this process, under the pod's uid.  So the next worker knows what a pod has *lost*: a row that it
 * had, and lacks now, for a reason that the row says; or all of them, if the pod is refused.
 *
 * A pod's own Envoy is its own: one that does not come back within four seconds has lost nothing by
 * us.  The same holds for what waits for the pod itself (ERR_UNAVAILABLE).
 *
 * The broker hears what is lost or not known yet, at each change (link_served()).  When that is
 * nothing this worker is *in charge*, for good: from now on what it gives is what counts.
 */
#pragma once
#include "base/loop.h"
#include "pod_services.h"
#include <jansson.h>

struct pod_registry;
struct pod_served;
struct uuid;

struct pod_served_of {
	struct loop *loop;
	struct link *link;
	const struct pod_service *const *rows; /* at most 32 */
	bool anyway;                           /* what is lost is said, and is no reason to wait */
};
struct pod_served *pod_served_new(const struct pod_served_of *of);
void pod_served_free(struct pod_served **s);

/* Reads what was kept, before there are pods.  `done` may free `s`. */
void pod_served_restore(struct pod_served *s, loop_cb done, void *ctx);
/* All pods are here. */
void pod_served_begin(struct pod_served *s, struct pod_registry *pods);
void pod_served_look(struct pod_served *s); /* now: the end is near */
void pod_served_forget(struct pod_served *s, const struct uuid *pod);

bool pod_served_is_in_charge(const struct pod_served *s);
/* [{pod, uid, service, why}]: of each pod the first thing that it lost and has not got back. */
json_t *pod_served_lost(const struct pod_served *s);
