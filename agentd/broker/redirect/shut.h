/* shut.h - a strict pod that is not redirected (yet, or because its rules were refused) is shut.
 *
 * It gets rules of the broker's own: what its processes dial goes to its Envoy's port, and what
 * arrives reaches nobody.  So it is as closed as a strict pod whose Envoy is away.  They are
 * written like any others (pod.h): pinned, they outlive the broker, and the rules that are set
 * later take their place in one step.
 *
 * Root's word alone makes a pod strict: a manifest, and a list without `permissive` (ceiling.h). So
 * no worker, and no istiod, is needed to shut it; not even a broker that stays (broker/gate.h).
 */
#pragma once
#include "broker/base/options.h"
#include "ceiling.h"
#include "common/err.h"

struct redirect;

bool redirect_shut_read_name(const char *file, struct uuid *out); /* <uid>.yaml */
/* It has a manifest, and can only be strict. */
bool redirect_shut_is_due(
    const struct broker_options *o, const struct redirect_ceiling *node, const struct uuid *pod);
/* Calls `each` for every such pod. */
void redirect_shut_each(const struct broker_options *o, const struct redirect_ceiling *node,
    void (*each)(void *ctx, const struct uuid *pod), void *ctx);

struct redirect_shut_at {
	const struct uuid *pod;
	int cgroup;
};
/* Nothing if rules stand there, whoever's.  `c` is the pod's ceiling: its numbers are Envoy's. */
int redirect_shut(struct redirect *r, struct redirect_shut_at at, const struct redirect_ceiling *c,
    struct err *e);

/* Rules of its own stand in that cgroup, whether or not a broker runs: as the programs see it.
 * -1: the programs' maps cannot be looked at. */
int redirect_shut_is_over(const char *bpffs, struct redirect_shut_at at, struct err *e);
