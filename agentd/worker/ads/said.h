/* said.h - messages that have to wait: copies, in order.
 *
 * The owner bounds how much is kept; `size` has the sum.
 */
#pragma once
#include "base/pbwire.h"

struct rpc_msg;

struct ads_said_msg {
	struct ads_said_msg *next;
	size_t len;
	char bytes[];
};

struct ads_said { /* embed it zeroed */
	struct ads_said_msg *first;
	size_t size; /* bytes of all */
};

void ads_said_add(struct ads_said *k, const struct rpc_msg *m);
void ads_said_clear(struct ads_said *k);
/* `whole` outlives the reader. */
struct pbwire ads_said_reader(const struct ads_said_msg *m, struct iovec *whole);
