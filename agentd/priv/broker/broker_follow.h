/* broker_follow.h - files the worker follows: what they are now, then every change.
 *
 * Nothing is queued.  A change only marks its file; it is read when the worker has room for a
 * packet, so a slow worker gets the newest content and never a backlog.
 */
#pragma once
#include "broker/base/options.h"

struct broker_follows;
struct broker_request;

/* `changed` runs when a file was marked while none was. */
struct broker_follows *broker_follows_new(int epoll, const struct broker_options *o,
    void (*changed)(void *ctx), void *ctx, struct broker_why *w);
void broker_follows_free(struct broker_follows **fs);

int broker_follows_add(
    struct broker_follows *fs, const struct priv_request *r, struct broker_why *w);
void broker_follows_remove(struct broker_follows *fs, uint32_t id); /* unknown: nothing */
void broker_follows_clear(struct broker_follows *fs);
void broker_follows_remove_pod(struct broker_follows *fs, const struct uuid *pod);

bool broker_follows_pending(const struct broker_follows *fs);
/* Looks at one marked file.  True: `p` is to be sent, with `fd` (or -1), the caller's. */
bool broker_follows_next(struct broker_follows *fs, struct priv_packet *p, int *fd);
