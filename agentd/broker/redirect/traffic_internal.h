/* traffic_internal.h - what all pods share, for the files that take a pod's steps: traffic.c what
 * the worker asks, write.c its rules, live.c its network namespace, tell.c who hears of it, all.c
 * all of them. */
#pragma once
#include "broker/base/audit.h"
#include "broker/ebpf/news.h"
#include "broker/pods/cgroup_await.h"
#include "broker/pods/pods.h"
#include "check.h"
#include "common/err.h"
#include "redirect.h"
#include "shut_pods.h"
#include "trace.h"
#include "traffic.h"
#include <time.h>

struct redirect_traffic {
	struct redirect_traffic_rig rig;
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

/* The pod changed: the worker may have to be told. */
void redirect_tell_worker(struct broker_pod *pod);
/* From now on the audit hears of the pod's pins, or of those of a directory. */
void redirect_tell_audit(struct redirect_traffic *t, const struct uuid *uid);
void redirect_tell_directory(void *ctx, const char *path);

/* Does somebody else redirect the traffic of a live pod, too?  Can a refused pod be live now?  At
 * most every few seconds. */
void redirect_traffic_look_again(struct redirect_traffic *t);
