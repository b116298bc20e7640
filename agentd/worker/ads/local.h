/* local.h - the types of an ADS stream that agentd takes itself, and Envoy never sees
 * (istio-agent.md 1.4-1.5).
 */
#pragma once
#include "discovery.h"

struct account_type;
struct ads_account;
struct local;
struct rpc_stream;

struct ads_local { /* embed it zeroed */
	struct local *first;
};

/* Consumes a response instead of Envoy; -1 becomes a NACK with the text of `e`. */
typedef int (*local_handler)(void *ctx, const struct rpc_msg *response, struct err *e);

void ads_local_clear(struct ads_local *l);
/* The order of these calls is the order of the subscriptions. */
void ads_local_add(struct ads_local *l, const char *url, local_handler handler, void *ctx);
/* To istiod, one request for each. */
void ads_local_subscribe(
    const struct ads_local *l, enum discovery_flavour f, struct rpc_stream *up);

struct local_stream {
	enum discovery_flavour flavour;
	struct rpc_stream *up;
	struct ads_account *account;
};
/* An ACK, or with `why` a NACK, to istiod and in the account; `t` may be NULL. */
void ads_local_answer(const struct local_stream *at, struct account_type *t,
    const struct discovery_response *r, const char *why);
/* False: agentd does not take this type.  Else it was handled and answered with an ACK or a NACK.
 */
bool ads_local_take(const struct ads_local *l, const struct local_stream *at,
    const struct discovery_response *r, const struct rpc_msg *m);
