/* said.c - see said.h. */
#include "said.h"
#include "common/mem.h"
#include "rpc/rpc.h"
#include <string.h>
#include <utlist.h>

void ads_said_add(struct ads_said *k, const struct rpc_msg *m)
{
	size_t n, len = rpc_msg_size(m);
	const struct iovec *iov = rpc_msg_iov(m, &n);
	struct ads_said_msg *copy = mem_zalloc(sizeof(*copy) + len);
	char *at = copy->bytes;

	copy->len = len;
	for (size_t i = 0; i < n; i++)
		at = mempcpy(at, iov[i].iov_len ? iov[i].iov_base : "", iov[i].iov_len);
	LL_APPEND(k->first, copy);
	k->size += len;
}

void ads_said_clear(struct ads_said *k)
{
	struct ads_said_msg *m, *next;

	LL_FOREACH_SAFE (k->first, m, next)
		free(m);
	*k = (struct ads_said){0};
}

struct pbwire ads_said_reader(const struct ads_said_msg *m, struct iovec *whole)
{
	struct pbwire r;

	*whole = (struct iovec){(char *)m->bytes, m->len};
	pbwire_init(&r, whole, 1);
	return r;
}
