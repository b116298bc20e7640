/* peer.h - somebody in a network namespace of its own who connects to the pod's socket.
 *
 * A child makes the namespace, connects from inside it and waits to be released.
 */
#pragma once
#include "tests/unit/broker/rig.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

struct peer {
	pid_t pid;
	int accepted;    /* the broker's question */
	uint64_t cookie; /* as the accepted socket shows it to an unprivileged worker */
};

/* In the namespace of `netns` (-1: a new one, where `commands` run, or ours if they are NULL) it
 * joins the cgroup of `procs` (NULL: stays) and connects to `l`. */
struct peer peer_start(struct rig *r, int l, int netns, const char *commands, const char *procs);
struct peer peer_new(struct rig *r, int l, const char *commands);
void peer_kill(struct peer *p);
void peer_end(struct peer *p);
int make_listener(struct rig *r);
struct rig_ask peer_of(const struct uuid *pod, int fd);
