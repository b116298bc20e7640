/* requests.h - the worker's requests: each is checked before it is looked at, then answered.
 *
 * The operations are the rows of border/ops.h; each has its function in requests.c.
 */
#pragma once
#include "broker/base/io.h"
#include "common/err.h"

struct broker;

/* Has the packet the shape of its row?  If not, the worker broke the protocol and `e` says how. */
int requests_check(const struct broker_request *in, struct err *e);
/* `in` passed requests_check(); its descriptor stays the caller's. */
void requests_answer(struct broker *b, const struct broker_request *in);
/* What an earlier worker had and this one did not add goes. */
void requests_sweep(struct broker *b);
