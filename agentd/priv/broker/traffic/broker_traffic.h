/* broker_traffic.h - whose traffic is redirected, from the asking to the end: the request table's
 * side of broker_redirect.h.
 *
 * asked for: rules are checked against the node's ceiling -> the pod's cgroup is there, or awaited
 * -> written: its processes dial through Envoy, a strict one is closed to others -> its network
 * namespace is learned: live.  A pod that was asked for by an earlier worker stays redirected.
 */
#pragma once
#include "broker/base/options.h"
#include "broker/netns/netns.h"

struct broker_traffic;

struct broker_traffic_rig {
	int epoll;
	const struct broker_options *options;
	const struct netns_home *home;
	void (*changed)(void *ctx); /* broker_traffic_next() has something to say */
	/* The network namespace of the pod while it is in that cgroup; -1: not known yet. */
	int (*netns)(void *ctx, const struct uuid *pod, uint64_t cgroup);
	void *ctx;
};
struct broker_traffic *broker_traffic_new(
    const struct broker_traffic_rig *rig, struct broker_why *w);
void broker_traffic_free(struct broker_traffic **t); /* redirection goes on */

/* PRIV_REDIRECT_SET and its memfd.  Accepted: PRIV_REDIRECTED follows, now or when the cgroup is
 * there. */
int broker_traffic_set(
    struct broker_traffic *t, const struct priv_request *r, int memfd, struct broker_why *w);
void broker_traffic_remove(struct broker_traffic *t, const struct uuid *pod); /* unknown: nothing */
/* The pod's network namespace is known: its Envoy connected from there.  Not asked for: nothing. */
void broker_traffic_live(struct broker_traffic *t, const struct uuid *pod, int netns);
/* One of its processes is in the node's own: it is never redirected, and whoever looks is told. */
void broker_traffic_of_host(struct broker_traffic *t, const struct uuid *pod);
/* Its network namespace was another one while no broker was here, and is no more. */
bool broker_traffic_gone(const struct broker_traffic *t, const struct uuid *pod);
/* Nobody is in its cgroup any more: who comes next is another sandbox, and not live. */
void broker_traffic_emptied(struct broker_traffic *t, const struct uuid *pod);
/* The worker has asked for all there is: pods of earlier ones that nothing names go. */
void broker_traffic_sweep(struct broker_traffic *t);
/* PRIV_REDIRECT_EXPLAIN: the verdict into reply->arg. */
int broker_traffic_explain(struct broker_traffic *t, const struct priv_request *r, int memfd,
    struct priv_packet *reply, struct broker_why *w);

/* PRIV_REDIRECT_TRACE: the end of a pipe to read from, the caller's; -1: refused. */
int broker_traffic_trace(
    struct broker_traffic *t, const struct priv_request *r, struct broker_why *w);

bool broker_traffic_pending(const struct broker_traffic *t);
/* False: nothing.  `fd` (or -1) is the caller's. */
bool broker_traffic_next(struct broker_traffic *t, struct priv_packet *p, int *fd);
/* A worker came or went: nobody waits for what it asked. */
void broker_traffic_detach(struct broker_traffic *t);
/* pod_sockets.h: where a pod's DNS proxy listens, and whether somebody answers there. */
int broker_traffic_dns_place(
    const struct broker_traffic *t, const struct uuid *pod, uint16_t *port, struct broker_why *w);
int broker_traffic_dns_mark(struct broker_traffic *t, const struct uuid *pod, int socket,
    bool answered, struct broker_why *w);
/* The map of the counters; it stays ours. */
int broker_traffic_counters(const struct broker_traffic *t, struct broker_why *w);
