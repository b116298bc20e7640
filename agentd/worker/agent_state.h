/* agent_state.h - gives the caches what an earlier worker stored, before there are pods.
 *
 * Texts of a newer release stay, because that release may come back.  Damaged texts, and those of a
 * configuration that is gone, are deleted.  The log names each of them.  If a pod still needs the
 * certificate, it is requested again.
 */
#pragma once
#include "base/loop.h"
#include "border/protocol.h"

struct agent_shared;
struct agent_state;

/* Certificates are stored in `keep` from now on; those found elsewhere move there. */
struct agent_state *agent_state_restore(
    const struct agent_shared *s, enum link_state keep, loop_cb done, void *ctx);
void agent_state_free(struct agent_state **s); /* also inside `done` */
