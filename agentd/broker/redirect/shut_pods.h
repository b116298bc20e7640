/* shut_pods.h - the strict pods that are shut while a broker runs, or will be as soon as their
 * cgroup is there (shut.h).
 *
 * It is a set: who is in it is root's word (a manifest) or that rules were refused.
 */
#pragma once
#include "broker/base/audit.h"
#include "broker/base/loop.h"
#include "broker/base/options.h"
#include "broker/pods/cgroup_await.h"
#include "ceiling.h"
#include "common/err.h"
#include "common/uuid.h"

struct redirect;
struct redirect_shut_pod;

/* Filled in by its owner, the rest zeroed; all that it points to outlives it. */
struct redirect_shut_pods {
	int epoll;
	const struct broker_options *options;
	const struct redirect_ceiling *ceiling; /* the node's */
	struct redirect *redirect;
	struct cgroup_awaits *awaits;
	struct broker_audit *audit;
	/* Has a worker asked for its rules?  Then it is not shut. */
	bool (*is_asked_for)(void *ctx, const struct uuid *pod);
	void (*shut)(void *ctx, const struct uuid *pod); /* its pins may have changed */
	void (*gone)(void *ctx, const struct uuid *pod); /* its manifest; it is still in the set */
	void *ctx;

	struct broker_watch manifests; /* shut_pods.c's own; ready NULL: not open */
	bool followed;                 /* their directory, which may come later */
	struct redirect_shut_pod *list;
};

/* Those of root's word, now and when a manifest comes, changes or goes. */
int redirect_shut_pods_open(struct redirect_shut_pods *all, struct err *e);
void redirect_shut_pods_look(struct redirect_shut_pods *all); /* is the directory there by now? */
void redirect_shut_pods_close(struct redirect_shut_pods *all);
/* A strict pod was refused.  Known already: looked at once more. */
void redirect_shut_pods_add(struct redirect_shut_pods *all, const struct uuid *uid);
/* With its cgroup at hand. */
void redirect_shut_pods_add_at(struct redirect_shut_pods *all, const struct uuid *uid, int cgroup);
/* Its rules stay. */
void redirect_shut_pods_end(struct redirect_shut_pods *all, const struct uuid *uid);
/* Or -1. */
int redirect_shut_pods_cgroup(const struct redirect_shut_pods *all, const struct uuid *uid);
