/* traffic.h - the redirection of all pods' traffic: what a worker asks of it, and what it is told.
 *
 * asked for: rules are checked against the node's ceiling -> the pod's cgroup is there, or awaited
 * -> written: its processes dial through Envoy, a strict one is closed to others -> its network
 * namespace is learned: live.  A pod that was asked for by an earlier worker stays redirected.
 *
 * The pod itself holds its own state: pods/redirection.h.  This module holds what all pods share:
 * the programs, the notices, the audit.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/options.h"
#include "broker/netns/netns.h"
#include "common/err.h"

struct broker_pod;
struct pods;
struct redirect_traffic;

struct redirect_traffic_rig {
	int epoll;
	const struct broker_options *options;
	const struct netns_home *home;
	struct pods *pods;          /* freed before this */
	void (*changed)(void *ctx); /* redirect_traffic_next() has something to say */
	void *ctx;
};
struct redirect_traffic *redirect_traffic_new(
    const struct redirect_traffic_rig *rig, struct err *e);
void redirect_traffic_free(struct redirect_traffic **t); /* redirection goes on */

/* LINK_REDIRECT_SET and its memfd.  Accepted: LINK_REDIRECTED follows, now or when the cgroup is
 * there.  Either way the pod's DNS sockets end: the worker asks again when it knows what is in
 * force. */
int redirect_traffic_set(struct redirect_traffic *t, struct broker_pod *pod,
    const struct link_request *r, int memfd, struct err *e);
/* Its traffic is: it was asked for, by this worker or an earlier one. */
bool redirect_traffic_is_redirected(const struct redirect_traffic *t, const struct uuid *uid);
/* A refused pod can be closed all the same: only its Envoy hears from outside. */
bool redirect_traffic_is_closed(const struct redirect_traffic *t, const struct broker_pod *pod);
/* LINK_REDIRECT_SHUT.  Rules that stand stay. */
int redirect_traffic_shut(struct redirect_traffic *t, const struct uuid *pod, struct err *e);
/* LINK_REDIRECT_DEL.  EBUSY: the pod is there, and the ceiling lets nothing past Envoy. */
int redirect_traffic_end(struct redirect_traffic *t, const struct uuid *pod, struct err *e);
/* Whatever the ceiling is.  Also of a pod that only an earlier broker knew; unknown: nothing. */
void redirect_traffic_remove(struct redirect_traffic *t, const struct uuid *pod);
/* LINK_LISTEN of a DNS socket: pod_sockets_listen(). */
int redirect_traffic_listen(
    struct redirect_traffic *t, struct broker_pod *pod, unsigned kind, struct err *e);
/* LINK_REDIRECT_NAMES and its memfd. */
int redirect_traffic_names(struct redirect_traffic *t, int memfd, struct err *e);
/* Its network namespace was another one while no broker was here, and is no more. */
bool redirect_traffic_gone(const struct redirect_traffic *t, const struct uuid *pod);
/* The worker has asked for all there is: pods of earlier workers that nothing names go. */
void redirect_traffic_sweep(struct redirect_traffic *t);
/* LINK_REDIRECT_EXPLAIN: the verdict into reply->arg. */
int redirect_traffic_explain(struct redirect_traffic *t, const struct link_request *r, int memfd,
    struct link_packet *reply, struct err *e);

/* LINK_REDIRECT_TRACE: the end of a pipe to read from, the caller's; -1: refused. */
int redirect_traffic_trace(struct redirect_traffic *t, const struct link_request *r, struct err *e);

bool redirect_traffic_pending(const struct redirect_traffic *t);
/* False: nothing.  `fd` (or -1) is the caller's. */
bool redirect_traffic_next(struct redirect_traffic *t, struct link_packet *p, int *fd);
/* A worker came or went: the next one is told how much was repaired. */
void redirect_traffic_detach(struct redirect_traffic *t);
/* The map of the counters; it stays ours. */
int redirect_traffic_counters(const struct redirect_traffic *t, struct err *e);
