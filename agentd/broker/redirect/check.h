/* check.h - a pod's rules against the node's ceiling (security-rules.md 3, 6). */
#pragma once
#include "common/err.h"
#include "common/rules.h"
#include <stdbool.h>
#include <sys/types.h>

/* The limits of what pods of this node may ask for: the command line sets them, not the worker. */
struct redirect_ceiling {
	bool permissive;  /* a policy other than strict */
	bool exclusions;  /* ports, ranges, groups or interfaces that go past Envoy, outbound */
	uid_t worker_uid; /* never a proxy's */
};
/* "permissive,exclusions", either, or "strict": none of them, as without a list. */
int redirect_ceiling_read(const char *allow, struct redirect_ceiling *c, struct err *e);
int redirect_check(
    const struct redirect_rules *rules, const struct redirect_ceiling *c, struct err *e);
