/* dial.h - sockets in a pod's network namespace: part of link.h. */
#pragma once
#include "link.h"

/* Not connected, not blocking; the callback owns it.  At most 50 a second and pod (EAGAIN);
 * ENOTCONN: nobody has connected from there yet. */
struct link_socket {
	enum link_dial kind;
	int family;    /* AF_INET, AF_INET6 */
	uint16_t port; /* LINK_DIAL_LOOPBACK: where it is being connected to; ECONNREFUSED */
};
void link_dial(struct link *p, struct link_call **slot, const struct uuid *pod,
    struct link_socket what, link_listening done, void *ctx);
