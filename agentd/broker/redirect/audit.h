/* audit.h - is everything as we left it? */
#pragma once
#include "common/uuid.h"
#include <stdbool.h>

struct redirect;

/* What is needed to look at, and to put back, what belongs to pods. */
struct redirect_targets {
	int (*cgroup)(void *ctx, const struct uuid *pod); /* open, to be closed by us; or -1 */
	int (*netns)(void *ctx, const struct uuid *pod);  /* stays the caller's; or -1 */
	void (*directory)(void *ctx, const char *path);   /* each that holds pins */
	void *ctx;
};
struct redirect_audited {
	unsigned repaired; /* links, pins and entries */
	bool unsettled;    /* something is still not as it should be */
};
/* The directory of a pod that was set since. */
void redirect_audit_pod(
    const struct redirect *r, const struct uuid *pod, const struct redirect_targets *at);
/* Looks at links, pins, programs and entries of maps.  A change by others is undone and logged. */
struct redirect_audited redirect_audit(struct redirect *r, const struct redirect_targets *at);
