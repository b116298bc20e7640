/* discovery_account.h - for people: per type, what was pushed last, and how it was taken.
 *
 * Counters and the last NACK outlive a stream, its nonces do not.  At most 16 types are kept.
 */
#pragma once
#include "discovery.h"
#include <jansson.h>

struct account_type;
struct log_budget;
struct discovery_account { /* embed it zeroed */
	struct account_type *types;
	unsigned ntypes;
	const char *label;      /* whose, for the log; borrowed */
	struct log_budget *log; /* of that pod; borrowed */
};

/* NULL: this type is not kept account of. */
struct account_type *discovery_account_response(
    struct discovery_account *a, const struct discovery_response *r);
void discovery_account_request(struct discovery_account *a, const struct discovery_request *q);
/* Taken, or with `nack` refused.  `t` may be NULL. */
void discovery_account_settle(
    const struct discovery_account *a, struct account_type *t, const char *nack);
void discovery_account_stream_ended(struct discovery_account *a);
json_t *discovery_account_dump(const struct discovery_account *a);
void discovery_account_clear(struct discovery_account *a);
