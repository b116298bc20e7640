/* link.h - the worker's requests to the root broker.
 *
 * All calls are asynchronous (contract in base/loop.h) but link_new and link_take_listener.
 * The broker answers in order.  When it goes away `lost` runs once and the worker has to end: the
 * listeners live on in the next broker.
 */
#pragma once
#include "border/protocol.h"
#include <stddef.h>

struct err;
struct loop;
struct link;
struct link_call;   /* one request under way */
struct link_follow; /* one followed file or directory */

/* Reads the broker's greeting and its node listeners from `fd` (takes it); blocks, at start. */
struct link *link_new(struct loop *l, int fd, void (*lost)(void *ctx), void *ctx, struct err *e);
void link_free(struct link **p);
int link_take_listener(struct link *p, enum link_node_listener kind); /* -1: there is none */

/* `e` is NULL on success.  The broker writes a refusal's text, which names the refused thing. */
typedef void (*link_done)(void *ctx, const struct err *e);
/* Any operation (border/ops.h) with the answer yes or no; `req` needs no id.  `fd` (or -1) stays
 * the caller's.  Without `slot` and `done` nobody waits; a refusal is logged. */
void link_ask(struct link *p, struct link_call **slot, const struct link_request *req, int fd,
    link_done done, void *ctx);
/* `wait_s`: its connections held much when a worker was killed, and are accepted so much later. */
typedef void (*link_added)(void *ctx, const struct err *e, unsigned wait_s);
void link_pod_add(
    struct link *p, struct link_call **slot, const struct uuid *pod, link_added done, void *ctx);
/* For the broker's own account: what the pod's connections hold. */
void link_pod_holds(struct link *p, struct link_call **slot, const struct uuid *pod, int64_t bytes,
    link_done done, void *ctx);
/* Nobody waits: it is repeated, also while the broker sees that the pod still runs. */
void link_pod_remove(struct link *p, const struct uuid *pod);
/* A file of the pod's directory; `data` is copied. */
struct link_written {
	enum link_file file;
	const void *data;
	size_t size;
};
void link_write(struct link *p, struct link_call **slot, const struct uuid *pod,
    const struct link_written *w, link_done done, void *ctx);

typedef void (*link_listening)(void *ctx, const struct err *e, int fd); /* the callback owns fd */
void link_listen(struct link *p, struct link_call **slot, const struct uuid *pod,
    enum link_listener kind, link_listening done, void *ctx);

struct link_peer {
	uint64_t cookie;     /* as SO_NETNS_COOKIE shows it; 0: the kernel has none */
	uint64_t cgroup_id;  /* of the peer, the pod's or one below it; 0: not known */
	const char *unknown; /* why it is not known; "" when it is */
	size_t naddresses;
	const struct link_address *addresses; /* valid during the callback */
};
typedef void (*link_peer_known)(void *ctx, const struct err *e, const struct link_peer *n);
/* Is the peer of this accepted connection the pod's?  `fd` stays the caller's.  A refusal's code:
 * EPERM another network namespace, EACCES another cgroup, ESRCH the peer is gone, ENODATA its
 * cgroup cannot be known and `require` was asked. */
void link_peer_of(struct link *p, struct link_call **slot, const struct uuid *pod, int fd,
    link_peer_known done, void *ctx);
/* From now on peers whose cgroup cannot be known are refused (`attest: require`). */
void link_require_attestation(struct link *p);
void link_call_cancel(struct link_call **c);

/* One file as it is now.  `data` is NULL when it is gone or refused; then `e` says why. */
struct link_content {
	const char *name; /* "" unless a directory is followed */
	const char *data; /* NUL-terminated behind `size`; valid during the callback */
	size_t size;
	const struct err *e;
	bool synced;      /* a directory's start is complete; no file */
	unsigned running; /* link_running */
};
typedef void (*link_changed)(void *ctx, const struct link_content *c);
/* `changed` runs soon, then at each change; a refusal is its last call.  `pod` may be NULL. */
struct link_follow *link_follow(struct link *p, enum link_followed what, const struct uuid *pod,
    unsigned plane, link_changed changed, void *ctx);
void link_unfollow(struct link_follow **f);

/* One entry of the kept state; `data` is valid during the callback, NULL after the last one (then
 * `e`, if not NULL, says why the list is not complete). */
struct link_kept {
	enum link_state kind;
	const uint8_t *id; /* LINK_STATE_ID_SIZE bytes */
	const char *data;
	size_t size;
	const struct err *e;
};
typedef void (*link_kept_found)(void *ctx, const struct link_kept *k);
void link_state_list(struct link *p, struct link_call **slot, enum link_state kind,
    link_kept_found found, void *ctx);
/* Copied; replaces an earlier entry. */
void link_state_put(
    struct link *p, struct link_call **slot, const struct link_kept *k, link_done done, void *ctx);
/* Nobody waits: it is repeated until it is done. */
void link_state_del(struct link *p, enum link_state kind, const uint8_t *id);
/* How many of those requests were refused and wait for their next turn; `why` is that of one. */
unsigned link_insists(struct link *p, struct err *why);

/* The broker asks whether we turn (heartbeat.h).  NULL: each LINK_PING is answered as it comes. */
typedef void (*link_pinged)(void *ctx, const struct link_packet *ping);
void link_on_ping(struct link *p, link_pinged pinged, void *ctx);
void link_pong(struct link *p, uint32_t number);
/* A listener of `pod` was made again; the callback owns `fd`.  A pod has one watch; NULL: none. */
typedef void (*link_relisten)(void *ctx, enum link_listener kind, int fd);
void link_on_relisten(struct link *p, const struct uuid *pod, link_relisten again, void *ctx);

/* What the broker says unasked of a pod's directory. */
struct link_pod_note {
	unsigned lost;         /* bits, 1 << link_file: these files are gone, write them again */
	unsigned restored;     /* how much was put back so far, of all pods */
	const struct err *why; /* what could not be put back or kept; NULL: all is there */
};
typedef void (*link_pod_noted)(void *ctx, const struct link_pod_note *n);
/* `pod` has at most one such watch: the owner of its directory.  `noted` NULL: no more. */
void link_on_pod(struct link *p, const struct uuid *pod, link_pod_noted noted, void *ctx);
