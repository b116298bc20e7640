/* world.h - a pod and a peer: network namespaces, cgroups, and sockets of any user in them.
 *
 * All of it is of this program's own and goes with it: a mount namespace with a cgroup2 and a bpffs
 * in it, two network namespaces with veths between them.  Whatever happens in a place happens in a
 * child of ours that went there.
 */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { TEXT = 64, ENVOY = 1337, APP = 1000 };

struct place {
	int netns, cgroup; /* cgroup -1: of none of the pods */
	pid_t holder;
};
struct world {
	char dir[TEXT], bpffs[TEXT], cgroups[TEXT];
	char cgroup[TEXT];    /* above all pods' */
	char trees[2 * TEXT]; /* the kubelet's tree of pods, as redirect_place has it */
	struct place pod, peer;
	struct place stranger; /* in the pod's network namespace, but not in its cgroup */
	struct place host;     /* in the node's, but in the pod's cgroup: as with hostNetwork */
	struct place kubelet;  /* in the node's, and in no pod's cgroup */
	struct place
	    unmeshed; /* in the node's, and in the tree of pods, as a pod that is not ours */
};
extern const char *const pod_ip[2], *const peer_ip[2]; /* IPv4, IPv6 */
extern const char pod_other_ip[];                      /* on the interface that is excluded */
extern const char host_ip[], host_peer_ip[];           /* of the cable from the node to the peer */
extern const char *const pod_node_ip[2];               /* the pod's, on its cable to the node */

void world_begin(struct world *w); /* ends with the program */
/* Prints and ends the program: the world could not be made. */
void broken(const char *what) __attribute__((noreturn));

struct who {
	uid_t uid;
	gid_t gid;
};
typedef void (*place_act)(void *ctx, void *out);
/* Runs `f` there, as that user; what it writes to `out` comes back.  -1: it died. */
int visit(const struct place *p, struct who who, place_act f, void *ctx, void *out, size_t size);
/* A child that stays there until it is killed; back when it said so by `ready`. */
pid_t settle(const struct place *p, struct who who, void (*f)(void *ctx, int ready), void *ctx);
void evict(pid_t *child);
