/* address.h - the addresses of the network namespace this thread is in. */
#pragma once
#include "border/protocol.h"
#include "common/err.h"

/* Fills in `out`: those that istio-agent.md 8.2 lists, at most LINK_ADDRESSES_MAX. */
int netns_address_list(struct link_packet *out, struct err *e);
