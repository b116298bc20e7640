/* identity.h - keys and certificates of machines, as files that outlive a reboot.
 *
 * <identity-dir>/<uid>.pem, of root, 0600: a key and its chain in one file, so that one never is
 * there without the other.  Children write it and read it (base/disk.h, kept.h).  The worker has
 * one written for a pod of a manifest only, of 64 KiB at most, and not many at once.  A file stays
 * when the manifest goes; it is root's to remove.
 *
 * Answers are kept until the worker has room for them, as follow.h keeps changes.
 */
#pragma once
#include "border/protocol.h"
#include "broker/base/options.h"
#include "common/err.h"

enum { REQUESTS_IDENTITY_NAME = UUID_TEXT_SIZE + sizeof(".pem") };
void requests_identity_name(const struct uuid *pod, char out[REQUESTS_IDENTITY_NAME]);

struct requests_identity;

/* `changed` runs when there is an answer, `written` when a pod's file is another one. */
struct requests_identity_events {
	void (*changed)(void *ctx);
	void (*written)(void *ctx, const struct uuid *pod);
};
struct requests_identity *requests_identity_new(int epoll, const struct broker_options *o,
    const struct requests_identity_events *ev, void *ctx);
/* A write that was begun is finished, and nobody hears of it; so it is when the worker that asked
 * has gone. */
void requests_identity_detach(struct requests_identity *r);
void requests_identity_free(struct requests_identity **r);

/* 0: begun; its answer says whether all of `memfd` is in place and on disk, or what was there still
 * is.  -1: neither.  EAGAIN: later. */
int requests_identity_put(
    struct requests_identity *r, const struct link_request *q, int memfd, struct err *e);

bool requests_identity_pending(const struct requests_identity *r);
void requests_identity_next(struct requests_identity *r, struct link_packet *p);

/* For how many seconds a child has waited for the disk, once that is too long; else 0. */
long requests_identity_waits_s(const struct requests_identity *r);
