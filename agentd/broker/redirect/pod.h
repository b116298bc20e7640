/* pod.h - one pod's traffic: redirected, live, and not any more.
 *
 * The written state lies in the kernel: it outlives this process.
 */
#pragma once
#include "border/protocol.h"
#include "border/rules.h"
#include "broker/netns/watch.h"
#include "common/err.h"

struct redirect;
struct redirect_names_told;

struct redirect_where {
	int cgroup; /* the pod's, an open directory */
	int netns;  /* -1: not known yet */
};
/* Writes or changes the programs' knowledge of the pod.  Nothing from outside reaches the app of a
 * strict one unless it was steered to Envoy first.  `rules` were checked. */
int redirect_set(struct redirect *r, const struct uuid *pod, struct redirect_where at,
    const struct redirect_rules *rules, struct err *e);
/* `netns` is the pod's and not the host's: inbound connections go to Envoy from now on.  Call it
 * again when `seen` changes. */
int redirect_live(struct redirect *r, const struct uuid *pod, int netns,
    const struct netns_watch_seen *seen, struct err *e);
/* The pod's sandbox is gone: its network namespace is nobody's. */
void redirect_close(struct redirect *r, const struct uuid *pod);
/* Its arrivals go to its Envoy: this broker or an earlier one saw to it. */
bool redirect_is_steered(const struct redirect *r, const struct uuid *pod);
/* The network namespace where an earlier broker made it live is no more: nobody is left in it. */
bool redirect_gone(const struct redirect *r, const struct uuid *pod);
/* Its rules are the broker's own (shut.h), until redirect_set() with others. */
bool redirect_is_shut(const struct redirect *r, const struct uuid *pod);
/* Whoever listens in this cgroup hears nothing from outside but what was steered to an Envoy. */
bool redirect_is_closed(const struct redirect *r, int cgroup);
/* As they were set; valid as long as the pod is here.  NULL: not by this broker. */
const struct redirect_rules *redirect_rules(const struct redirect *r, const struct uuid *pod);
/* The DNS proxy's socket: the pod's queries may go there, or not any more. */
int redirect_answer(
    struct redirect *r, const struct uuid *pod, int socket, bool answered, struct err *e);
/* Both of its sockets are there: from now on its resolver is not believed all it says. */
int redirect_answered(struct redirect *r, const struct uuid *pod, struct err *e);
/* What istiod told any pod of the node: its denials by others are not believed while nobody answers
 * DNS. */
int redirect_names_put(struct redirect *r, const struct redirect_names_told *names, struct err *e);
/* Nothing names it any more: it is redirected until another pod has its cgroup, in one step. */
void redirect_leave(struct redirect *r, const struct uuid *pod);
/* Also of a pod that only an earlier broker knew; not there: nothing. */
void redirect_remove(struct redirect *r, const struct uuid *pod);
/* Calls `each` for every pod that has pins. */
void redirect_pods(struct redirect *r, void (*each)(void *ctx, const struct uuid *pod), void *ctx);

/* The pod's row of counters, 1 and on, and its baseline; 0: unknown. */
uint32_t redirect_counted(
    const struct redirect *r, const struct uuid *pod, struct redirect_counters *baseline);

/* The pods that have pins: their links get the current programs, and remains of no pod go. */
void redirect_pods_adopt(struct redirect *r);
