/* account.h - for agentctl: the last push of each type, and whether Envoy accepted it.
 *
 * Counters and the last NACK outlive a stream, its nonces do not.  At most 16 types are kept.  What
 * Envoy says of the last push is its `state`: "stale" until it has answered, then "synced" or
 * "refused".
 */
#pragma once
#include "discovery.h"
#include "worker/pods/served.h"
#include <jansson.h>

struct account_type;
struct err;
struct log_budget;
struct loop;
struct ads_account { /* embed it zeroed */
	struct account_type *types;
	unsigned ntypes;
	const char *label;       /* whose, for the log; borrowed */
	struct log_budget *log;  /* of that pod; borrowed */
	const struct loop *loop; /* its wall clock; borrowed */
};

/* NULL: no account is kept of this type. */
struct account_type *ads_account_response(
    struct ads_account *a, const struct discovery_response *r);
/* How long ago the push came that this answers, in milliseconds; -1: it answers none. */
int64_t ads_account_request(struct ads_account *a, const struct discovery_request *q);
/* Accepted, or refused if there is a `nack`.  `t` may be NULL. */
void ads_account_settle(const struct ads_account *a, struct account_type *t, const char *nack);
void ads_account_stream_ended(struct ads_account *a);
/* Types of the present stream whose last push Envoy refused. */
unsigned ads_account_refused(const struct ads_account *a);
/* Of the present stream: NO if Envoy refused a push, or has not answered one for a minute. */
enum served ads_account_served(const struct ads_account *a, struct err *why);
json_t *ads_account_dump(const struct ads_account *a);
void ads_account_clear(struct ads_account *a);
