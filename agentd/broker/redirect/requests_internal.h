/* requests_internal.h - inside of requests.c and live.c: what is of all pods. */
#pragma once
#include "broker/base/audit.h"
#include "broker/pods/cgroup_await.h"
#include "broker/pods/pods.h"
#include "check.h"
#include "common/err.h"
#include "redirect.h"
#include "requests.h"
#include "trace.h"
#include <time.h>

struct redirect_requests {
	struct redirect_requests_rig rig;
	int cgroups;
	struct redirect *redirect; /* NULL: without --redirect, or for `unable` */
	struct err unable;
	struct redirect_traces *traces;
	struct redirect_ceiling ceiling;
	struct cgroup_awaits awaits;
	struct pod_sockets_rig dns;
	struct broker_audit audit;
	unsigned repaired;   /* since this broker began */
	bool repaired_noted; /* the worker is to be told */
	time_t looked_again;
};

void requests_changed(struct broker_pod *pod); /* the worker may have to be told */

/* Its network namespace is known; is seen to have changed; is not known, or not any more. */
void requests_live(struct broker_pod *pod, int netns);
void requests_on_seen(void *ctx, const struct netns_watch_seen *seen);
void requests_leave(struct broker_pod *pod);
void requests_on_emptied(struct broker_pod *pod);       /* of its cgroup */
const struct redirect_rules *requests_rules(void *ctx); /* as they are now; NULL: none */
/* Does somebody else redirect what comes from a pod that is live?  Can one be that could not?  At
 * most every few seconds. */
void requests_look_again(struct redirect_requests *t);
