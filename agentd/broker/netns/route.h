/* route.h - the routes of the network namespace this thread is in.
 *
 * Destinations that stay inside, as iptables' `-o lo` would see them: addresses of the pod and all
 * else that its table `local` holds.  And destinations behind an excluded interface, since a
 * connection's interface is not known when it is dialled (ebpf-redirect.md 5).
 */
#pragma once
#include "border/rules.h"

enum { NETNS_ROUTES_MAX = 256 };

/* Prefixes of both families: REDIRECT_CIDR_LOCAL but for 127.0.0.0/8 and ::1; with `excluded` also
 * those of the main table, REDIRECT_CIDR_INTERFACE for what leaves by one of these, else 0.  How
 * many; more than fit are left out. */
uint32_t netns_route_list(
    struct redirect_cidr out[NETNS_ROUTES_MAX], const uint32_t *excluded, uint32_t nexcluded);
