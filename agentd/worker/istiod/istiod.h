/* istiod.h - one control plane of the node's configuration: roots, server name, connections.
 *
 * The root certificate is followed; a changed one makes new channels for new streams while old
 * streams live on with theirs.  Streams are opened by turns: there they wait for the root, for the
 * connection and for their place in the queue (turnstile.h).  A stream that stays holds a lease and
 * is told to move when istiod wants its connection gone (pool.h).  Two control planes share
 * nothing.  On a shared connection no client certificate is presented: it would win over the pod's
 * token (istio-agent.md 13.2); a pod that has one has a connection of its own (own.h).
 */
#pragma once
#include "common/uuid.h"
#include "rpc/channel.h"
#include <jansson.h>

struct istiod;
struct istiod_lease;
struct istiod_turn;
struct loop;
struct link;

/* Strings are borrowed from the configuration and outlive the istiod. */
struct istiod_options {
	const char *name;    /* unique among the control planes */
	const char *address; /* "host:port" */
	const char *root;    /* "SYSTEM", or "": the broker knows the file by index */
	const char *server_name;
	const char *trust_domain; /* "": the first one that a certificate names */
	const char *cluster_id, *mesh_id;
	/* What these were before, by commas; NULL or "": nothing else. */
	const char *former_trust_domains, *former_cluster_ids, *former_mesh_ids;
	unsigned connections;      /* 1..16 */
	unsigned opens_per_second; /* streams opened, 1..1000; below the smallest istiod's limit */
	unsigned opens_burst;      /* 1..1000 */
	unsigned pod_opens_per_second, pod_opens_burst; /* the same of one pod */
	unsigned unread_stream_s;   /* how long an Envoy may leave a full queue unread */
	unsigned hold_empty_push_s; /* how long a first push that removes all is held; 0: not */
};

struct istiod *istiod_new(
    struct loop *l, struct rpc *r, struct link *p, const struct istiod_options *o, unsigned index);
void istiod_free(struct istiod **i); /* all turns must be gone */
const struct istiod_options *istiod_options(const struct istiod *i);
struct loop *istiod_loop(const struct istiod *i);
/* The trust domain in force; "" while none was configured or seen. */
const char *istiod_trust_domain(const struct istiod *i);
/* Those of certificates that are taken: that one and the former ones, by commas. */
const char *istiod_trust_domains(const struct istiod *i);
void istiod_learn_trust_domain(
    struct istiod *i, const char *trust_domain); /* only the first counts */

/* `c` is valid during the callback: open the stream there. */
typedef void (*istiod_granted)(void *ctx, struct rpc_channel *c);
/* A turn to open one stream for this pod (its streams stay on one connection).  A turn waits as
 * long as it takes. */
void istiod_turn(struct istiod *i, struct istiod_turn **slot, const struct uuid *pod,
    istiod_granted granted, void *ctx);
/* The same for a request for a certificate, which goes first. */
void istiod_csr_turn(struct istiod *i, struct istiod_turn **slot, const struct uuid *pod,
    istiod_granted granted, void *ctx);
void istiod_turn_cancel(struct istiod_turn **t);

struct istiod_stream {
	const char *method;
	const char *token; /* NULL: none */
	unsigned
	    deadline_ms; /* 0: none, and it fails at once if the connection broke since the turn */
	const struct rpc_events *events;
	void *ctx;
	bool in_turn; /* what comes is read when there is room for it (base/rpc/channel.h) */
};
/* rpc_open() with what every stream to istiod carries: clusterid and the token. */
int istiod_open(struct istiod *i, struct rpc_channel *c, struct rpc_stream **slot,
    const struct istiod_stream *s, struct err *e);

/* The connection goes: end the stream and take a turn.  The lease is over, its slot NULL. */
typedef void (*istiod_move)(void *ctx);
/* For a stream just opened on `c` that is to stay; ended by its owner when the stream ends. */
void istiod_lease(struct istiod *i, struct istiod_lease **slot, const struct rpc_channel *c,
    istiod_move move, void *ctx);
void istiod_lease_end(struct istiod_lease **l);
/* This pod harmed its shared connection.  The second time it gets its own for 10 min. */
void istiod_blame(struct istiod *i, const struct uuid *pod, const char *why);

/* Why no stream can be opened; "" if one can.  Valid until something changes. */
const char *istiod_why_not(const struct istiod *i);
bool istiod_connected(const struct istiod *i); /* by one of its connections, now */
/* When the first of its root certificates expires, Unix s; 0: the system's, or none yet. */
int64_t istiod_root_expires(const struct istiod *i);
/* name, address, root, root_expires, root_note: what of the file is left out, trust_domain,
 * connected, connections[{state, streams, quarantine}], waiting, why_not: until the first
 * connection it is there, too */
json_t *istiod_dump(const struct istiod *i);
