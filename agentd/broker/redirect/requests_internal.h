/* requests_internal.h - the state of all pods that requests.c and live.c share. */
#pragma once
#include "broker/base/audit.h"
#include "broker/ebpf/news.h"
#include "broker/pods/cgroup_await.h"
#include "broker/pods/pods.h"
#include "check.h"
#include "common/err.h"
#include "redirect.h"
#include "requests.h"
#include "trace.h"
#include <time.h>

/* Pods that are shut, or will be as soon as their cgroup is there (shut.h): shut_pods.c. */
struct redirect_shut_pod;
struct redirect_shut_pods {
	struct broker_watch manifests; /* ready NULL: not open */
	bool followed;                 /* their directory, which may come later */
	struct redirect_shut_pod *list;
};

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
	struct redirect_shut_pods shuts;
	unsigned repaired;   /* since this broker began */
	bool repaired_noted; /* the worker is to be told */
	time_t looked_again;
};

/* Those of root's word, now and when a manifest comes, changes or goes. */
int redirect_shut_pods_open(struct redirect_requests *t, struct err *e);
void redirect_shut_pods_look(struct redirect_requests *t); /* is the directory there by now? */
void redirect_shut_pods_close(struct redirect_requests *t);
/* A strict pod was refused.  Known already: looked at once more. */
void redirect_shut_pods_add(struct redirect_requests *t, const struct uuid *uid);
/* With its cgroup at hand. */
void redirect_shut_pods_add_at(struct redirect_requests *t, const struct uuid *uid, int cgroup);
/* Its rules stay. */
void redirect_shut_pods_end(struct redirect_requests *t, const struct uuid *uid);
/* Or -1. */
int redirect_shut_pods_cgroup(const struct redirect_requests *t, const struct uuid *uid);

void redirect_requests_changed(struct broker_pod *pod); /* the worker may have to be told */
/* From now on the audit hears of the pod's pins. */
void redirect_requests_hear(struct redirect_requests *t, const struct uuid *uid);

/* Its network namespace is known; it changed; it is not known, or not any more. */
void redirect_requests_live_in(struct broker_pod *pod, int netns);
int redirect_requests_netns(const struct broker_pod *pod); /* where it is live; -1: it is not */
void redirect_requests_on_seen(void *ctx, const struct netns_watch_seen *seen);
void redirect_requests_leave(struct broker_pod *pod);
void redirect_requests_on_emptied(struct broker_pod *pod);       /* of its cgroup */
const struct redirect_rules *redirect_requests_rules(void *ctx); /* as they are now; NULL: none */
void redirect_requests_on_news(void *ctx, const struct uuid *uid, enum redirect_news_kind kind);
unsigned redirect_requests_note_of(const struct broker_pod *pod); /* link_redirect_note */
/* Does somebody else redirect the traffic of a live pod, too?  Can a refused pod be live now?  At
 * most every few seconds. */
void redirect_requests_look_again(struct redirect_requests *t);
