/* attest.h - the processes behind a pod's connections: proven to be the pod's, and alive.
 *
 * The broker proves a network namespace with a cgroup once; attest recognises both without it
 * (SO_NETNS_COOKIE and PIDFD_GET_INFO need no privilege, process-split.md 0.5).  A connection lives
 * no longer than the process that made it, so a process that got it from that one, or inherited it,
 * loses it then (threats-and-faults.md T4).
 */
#pragma once
#include "rpc/server.h"
#include <stdbool.h>
#include <stdint.h>

struct attest;
struct loop;

/* The process that made a connection, as the kernel shows it. */
struct attest_peer {
	int pidfd;          /* -1: this kernel has none, or it cannot be seen from our namespaces */
	uint64_t cookie;    /* of its network namespace; 0: Linux before 5.14 */
	uint64_t cgroup_id; /* 0: Linux before 6.13 */
};
/* False: that process has exited. */
bool attest_look(struct attest_peer *p, int conn);
bool attest_is_alive(const struct attest_peer *p);
void attest_peer_clear(struct attest_peer *p);

struct attest *attest_new(struct loop *l); /* of one pod */
void attest_free(struct attest **a);       /* cuts nothing */

/* The broker has proven this to be the pod's.  A new namespace replaces the previous one. */
void attest_learn(struct attest *a, uint64_t cookie, uint64_t cgroup_id);
bool attest_knows(const struct attest *a, const struct attest_peer *p);
/* The i-th cgroup that is known; 0: there are not so many. */
uint64_t attest_cgroup(const struct attest *a, unsigned i);

/* Takes the pidfd of `p`; its exit cuts `c`. */
void attest_watch(struct attest *a, struct attest_peer *p, struct rpc_connection c);
unsigned attest_watched(const struct attest *a);
