/* agent_state.h - what an earlier worker stored, given back to the caches before there are pods.
 *
 * A text of a newer release is left alone, for it may come back; what is damaged, or of a
 * configuration that is no more, is deleted.  Each of them is said in the log, and costs one
 * certificate if somebody still needs it.
 */
#pragma once
#include "common/protocol.h"
#include "worker/base/loop.h"

struct agent_shared;
struct agent_state;

/* Where certificates are stored from now on is `keep`; what is elsewhere moves there. */
struct agent_state *agent_state_restore(
    const struct agent_shared *s, enum link_state keep, loop_cb done, void *ctx);
void agent_state_free(struct agent_state **s); /* also inside `done` */
