/* redirect_requests_pod.h - inside of redirect_requests*.c: the table of pods whose traffic is
 * asked for.
 */
#pragma once
#include "broker/base/audit.h"
#include "broker/netns/watch.h"
#include "broker/pods/cgroup_await.h"
#include "check.h"
#include "common/err.h"
#include "common/protocol.h"
#include "redirect.h"
#include "requests.h"
#include "trace.h"
#include <time.h>

struct traffic_pod {
	struct redirect_requests *traffic;
	struct uuid uid;
	struct redirect_rules *asked; /* NULL: written, and with the programs */
	struct cgroup_await await;    /* its cgroup, each that has its name */
	struct netns_watch view;      /* its network namespace, when that is known */
	uint32_t id;                  /* of the request; 0: nobody waits */
	bool done;                    /* to be told */
	bool claimed;                 /* asked for by the worker that runs */
	bool live, noted;             /* inbound, too; the worker is to be told so, or why not */
	struct err live_why;
	struct err why; /* code 0: written */
	struct traffic_pod *prev, *next;
};

struct redirect_requests {
	const struct broker_options *options;
	const struct netns_home *home;
	int epoll, cgroups;
	struct redirect *redirect; /* NULL: without --redirect, or for `unable` */
	struct err unable;
	struct redirect_traces *traces;
	struct redirect_ceiling ceiling;
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

struct traffic_pod *requests_find(const struct redirect_requests *t, const struct uuid *uid);
__attribute__((format(printf, 2, 3))) void traffic_complain(
    const struct traffic_pod *p, const char *fmt, ...);

/* Its network namespace is known; is seen to have changed; is not known, or not any more. */
void requests_live(struct traffic_pod *p, int netns);
void requests_on_seen(void *ctx, const struct netns_watch_seen *seen);
const struct redirect_rules *requests_rules(void *ctx); /* as they are now; NULL: none */
void requests_leave(struct traffic_pod *p);
/* Does somebody else redirect what comes from a pod that is live?  Can one be that could not?  At
 * most every few seconds. */
void requests_look_again(struct redirect_requests *t);
