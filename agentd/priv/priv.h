/* priv.h - what the worker asks of the root broker.
 *
 * All calls are asynchronous (contract in base/loop.h) but priv_new and priv_take_listener.  The
 * broker answers in order.  When it goes away `lost` runs once and the worker has to end: the
 * listeners live on in the next broker.
 */
#pragma once
#include "protocol.h"
#include <stddef.h>

struct err;
struct loop;
struct priv;
struct priv_call;   /* one request under way */
struct priv_follow; /* one followed file or directory */

/* Reads the broker's greeting and its node listeners from `fd` (takes it); blocks, at start only.
 */
struct priv *priv_new(struct loop *l, int fd, void (*lost)(void *ctx), void *ctx, struct err *e);
void priv_free(struct priv **p);
int priv_take_listener(struct priv *p, enum priv_node_listener kind); /* -1: there is none */

/* `e` is NULL on success.  A refusal's text is the broker's and names what was refused. */
typedef void (*priv_done)(void *ctx, const struct err *e);
void priv_pod_add(
    struct priv *p, struct priv_call **slot, const struct uuid *pod, priv_done done, void *ctx);
/* Nobody waits for these two; a failure is logged. */
void priv_pod_remove(struct priv *p, const struct uuid *pod);
void priv_write(
    struct priv *p, const struct uuid *pod, enum priv_file file, const void *data, size_t size);

typedef void (*priv_listening)(void *ctx, const struct err *e, int fd); /* the callback owns fd */
void priv_listen(struct priv *p, struct priv_call **slot, const struct uuid *pod,
    enum priv_listener kind, priv_listening done, void *ctx);

struct priv_netns {
	uint64_t cookie; /* as SO_NETNS_COOKIE shows it */
	size_t naddresses;
	const struct priv_address *addresses; /* valid during the callback */
};
typedef void (*priv_netns_known)(void *ctx, const struct err *e, const struct priv_netns *n);
/* Whose network namespace is behind this accepted connection; `fd` stays the caller's. */
void priv_netns_of(struct priv *p, struct priv_call **slot, const struct uuid *pod, int fd,
    priv_netns_known done, void *ctx);
void priv_call_cancel(struct priv_call **c);

/* One file as it is now.  `data` is NULL when it is gone or refused; then `e` says why. */
struct priv_content {
	const char *name; /* "" unless a directory is followed */
	const char *data; /* NUL-terminated behind `size`; valid during the callback */
	size_t size;
	const struct err *e;
	bool synced; /* a directory's start is complete; no file */
};
typedef void (*priv_changed)(void *ctx, const struct priv_content *c);
/* `changed` runs soon with what is there now, then at every change.  `pod` may be NULL. */
struct priv_follow *priv_follow(struct priv *p, enum priv_followed what, const struct uuid *pod,
    unsigned plane, priv_changed changed, void *ctx);
void priv_unfollow(struct priv_follow **f);
