/* askers.h - datagram sockets that are connected to a resolver, in the network namespace we are in.
 *
 * A socket that was connected while no DNS proxy answered asks the pod's resolver for as long as it
 * lives.  Resolvers that keep theirs would never hear of istiod's names again.  So it is ended by
 * an error (ECONNABORTED), which makes them connect anew, when the proxy comes.
 */
#pragma once
#include <stdint.h>

/* But for those of the uid: Envoy's own.  A kernel without SOCK_DESTROY: none. */
void netns_askers_end(uint32_t spared_uid);
