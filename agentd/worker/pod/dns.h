/* agent_dns.h - one pod's DNS: which resolvers stand behind the proxy, when it is asked, what
 * istiod tells it.
 */
#pragma once
#include "worker/dns/proxy.h"
#include <jansson.h>

struct agent_shared;
struct pod;
struct pod_dns;
struct redirect_plan;
struct xds_proxy;

/* Is a pod's DNS captured: it asks for that, and there is a resolver to go on to.  `out` and `n`
 * (at most DNS_SERVERS_MAX): those of its resolv.conf if it names them, else the node's. */
bool pod_dns_servers(
    const struct redirect_plan *plan, const char *node_upstream, struct dns_server *out, size_t *n);

struct pod_dns *pod_dns_start(const struct agent_shared *a, const struct pod *p,
    const struct redirect_plan *plan, int64_t timeout_ms);
bool pod_dns_captured(const struct pod_dns *d);
void pod_dns_stop(struct pod_dns **d);
/* Name tables come by its streams.  Before the first one. */
void pod_dns_subscribe(struct pod_dns *d, struct xds_proxy *x);
/* The pod's network namespace is known, or is another one; or it is not known (any more). */
void pod_dns_live(struct pod_dns *d, bool live);

/* captured, answers, why_not, servers, names (-1: not told yet), and the counts */
json_t *pod_dns_dump(const struct pod_dns *d);
/* {name, found, alias, addresses} */
json_t *pod_dns_resolve(const struct pod_dns *d, const char *name);
void pod_dns_measure(const struct pod_dns *d, const char *labels);
