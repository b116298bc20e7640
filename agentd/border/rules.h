/* rules.h - the rules asked for one pod's traffic, from redirect/ (worker) to the broker.
 *
 * One struct of fixed size in a sealed memfd, beside LINK_REDIRECT_SET.  The broker believes none
 * of it: counts are checked, flags it does not know are refused, and the node's ceiling (its
 * command line) decides what a pod may ask for (security-rules.md 3, 6).
 */
#pragma once
#include "common/uuid.h"
#include "ebpf/redirect.h"
#include <stdbool.h>
#include <stdint.h>

enum {
	REDIRECT_RULES_VERSION = 2,
	REDIRECT_ROWS_MAX = 6 * 64, /* 64 ports or groups a list (security-rules.md 3) */
	REDIRECT_PROBES_MAX = 64,
	REDIRECT_CIDRS_MAX = 512, /* 256 each of includes and excludes, with resolvers */
	REDIRECT_INTERFACES_MAX = 16,
	REDIRECT_INTERFACE_SIZE = 16,
};

struct redirect_row {
	uint32_t kind, number; /* redirect_port_kind, but no interfaces: those have names here */
};

struct redirect_cidr {
	struct redirect_address address; /* bits behind the prefix are zero */
	uint32_t bits, flags;            /* 0 to 128; EXCLUDE, INCLUDE, DNS */
};

struct redirect_rules {
	uint32_t version;
	uint32_t flags; /* redirect_flag */
	uint32_t proxy_uid, proxy_gid;
	uint16_t outbound_port, inbound_port, tunnel_port, dns_port;
	uint32_t strict; /* no SYN from outside reaches the pod before Envoy's side is in place */
	uint32_t nrows, ncidrs, ninterfaces;
	char interfaces[REDIRECT_INTERFACES_MAX][REDIRECT_INTERFACE_SIZE];
	struct redirect_row rows[REDIRECT_ROWS_MAX];
	struct redirect_cidr
	    cidrs[REDIRECT_CIDRS_MAX]; /* last: what is kept ends behind those in use
					*/
};

/* May the kubelet be let in there?  Not to what Envoy and agentd serve in a pod. */
#define REDIRECT_RESERVED_PORTS 15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090
static inline bool rules_can_probe(const struct redirect_rules *r, uint32_t port)
{
	static const uint16_t reserved[] = {REDIRECT_RESERVED_PORTS};

	for (unsigned i = 0; i < sizeof(reserved) / sizeof(reserved[0]); i++)
		if (port == reserved[i])
			return false;
	return port && port <= UINT16_MAX && port != r->outbound_port && port != r->inbound_port &&
	       port != r->tunnel_port && port != r->dns_port;
}

/* From the broker to the worker, through the pipe of LINK_REDIRECT_TRACE. */
struct link_trace {
	struct uuid pod;
	uint32_t lost; /* records before this one that nobody had room for */
	uint32_t pad;
	struct redirect_trace trace;
};
