/* redirect.h - traffic of pods by eBPF: the room's door.
 *
 * The programs are attached once, at one cgroup above all pods, and pinned below
 * <bpffs>/agentd/v<layout>/: a restarted or newer broker puts its own programs into the same links
 * (one atomic step each) and goes on with the same maps.  So redirection never pauses and outlives
 * us.  A step that an earlier broker took is not taken again.
 */
#pragma once
#include "audit.h"
#include "broker/ebpf/kernel_can.h"
#include "broker/ebpf/listeners.h"
#include "common/err.h"
#include "explain.h"
#include "pod.h"
#include "unseen.h"

struct redirect_place {
	const char *bpffs;             /* mounted there if it is not */
	const char *cgroup;            /* absolute: all pods are below it */
	bool stays;                    /* where an earlier broker attached, if that is above it */
	const struct netns_home *home; /* nobody's network; NULL: we enter no pod's */
	const char *root, *trees;      /* probes.h */
};
/* `bpffs`, `home`, `root` and `trees` outlive it.  NULL: nothing works, and what an earlier broker
 * attached stays as it was. */
struct redirect *redirect_new(const struct redirect_place *at, struct err *e);
/* Would it work here?  Loads, but attaches nothing. */
int redirect_try(struct redirect_can *can, struct err *e);
/* How far below the host's root it is, measured; -1: it cannot be told, and no program there would
 * find a pod. */
int redirect_level(const char *cgroup, struct err *e);
/* Attached programs stay. */
void redirect_free(struct redirect **r);
/* Detaches and forgets everything, of all brokers: for uninstalling, and for tests. */
int redirect_uninstall(const char *bpffs, struct err *e);

/* The map of the pods' counters, to be mapped and read; nobody but the programs can write it.  The
 * fd is ours. */
int redirect_counters(const struct redirect *r);
