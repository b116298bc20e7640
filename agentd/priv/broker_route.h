/* broker_route.h - where the network namespace this thread is in sends what: for interfaces that
 * are excluded, since a connection's interface is not known when it is dialled (ebpf-redirect.md
 * 5). */
#pragma once
#include "redirect_rules.h"

enum { BROKER_ROUTES_MAX = 64 };

/* Prefixes of the main table, both families; flags REDIRECT_CIDR_INTERFACE for those that leave by
 * one of `excluded`, else 0.  How many; more than fit are left out. */
uint32_t broker_route_list(
    struct redirect_cidr out[BROKER_ROUTES_MAX], const uint32_t *excluded, uint32_t nexcluded);
