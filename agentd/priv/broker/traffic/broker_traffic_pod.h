/* broker_traffic_pod.h - inside of broker_traffic*.c: the table of pods whose traffic is asked for.
 */
#pragma once
#include "broker/base/audit.h"
#include "broker/netns/watch.h"
#include "broker/pods/cgroup_await.h"
#include "broker_traffic.h"
#include "priv/broker/redirect/broker_redirect.h"
#include "priv/broker/redirect/broker_redirect_check.h"
#include "priv/broker/redirect/broker_redirect_trace.h"
#include <time.h>

struct traffic_pod {
	struct broker_traffic *traffic;
	struct uuid uid;
	struct redirect_rules *asked; /* NULL: written, and with the programs */
	struct cgroup_await await;    /* its cgroup, each that has its name */
	struct netns_watch view;      /* its network namespace, when that is known */
	uint32_t id;                  /* of the request; 0: nobody waits */
	bool done;                    /* to be told */
	bool claimed;                 /* asked for by the worker that runs */
	bool live, noted;             /* inbound, too; the worker is to be told so, or why not */
	struct broker_why live_why;
	struct broker_why why; /* code 0: written */
	struct traffic_pod *prev, *next;
};

struct broker_traffic {
	const struct broker_options *options;
	const struct netns_home *home;
	int epoll, cgroups;
	struct broker_redirect *redirect; /* NULL: without --redirect, or for `unable` */
	struct broker_why unable;
	struct broker_traces *traces;
	struct broker_redirect_ceiling ceiling;
	struct cgroup_awaits awaits;
	struct broker_audit audit;
	unsigned repaired;   /* since this broker began */
	bool repaired_noted; /* the worker is to be told */
	time_t looked_again;
	struct traffic_pod *pods;
	void (*changed)(void *ctx);
	int (*netns)(void *ctx, const struct uuid *pod, uint64_t cgroup);
	void *ctx;
};

struct traffic_pod *traffic_find(const struct broker_traffic *t, const struct uuid *uid);
__attribute__((format(printf, 2, 3))) void traffic_complain(
    const struct traffic_pod *p, const char *fmt, ...);

/* Its network namespace is known; is seen to have changed; is not known, or not any more. */
void traffic_live(struct traffic_pod *p, int netns);
void traffic_on_seen(void *ctx, const struct netns_watch_seen *seen);
const struct redirect_rules *traffic_rules(void *ctx); /* as they are now; NULL: none */
void traffic_leave(struct traffic_pod *p);
/* Does somebody else redirect what comes from a pod that is live?  Can one be that could not?  At
 * most every few seconds. */
void traffic_look_again(struct broker_traffic *t);
