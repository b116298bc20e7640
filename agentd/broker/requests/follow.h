/* follow.h - files the worker follows: their content now, then every change.
 *
 * Nothing is queued.  A change only marks its file; it is read when the worker has room for a
 * packet, so a slow worker gets the newest content and never a backlog.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/options.h"
#include "common/err.h"

struct follows;
struct broker_request;

struct follows_events {
	void (*changed)(void *ctx); /* a file was marked while none was */
	/* Does somebody wait for this pod?  A worker that begins to follow manifests is told those
	 * of such pods first.
	 */
	bool (*awaited)(void *ctx, const struct uuid *pod);
	/* link_running: was it here before a worker was told of its manifest? */
	unsigned (*running)(void *ctx, const struct uuid *pod);
};
struct follows *follows_new(int epoll, const struct broker_options *o,
    const struct follows_events *ev, void *ctx, struct err *e);
void follows_free(struct follows **fs);

/* Files that one pod has beside its manifest; the kept one is kept.h's. */
bool follows_is_of_pod(unsigned kind);
int follows_add(struct follows *fs, const struct link_request *r, struct err *e);
void follows_remove(struct follows *fs, uint32_t id); /* unknown: nothing */
void follows_clear(struct follows *fs);
void follows_remove_pod(struct follows *fs, const struct uuid *pod);

bool follows_pending(const struct follows *fs);
/* Looks at one marked file.  True: `p` is to be sent, with `fd` (or -1), the caller's. */
bool follows_next(struct follows *fs, struct link_packet *p, int *fd);
