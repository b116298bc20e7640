/* homes.h - whose address is whose: between Envoys of which pods bytes may go from socket to socket
 * (ebpf/accelerate.bpf.c).
 *
 * A pod says itself which address it has, and one with CAP_NET_ADMIN may say what it likes.  So an
 * address that two of our pods have is nobody's: connections of both are as without.
 */
#pragma once
#include "table.h"

/* The pod's addresses, mode or life changed; `was`: its two addresses before; NULL: the
 * same. */
void redirect_homes_changed(const struct redirect *r, const struct redirect_pod_state *p,
    const struct redirect_address was[2]);
/* It is in the table no more. */
void redirect_homes_left(const struct redirect *r, const struct redirect_address was[2]);
/* All rows, as they should be: an earlier broker wrote them, or somebody else. */
void redirect_homes_sweep(const struct redirect *r);
/* Its new connections to Envoys of such pods are accelerated. */
bool redirect_homes_has(const struct redirect *r, const struct uuid *pod);
