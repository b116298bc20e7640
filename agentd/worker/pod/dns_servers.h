/* dns_servers.h - which resolvers stand behind a pod's DNS: pure. */
#pragma once
#include "worker/dns/upstream.h"
#include <stdbool.h>
#include <stddef.h>

struct redirect_plan;

/* Is a pod's DNS captured: it asks for that, and there is a resolver to go on to.  `out` and `n`
 * (at most DNS_SERVERS_MAX): those of its resolv.conf if it names them, else the node's. */
bool pod_dns_servers(
    const struct redirect_plan *plan, const char *node_upstream, struct dns_server *out, size_t *n);
