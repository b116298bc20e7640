/* portion.c - a portion was taken -> EPOLL_CTL_MOD with the same event: of a descriptor that is
 * ready that makes another report, at the end of the list.
 */
#include "portion.h"

void rpc_portion_polled(struct rpc_portion *p, int epoll, const struct epoll_event *event)
{
	*p = (struct rpc_portion){.polled = true, .epoll = epoll, .event = *event};
}

void rpc_portion_read(struct rpc_portion *p, ssize_t n)
{
	p->taken = n < 0 ? 0 : p->taken + n;
}

bool rpc_portion_is_over(const struct rpc_portion *p)
{
	return p->polled && p->taken >= RPC_PORTION;
}

bool rpc_portion_next(struct rpc_portion *p, int fd)
{
	p->taken = 0;
	return epoll_ctl(p->epoll, EPOLL_CTL_MOD, fd, &p->event) == 0;
}
