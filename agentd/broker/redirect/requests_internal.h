/* requests_internal.h - the state of all pods that requests.c and live.c share. */
#pragma once
#include "broker/base/audit.h"
#include "broker/pods/cgroup_await.h"
#include "broker/pods/pods.h"
#include "check.h"
#include "common/err.h"
#include "news.h"
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
	struct redirect_news_ring *news;
	struct redirect_ceiling ceiling;
	char kubelet[POD_CGROUP_TOP_SIZE], trees[KUBEPODS_SIZE]; /* redirect_place's */
	struct cgroup_awaits awaits;
	struct pod_sockets_rig dns;
	struct broker_audit audit;
	unsigned repaired;   /* since this broker began */
	bool repaired_noted; /* the worker is to be told */
	time_t looked_again;
};

void requests_changed(struct broker_pod *pod); /* the worker may have to be told */

/* Its network namespace is known; it changed; it is not known, or not any more. */
void requests_live(struct broker_pod *pod, int netns);
void requests_on_seen(void *ctx, const struct netns_watch_seen *seen);
void requests_leave(struct broker_pod *pod);
void requests_on_emptied(struct broker_pod *pod);       /* of its cgroup */
const struct redirect_rules *requests_rules(void *ctx); /* as they are now; NULL: none */
void requests_on_news(void *ctx, const struct uuid *uid, enum redirect_news_kind kind);
unsigned requests_note_of(const struct broker_pod *pod); /* link_redirect_note */
/* Does somebody else redirect the traffic of a live pod, too?  Can a refused pod be live now?  At
 * most every few seconds. */
void requests_look_again(struct redirect_requests *t);
