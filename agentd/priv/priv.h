/* priv.h - what the worker asks of the root broker.
 *
 * All calls are asynchronous (contract in base/loop.h) but priv_new and priv_take_listener.  The
 * broker answers in order.  When it goes away `lost` runs once and the worker has to end: the
 * listeners live on in the next broker.
 */
#pragma once
#include "common/protocol.h"
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

struct priv_peer {
	uint64_t cookie;     /* as SO_NETNS_COOKIE shows it; 0: a kernel without */
	uint64_t cgroup_id;  /* of the peer, the pod's or one below it; 0: not known */
	const char *unknown; /* why it is not known; "" when it is */
	size_t naddresses;
	const struct priv_address *addresses; /* valid during the callback */
};
typedef void (*priv_peer_known)(void *ctx, const struct err *e, const struct priv_peer *n);
/* Is the peer of this accepted connection the pod's?  `fd` stays the caller's.  A refusal's code:
 * EPERM another network namespace, EACCES another cgroup, ESRCH the peer is gone, ENODATA its
 * cgroup cannot be known and `require` was asked. */
void priv_peer_of(struct priv *p, struct priv_call **slot, const struct uuid *pod, int fd,
    priv_peer_known done, void *ctx);
/* From now on: what cannot be known is refused (`attest: require`). */
void priv_require_attestation(struct priv *p);
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

/* One entry of the kept state; `data` is valid during the callback, NULL after the last one (then
 * `e`, if not NULL, says why the list is not complete). */
struct priv_kept {
	enum priv_state kind;
	const uint8_t *id; /* PRIV_STATE_ID_SIZE bytes */
	const char *data;
	size_t size;
	const struct err *e;
};
typedef void (*priv_kept_found)(void *ctx, const struct priv_kept *k);
void priv_state_list(struct priv *p, struct priv_call **slot, enum priv_state kind,
    priv_kept_found found, void *ctx);
/* Copied; takes the place of what was there. */
void priv_state_put(
    struct priv *p, struct priv_call **slot, const struct priv_kept *k, priv_done done, void *ctx);
/* Nobody waits; a failure is logged. */
void priv_state_del(struct priv *p, enum priv_state kind, const uint8_t *id);

/* All pods that the node's sources name were added and are listened for, or refused. */
void priv_ready(struct priv *p);
/* A listener of `pod` was shut down and made anew; the callback owns `fd`.  `pod` has at most one
 * such watch: the owner of its listeners.  `again` NULL: no more. */
typedef void (*priv_relisten)(void *ctx, enum priv_listener kind, int fd);
void priv_on_relisten(struct priv *p, const struct uuid *pod, priv_relisten again, void *ctx);
