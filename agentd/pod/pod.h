/* pod.h - the pods of this node: what they are and when they come and go.
 *
 * Sources (a directory of manifests; later the kubelet) add and remove; one observer (agent.c)
 * reacts.  Identity comes from the source only (security-rules.md G4); the environment is declared
 * by the pod's owner and is hostile until pod/node has read it.
 */
#pragma once
#include "../base/err.h"
#include "../base/uuid.h"
#include <jansson.h>
#include <stdbool.h>

struct pod_registry;
struct pod_services; /* the observer's own */

enum { POD_LABEL_SIZE = 64 + 254 };

struct pod {
	struct uuid uid;
	char ns[64], name[254], sa[254];
	char label[POD_LABEL_SIZE];         /* "ns/name": how logs and agentctl call it */
	json_t *env, *labels, *annotations; /* objects of strings, never NULL in the registry */
	json_t *redirect;                   /* the same: what the source says of its traffic */
	unsigned proxy_uid, proxy_gid;      /* of Envoy, default 1337 */
	char source[16];                    /* who announced it */
	struct err state;                   /* code 0: served; else why it is not */
	bool ready;
	bool told; /* pod_set_ready() was called */
	struct pod_registry *registry;
	struct pod_services *services;
	struct pod *next;
};

struct pod_observer {
	void (*added)(void *ctx, struct pod *p); /* ends in pod_set_ready() */
	void (*changed)(
	    void *ctx, struct pod *p); /* environment, labels or annotations; same identity */
	void (*removed)(void *ctx, struct pod *p); /* `p` dies when this returns */
	/* Once: the source has announced all it had at the start, and each pod is served or not.
	 * May be NULL. */
	void (*settled)(void *ctx);
};

struct pod_registry *pod_registry_new(const struct pod_observer *o, void *ctx);
/* Frees every pod and tells nobody: the end of agentd is not the end of a pod. */
void pod_registry_free(struct pod_registry **r);

/* Add, or change what is there; announcing the same again does nothing.  `spec` is copied (its json
 * is referenced; NULL: empty; proxy_uid/gid 0: default).  -1: refused, because a name is not valid,
 * the uid is another source's, or the identity differs from the one it was added with. */
int pod_add(struct pod_registry *r, const char *source, const struct pod *spec, struct err *e);
void pod_remove(struct pod_registry *r, const char *source, const struct uuid *uid);
void pod_registry_synced(struct pod_registry *r); /* the source has announced all it had */
void pod_set_ready(struct pod *p, const struct err *why_not); /* NULL: served */
struct pod *pod_find(const struct pod_registry *r, const struct uuid *uid);
struct pod *pod_first(const struct pod_registry *r); /* then pod->next; ordered by label */
