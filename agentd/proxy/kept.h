/* kept.h - messages that have to wait: copies, in order.
 *
 * How much is kept is its owner's to bound; `size` tells.
 */
#pragma once
#include "worker/base/pbwire.h"

struct rpc_msg;

struct kept_msg {
	struct kept_msg *next;
	size_t len;
	char bytes[];
};

struct kept { /* embed it zeroed */
	struct kept_msg *first;
	size_t size; /* bytes of all */
};

void kept_add(struct kept *k, const struct rpc_msg *m);
void kept_clear(struct kept *k);
/* `whole` outlives the reader. */
struct pbwire kept_reader(const struct kept_msg *m, struct iovec *whole);
