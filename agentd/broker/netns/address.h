/* netns_address.h - the addresses of the network namespace this thread is in. */
#pragma once
#include "broker/base/log.h"

/* Fills in `out`: those that istio-agent.md 8.2 lists, at most LINK_ADDRESSES_MAX. */
int netns_address_list(struct link_packet *out, struct broker_why *w);
