/* kept.h - LINK_FOLLOW_KEPT: what identity.h writes, as it is now, and after each write.
 *
 * Children read it (base/disk.h), few at once, and nothing of that disk is looked at here.  A disk
 * that has not answered within three seconds is told as a refusal, and what it answers later as a
 * change.  What somebody else changes there is not noticed: it counts from the next worker on.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/options.h"
#include "common/err.h"

struct requests_kept;

/* `changed` runs when there is something to tell. */
struct requests_kept *requests_kept_new(
    int epoll, const struct broker_options *o, void (*changed)(void *ctx), void *ctx);
void requests_kept_free(struct requests_kept **k);

/* Of a pod that was added.  EEXIST: it is followed already. */
int requests_kept_add(struct requests_kept *k, const struct link_request *r, struct err *e);
void requests_kept_remove(struct requests_kept *k, uint32_t id); /* unknown: nothing */
void requests_kept_remove_pod(struct requests_kept *k, const struct uuid *pod);
void requests_kept_clear(struct requests_kept *k);
/* The pod's file is another one now. */
void requests_kept_written(struct requests_kept *k, const struct uuid *pod);

bool requests_kept_pending(const struct requests_kept *k);
/* `fd` (or -1) is the caller's. */
void requests_kept_next(struct requests_kept *k, struct link_packet *p, int *fd);

/* For how many seconds a child has waited for the disk, once that is too long; else 0. */
long requests_kept_waits_s(const struct requests_kept *k);
