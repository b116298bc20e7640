/* bound.h - may a pod end because the worker says so?  The broker looks for itself
 * (security-rules.md G6).
 *
 * A pod of root's ends with its manifest.  A kubelet's ends with its volume: the kubelet takes that
 * down when the pod's last process is gone, and removes its directory afterwards.
 */
#pragma once
#include "broker/base/options.h"

/* What keeps it, "its manifest is there"; NULL: nothing. */
const char *pod_bound_by(const struct broker_options *o, const struct uuid *pod);
