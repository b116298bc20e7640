/* loader.h - agentd's broker, as far as it redirects: a child with exactly the capabilities named.
 */
#pragma once
#include "broker/base/caps.h"
#include "broker/redirect/redirect.h"
#include "common/err.h"
#include "world.h"

#define LOADER_CAPS (BROKER_CAPS_REDIRECT | 1ull << CAP_NET_ADMIN)
/* The broker has this one for its mounts; without it no pod's network namespace is entered. */
#define LOADER_VISITS (1ull << CAP_SYS_ADMIN)

struct loader {
	pid_t pid;
	int fd;
	const struct world *world;
};
/* Loads, attaches, adopts.  `memlock`: its RLIMIT_MEMLOCK; -1 with the reason if it refuses. */
int loader_start(
    struct loader *l, const struct world *w, uint64_t caps, size_t memlock, struct err *why);
/* Killed; what it attached stays. */
void loader_end(struct loader *l);

/* The acts of redirect.h, for the world's one pod. */
int loader_set(struct loader *l, const struct redirect_rules *rules, struct err *why);
int loader_live(struct loader *l, struct err *why);
int loader_remove(struct loader *l, struct err *why);
/* The peer as another pod, live; and not any more. */
int loader_set_peer(struct loader *l, const struct redirect_rules *rules, struct err *why);
int loader_remove_peer(struct loader *l, struct err *why);
/* Takes the node's own namespace for the pod's: must be refused (kernels.md 3.6). */
int loader_mistake(struct loader *l, struct err *why);

/* The pinned maps, as root. */
int pinned_map(const struct world *w, const char *name);
int map_count(const struct world *w, const char *name); /* of its entries */
uint32_t pod_index(const struct world *w);
uint64_t counter(const struct world *w, enum redirect_verdict v);
