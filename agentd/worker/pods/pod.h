/* pod.h - the pods of this node: what they are and when they come and go.
 *
 * Sources (a directory of manifests, the kubelet's volumes) add and remove; one observer (agent.c)
 * reacts, and tells how far it came.  Identity comes from the source only (security-rules.md G4);
 * the environment is declared by the pod's owner and is hostile until mesh/node has read
 * it.
 */
#pragma once
#include "common/err.h"
#include "mesh/pod.h"
#include <stdbool.h>

struct pod;
struct pod_registry;
struct pod_services; /* the observer's own */

/* Who announces pods.  Outlives them; embed it with the rest zeroed. */
struct pod_source {
	const char *name;
	/* May be NULL: `told`, `may_start` or `certified` of one of its pods changed.  May run
	 * inside pod_add(), and must not remove the pod. */
	void (*progress)(void *ctx, struct pod *p);
	void *ctx;
	bool synced; /* pod.c's own */
	struct pod_source *next;
};

struct pod {
	struct pod_spec spec; /* what its source declares; no field of it is NULL but the token */
	struct pod_source *source; /* who announced it */
	struct err state; /* code 0: served in full; else why not; ERR_UNAVAILABLE: not yet */
	struct err away;  /* why its Envoy cannot be served, whatever we do; code 0: it can */
	bool ready;       /* neither */
	bool told;        /* pod_set_ready() or pod_set_degraded() was called */
	bool may_start;   /* what its containers need is there, or will not come */
	bool certified;   /* there was a certificate */
	struct pod_registry *registry;
	struct pod_services *services;
	struct pod *next;
};

struct pod_observer {
	void (*added)(void *ctx, struct pod *p); /* ends in pod_set_ready() */
	void (*changed)(
	    void *ctx, struct pod *p); /* environment, labels or annotations; same identity */
	void (*token)(void *ctx, struct pod *p);   /* the source has another one */
	void (*removed)(void *ctx, struct pod *p); /* `p` dies when this returns */
	/* Once: the sources have announced all they had at the start, and each pod is served or
	 * not.  May be NULL. */
	void (*settled)(void *ctx);
};

struct pod_registry *pod_registry_new(const struct pod_observer *o, void *ctx);
/* Frees every pod and tells nobody: the end of agentd is not the end of a pod. */
void pod_registry_free(struct pod_registry **r);

/* Before any pod of it. */
void pod_source_add(struct pod_registry *r, struct pod_source *source);
/* Adds a pod or changes it; the same announcement again does nothing.  `spec` is copied (its json
 * is referenced; NULL: empty; proxy_uid/gid 0: default; its token counts for a new pod only). -1:
 * refused, because a name is not valid, the uid is another source's, or the identity differs from
 * the one it was added with. */
int pod_add(
    struct pod_registry *r, struct pod_source *source, const struct pod_spec *spec, struct err *e);
void pod_set_token(struct pod *p, const char *token);
void pod_remove(struct pod_registry *r, const struct pod_source *source, const struct uuid *uid);
/* The source has announced all it had. */
void pod_registry_synced(struct pod_registry *r, struct pod_source *source);
bool pod_registry_is_settled(const struct pod_registry *r); /* observer.settled has run */

/* Called by the observer. */
void pod_set_ready(struct pod *p, const struct err *why_not); /* NULL: served; else not to start */
void pod_set_degraded(struct pod *p, const struct err *why);  /* it may start all the same */
void pod_set_certified(struct pod *p);
void pod_set_away(struct pod *p, const struct err *why); /* NULL: it is served */
const char *pod_why_not(const struct pod *p);            /* "": it is ready */

struct pod *pod_find(const struct pod_registry *r, const struct uuid *uid);
struct pod *pod_first(const struct pod_registry *r); /* then pod->next; ordered by label */
