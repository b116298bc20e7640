/* probe.h - can this kernel, and this process, redirect by eBPF at all? */
#pragma once
#include "common/err.h"
#include <stdbool.h>

/* Abilities that not every kernel has. */
struct redirect_can {
	bool interfaces; /* one can be excluded */
	bool late;       /* an Envoy that listened before its pod's rules is found */
};

/* Before anything else.  -1: `e` names the first thing that is missing, and what to do. */
int kernel_can(struct err *e);

/* What is optional.  Does sk_lookup show where a packet came in (5.17), does a packet's program
 * tell its network namespace (6.15)? */
bool kernel_can_interfaces(void);
bool kernel_can_gate_netns(void);

/* May a tc program put a socket into a map?  (Until 7.2)  If not, is there one that goes through
 * all sockets?  (If the kernel shows its types) */
bool kernel_can_listeners(void);
bool kernel_can_collecting(void);

/* Makes an entry of a map of sockets and reads it back.  A kernel that cannot lets the programs
 * load, and every connection of a pod fail (kernels.md 6). */
int kernel_can_storage(int map, struct err *e);
