/* requests.h - one pod's redirection from the asking to the end: the request table's side of
 * redirect.h.
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
struct redirect_requests;

struct redirect_requests_rig {
	int epoll;
	const struct broker_options *options;
	const struct netns_home *home;
	struct pods *pods;          /* freed before this */
	void (*changed)(void *ctx); /* redirect_requests_next() has something to say */
	void *ctx;
};
struct redirect_requests *redirect_requests_new(
    const struct redirect_requests_rig *rig, struct err *e);
void redirect_requests_free(struct redirect_requests **t); /* redirection goes on */

/* LINK_REDIRECT_SET and its memfd.  Accepted: LINK_REDIRECTED follows, now or when the cgroup is
 * there.  Either way the pod's DNS sockets end: the worker asks again when it knows what is in
 * force. */
int redirect_requests_set(struct redirect_requests *t, struct broker_pod *pod,
    const struct link_request *r, int memfd, struct err *e);
/* Its traffic is: it was asked for, by this worker or an earlier one. */
bool redirect_requests_is_redirected(const struct redirect_requests *t, const struct uuid *uid);
/* A refused pod can be closed all the same: only its Envoy hears from outside. */
bool redirect_requests_is_closed(const struct redirect_requests *t, const struct broker_pod *pod);
/* LINK_REDIRECT_SHUT.  Rules that stand stay. */
int redirect_requests_shut(struct redirect_requests *t, const struct uuid *pod, struct err *e);
/* LINK_REDIRECT_DEL.  EBUSY: the pod is there, and the ceiling lets nothing past Envoy. */
int redirect_requests_end(struct redirect_requests *t, const struct uuid *pod, struct err *e);
/* Whatever the ceiling is.  Also of a pod that only an earlier broker knew; unknown: nothing. */
void redirect_requests_remove(struct redirect_requests *t, const struct uuid *pod);
/* LINK_LISTEN of a DNS socket: pod_sockets_listen(). */
int redirect_requests_listen(
    struct redirect_requests *t, struct broker_pod *pod, unsigned kind, struct err *e);
/* LINK_REDIRECT_NAMES and its memfd. */
int redirect_requests_names(struct redirect_requests *t, int memfd, struct err *e);
/* The pod's network namespace is known: its Envoy connected from there.  Not asked for: nothing. */
void redirect_requests_live(struct broker_pod *pod);
/* One of its processes is in the node's own: it is never redirected, and whoever looks is told. */
void redirect_requests_of_host(struct broker_pod *pod);
/* Its network namespace was another one while no broker was here, and is no more. */
bool redirect_requests_gone(const struct redirect_requests *t, const struct uuid *pod);
/* The worker has asked for all there is: pods of earlier workers that nothing names go. */
void redirect_requests_sweep(struct redirect_requests *t);
/* LINK_REDIRECT_EXPLAIN: the verdict into reply->arg. */
int redirect_requests_explain(struct redirect_requests *t, const struct link_request *r, int memfd,
    struct link_packet *reply, struct err *e);

/* LINK_REDIRECT_TRACE: the end of a pipe to read from, the caller's; -1: refused. */
int redirect_requests_trace(
    struct redirect_requests *t, const struct link_request *r, struct err *e);

bool redirect_requests_pending(const struct redirect_requests *t);
/* False: nothing.  `fd` (or -1) is the caller's. */
bool redirect_requests_next(struct redirect_requests *t, struct link_packet *p, int *fd);
/* A worker came or went: the next one is told how much was repaired. */
void redirect_requests_detach(struct redirect_requests *t);
/* The map of the counters; it stays ours. */
int redirect_requests_counters(const struct redirect_requests *t, struct err *e);
