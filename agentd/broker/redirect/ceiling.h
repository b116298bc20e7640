/* ceiling.h - the limits of what the worker may ask for a pod's traffic (security-rules.md G6).
 *
 * --redirect-allow sets them, and for one pod root's file <manifests>/<uid>/redirect-allow instead.
 * Both are a list of words, separated by commas:
 *
 *   strict       none of the next three, as without a word
 *   permissive   another policy than strict
 *   exclusions   traffic that goes past Envoy, in either direction; other ports than Envoy's usual
 *                ones; an end of redirection while the pod is there
 *   probes       ports where the kubelet's own connections go past Envoy
 *   KEY=NUMBER   another number than istio's: proxy_uid, proxy_gid, envoy_port, ...
 */
#pragma once
#include "broker/base/options.h"
#include "common/err.h"
#include "common/uuid.h"
#include <stdbool.h>

struct redirect_ceiling {
	bool permissive, exclusions, probes;
	/* Root's manifest describes the pod, so with `exclusions` its numbers are the manifest's.
	 * Whoever owns a kubelet's pod has no word for proxy_uid, proxy_gid and dns_port. */
	bool is_manifests;
	uid_t worker_uid; /* never a proxy's */
	uint32_t proxy_uid, proxy_gid;
	uint32_t envoy_port, inbound_capture_port, inbound_tunnel_port, dns_port, status_port;
};

/* The node's; `worker_uid` stays as it is.  -1, ERR_INVALID: a word is none of these. */
int redirect_ceiling_read(const char *allow, struct redirect_ceiling *c, struct err *e);
/* One pod's.  -1: root's file cannot be used, and `out` is of no use. */
int redirect_ceiling_of(const struct broker_options *o, const struct redirect_ceiling *node,
    const struct uuid *pod, struct redirect_ceiling *out, struct err *e);
