/* pod_source.h - does anything on the node still name a pod that the worker did not add?
 *
 * A manifest, or a volume that the kubelet has for it.
 */
#pragma once
#include "broker/base/options.h"

/* Are all sources there to be looked at?  Without one no pod can be called stale. */
bool pod_source_is_known(const struct broker_options *o);
/* "a manifest" or "a volume"; NULL: nothing does.  A source that cannot be looked at counts as one.
 */
const char *pod_source_of(const struct broker_options *o, const struct uuid *pod);
bool pod_source_is_manifest(const struct broker_options *o, const struct uuid *pod);
/* Does the pod's manifest give its Envoy's admin this port (proxyAdminPort)?  One that cannot be
 * read says nothing. */
bool pod_source_is_admin(const struct broker_options *o, const struct uuid *pod, unsigned port);
