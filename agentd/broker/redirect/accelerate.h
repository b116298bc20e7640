/* accelerate.h - what an app writes to its own Envoy goes from socket to socket, for pods that ask:
 * programs, maps and links (ebpf/accelerate.bpf.c).
 *
 * Of this node's brokers one after the other, like the rest of redirect.h: maps and links are
 * pinned, and a connection goes on as it began, whatever happens to us.
 */
#pragma once
#include "common/err.h"
#include "ebpf/accelerate.h"
#include "table.h"

struct redirect_accelerate;

/* On the pins of `r`.  NULL: this kernel cannot, and `e` says why.  `blind`: sockmap.h. */
struct redirect_accelerate *redirect_accelerate_new(struct redirect *r, bool blind, struct err *e);
void redirect_accelerate_free(struct redirect_accelerate **a);
/* Would it work here?  Leaves nothing behind. */
int redirect_accelerate_try(bool blind, struct err *e);

/* The map of whose address is whose: homes.h.  -1: nobody is accelerated. */
int redirect_accelerate_homes(const struct redirect *r);

/* The map of what all connections did, as redirect_counters(); the same in a later broker. */
int redirect_accelerate_lanes(const struct redirect *r, struct err *e);

/* As its rules say: from now on its new connections are accelerated, or are not any more.  Without
 * `r->accelerate` they are not. */
int redirect_accelerate_pod(
    const struct redirect *r, const struct redirect_pod_state *p, int cgroup, struct err *e);
/* Links of an earlier broker get the current programs, or go where we accelerate nothing. */
int redirect_accelerate_renew(
    const struct redirect *r, const struct redirect_pod_state *p, struct err *e);
/* Audit: both put back what somebody took away, and return how many things; -1: it cannot be. */
int redirect_accelerate_mend(
    const struct redirect *r, const struct redirect_pod_state *p, int cgroup, struct err *e);
int redirect_accelerate_mend_maps(const struct redirect *r, struct err *e);
