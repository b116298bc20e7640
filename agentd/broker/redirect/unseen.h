/* unseen.h - a pod that dials, and whose dials the programs do not see.
 *
 * Links, rows and level may look right, and its traffic goes past Envoy all the same.  Only the
 * kernel's list of sockets beside our counters shows that.
 */
#pragma once
#include "common/err.h"
#include "common/uuid.h"

struct redirect;

/* -1, ENODATA: for a minute it was in force, no dial of it was ever decided, and in its network
 * namespace is a connection that was dialled there.  Ask now and then: the minute begins with the
 * first call. */
int redirect_unseen(struct redirect *r, const struct uuid *pod, int netns, struct err *e);
