/* pool.h - the few connections to one control plane, and the streams on them.
 *
 * The first connection is kept up from the start, pods or not: so it is known whether the control
 * plane can be reached at all.  The others are made when a pod wants them.
 *
 * A pod's streams share a connection (its uid chooses).  A pod that misbehaves has its own for 10
 * minutes (security-rules.md 8).  A stream that is to outlive its opening holds a lease.  When
 * istiod wants a connection gone (GOAWAY: READY -> IDLE is all one sees of it), new streams go to a
 * new one at once and the old ones are asked to move, oldest first, at the pace at which they can
 * come back but within istiod's grace of 11 s (istiod-live.md 3).
 */
#pragma once
#include "common/uuid.h"
#include "rpc/channel.h"
#include <jansson.h>

struct istiod_lease;
struct istiod_options;
struct loop;
struct pool;

/* A connection became ready, was replaced, or told why it fails. */
typedef void (*pool_changed)(void *ctx);
typedef void (*pool_move)(void *ctx); /* the lease is over, its slot NULL */

/* `o` outlives the pool. */
struct pool *pool_new(
    struct loop *l, struct rpc *r, const struct istiod_options *o, pool_changed changed, void *ctx);
void pool_free(struct pool **p); /* all leases are gone */

/* Before the first connection: it is this pod's alone, and its streams move to a connection that
 * takes the place of theirs, as soon as that is ready. */
void pool_own(struct pool *p, const struct uuid *pod);
/* What connections to come show of their client; NULL: nothing.  Copied. */
void pool_present(struct pool *p, const char *key_pem, const char *chain_pem);
/* Connections for the streams to come; those there are live as long as they are leased. */
void pool_connect(struct pool *p, const char *roots_pem);
bool pool_connectable(const struct pool *p); /* pool_connect() was called */
bool pool_connected(const struct pool *p);   /* one of them is there now */
bool pool_ever_connected(const struct pool *p);
/* The connections to come, of one that was told pool_own(). */
void pool_connect_now(struct pool *p);
bool pool_is_ready(const struct pool *p), pool_fails(const struct pool *p);
/* Is this one of its connections, or was it? */
bool pool_has(const struct pool *p, const struct rpc_channel *c);
/* The channel for this pod's next stream; NULL: not ready, but told to connect. */
struct rpc_channel *pool_channel(struct pool *p, const struct uuid *pod);

void pool_lease(struct pool *p, struct istiod_lease **slot, const struct rpc_channel *c,
    pool_move move, void *ctx);
void pool_lease_end(struct istiod_lease **lease);
/* A stream of this pod harmed its connection; the second time moves the pod away. */
void pool_blame(struct pool *p, const struct uuid *pod, const char *why);
void pool_quarantine(struct pool *p, const struct uuid *pod, const char *why);

const char *pool_why_not(const struct pool *p); /* why a connection cannot be made; "" */
json_t *pool_dump(const struct pool *p);        /* [{state, streams, quarantine}] */
