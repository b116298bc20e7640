/* address.h - the addresses of the network namespace this thread is in. */
#pragma once
#include "border/protocol.h"
#include "common/err.h"
#include <stdbool.h>

/* Fills in `out`: those that istio-agent.md 8.2 lists, at most LINK_ADDRESSES_MAX.  With
 * `outward_first` the interface of the default route comes first, then those with another gateway;
 * bridges that have none are the last. */
int netns_address_list(struct link_packet *out, bool outward_first, struct err *e);
