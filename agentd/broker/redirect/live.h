/* live.h - one pod's network namespace, from the moment it is learned: arrivals go to its Envoy.
 *
 * Each takes a pod whose rules were asked for (write.h), or does nothing.
 */
#pragma once
#include "border/rules.h"
#include "broker/netns/watch.h"

struct broker_pod;

/* Its Envoy connected from there.  Not written: nothing. */
void redirect_live_learned(struct broker_pod *pod);
/* One of its processes is in the node's own: it is never redirected, and the worker is told. */
void redirect_live_of_host(struct broker_pod *pod);
/* It is known, or changed. */
void redirect_live_in(struct broker_pod *pod, int netns);
/* It is not known, or not any more. */
void redirect_live_leave(struct broker_pod *pod);
int redirect_live_netns(const struct broker_pod *pod); /* where it is live; -1: it is not */

/* Does somebody else redirect its traffic, too?  Can it, refused before, be live now? */
void redirect_live_look(struct broker_pod *pod);
/* There is news of its Envoy's listeners; what else may be wrong is looked at in its time. */
void redirect_live_heard(struct broker_pod *pod);
unsigned redirect_live_note_of(const struct broker_pod *pod); /* link_redirect_note */

/* For netns_watch and pod_redirection. */
void redirect_live_on_seen(void *ctx, const struct netns_watch_seen *seen);
const struct redirect_rules *redirect_live_rules(void *ctx); /* as they are now; NULL: none */
void redirect_live_on_emptied(struct broker_pod *pod);       /* of its cgroup */
