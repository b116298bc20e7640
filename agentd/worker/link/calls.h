/* calls.h - requests that few modules make: a pod's sockets and kept certificate, the log; beside
 * those of link.h.
 */
#pragma once
#include "link.h"

/* In the pod's network namespace; not connected, not blocking; the callback owns it.  At most 50 a
 * second and pod (EAGAIN); ENOTCONN: nobody has connected from there yet. */
struct link_socket {
	enum link_dial kind;
	int family;    /* AF_INET, AF_INET6 */
	uint16_t port; /* LINK_DIAL_LOOPBACK: where it is being connected to; ECONNREFUSED */
};
void link_dial(struct link *p, struct link_call **slot, const struct uuid *pod,
    struct link_socket what, link_listening done, void *ctx);

/* The pod's certificate with its key, on disk for after a reboot: read by LINK_FOLLOW_KEPT; `text`
 * is copied.  A refusal with EAGAIN: there are many at once. */
void link_identity_put(struct link *p, struct link_call **slot, const struct uuid *pod,
    const char *text, link_done done, void *ctx);

/* Tells the broker, which reads no agentd.yaml, the log format of this process and the level of the
 * scope "broker".  Call it at the start, and after each change of a level. */
void link_log(struct link *p);
