/* gate.h - agentd --redirect-gate and --redirect-await: what a boot needs before agentd runs.
 *
 * Neither needs a worker or an istiod.  The first shuts (redirect/shut.h) every pod that a manifest
 * names and that can only be strict; a cgroup that root named and that is not there is made.  So
 * nothing that starts in it later is ever open.  The agentd that starts later takes them over.  The
 * second holds an app back until the rules of its pod stand, whether or not an agentd runs then.
 */
#pragma once
#include "broker/base/options.h"

/* The exit status: 1: a strict pod is open, which is said.  Beside an agentd that runs it does
 * nothing: that one has shut them. */
int broker_gate_shut(const struct broker_options *o);
/* Returns when they stand; 1: they never will, by these flags. */
int broker_gate_await(const struct broker_options *o);
