/* listeners.h - an Envoy that listened before its pod's rules came.
 *
 * Sockets that are bound under the rules are marked by the programs (ebpf/listeners.bpf.h).
 * Earlier ones are looked for in the pod's network namespace: the kernel lists the proxy uid's
 * sockets on its two ports.  It lists no gid: restart a proxy that is known by its group alone.
 * Connections that were accepted earlier go on as they were.
 *
 * One that listened and does not any more is looked for at once, when a connection finds none:
 * another one of its group may be there.  Until then, and without any, clients are refused.
 *
 * A pod may listen as often as it likes, so lines, sockets and tries are bounded, and a look by 20
 * ms of this thread's own time: the next look goes on.
 */
#pragma once
#include "table.h"

/* Marks the sockets of this proxy, and puts the inbound one into the map of listeners.  In the
 * node's own namespace, and on a kernel that cannot: nothing. */
enum redirect_look {
	REDIRECT_LOOK_IN_VAIN,
	REDIRECT_LOOK_FOUND,
	REDIRECT_LOOK_DONE, /* both ports have some, and all were known: nothing more to look for */
};
enum redirect_look ebpf_listeners_find(
    struct redirect *r, const struct redirect_pod *entry, int netns);

/* Is a process in the cgroup that may listen already? */
bool ebpf_listeners_possible(int cgroup);
/* The programs told it.  `netns`: where it is live; -1: it is not. */
void ebpf_listeners_news(
    struct redirect *r, const struct uuid *pod, int netns, enum redirect_news_kind kind);
/* -1, ECONNREFUSED: its Envoy listened, and does not any more. */
int ebpf_listeners_check(struct redirect *r, const struct uuid *pod, struct err *e);
bool ebpf_listeners_known(const struct redirect *r, uint32_t index); /* one of the pod's is */

/* As long as the pod is `late`; in vain: after 10 s, then 20, up to some minutes. */
void ebpf_listeners_look(struct redirect *r, struct redirect_pod_state *p, int netns);
