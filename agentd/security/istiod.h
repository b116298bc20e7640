/* istiod.h - one control plane of the node's configuration: roots, server name, connections.
 *
 * The root certificate is followed; a changed one makes new channels for new streams while old
 * streams live on with theirs.  Streams are opened by turns, which is where they wait for the root
 * and (later) for their place in the queue.  No client certificate is ever presented: it would win
 * over the pod's token (istio-agent.md 13.2).
 */
#pragma once
#include "../base/rpc_channel.h"
#include "../base/uuid.h"
#include <jansson.h>

struct istiod;
struct istiod_turn;
struct loop;
struct priv;

/* Strings are borrowed from the configuration and outlive the istiod. */
struct istiod_options {
	const char *name;    /* unique among the control planes */
	const char *address; /* "host:port" */
	const char *root;    /* "SYSTEM", or whatever: the broker knows the file by index */
	const char *server_name;
	const char *trust_domain; /* "": the first one that a certificate names */
	const char *cluster_id, *mesh_id;
	unsigned connections; /* 1..16 */
};

struct istiod *istiod_new(
    struct loop *l, struct rpc *r, struct priv *p, const struct istiod_options *o, unsigned index);
void istiod_free(struct istiod **i); /* all turns must be gone */
const struct istiod_options *istiod_options(const struct istiod *i);
/* The trust domain in force; "" while none was configured or seen. */
const char *istiod_trust_domain(const struct istiod *i);
void istiod_learn_trust_domain(
    struct istiod *i, const char *trust_domain); /* only the first counts */

/* `c` is valid during the callback: open the stream there. */
typedef void (*istiod_granted)(void *ctx, struct rpc_channel *c);
/* A turn to open one stream for this pod (its streams stay on one connection). */
void istiod_turn(struct istiod *i, struct istiod_turn **slot, const struct uuid *pod,
    istiod_granted granted, void *ctx);
void istiod_turn_cancel(struct istiod_turn **t);

/* rpc_open() with what every stream to istiod carries: clusterid and, unless it is NULL, the token.
 */
int istiod_open(struct istiod *i, struct rpc_channel *c, struct rpc_stream **slot,
    const char *method, const char *token, unsigned deadline_ms, const struct rpc_events *ev,
    void *ctx, struct err *e);

json_t *istiod_dump(const struct istiod *i); /* name, address, root, connections[].state, why_not */
