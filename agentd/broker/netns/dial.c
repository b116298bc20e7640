/* dial.c - kind and family checked -> may it be had now? -> a visit, a socket.
 *
 * A leaky bucket in one number: each socket puts the time when all may be had again off by its
 * share of a second.
 */
#include "dial.h"
#include "common/err.h"
#include <errno.h>
#include <sys/socket.h>
#include <time.h>

enum {
	SHARE_MS = 1000 / NETNS_DIAL_PER_SECOND,
	ALL_MS = NETNS_DIAL_MAX * SHARE_MS,
};

struct making {
	int family, type, fd;
};

static int make_there(void *ctx, struct err *e)
{
	struct making *m = ctx;

	m->fd = socket(m->family, m->type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	return m->fd < 0 ? err_sys(e, "a socket of the pod") : 0;
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int spend(struct netns_dial *d, struct err *e)
{
	int64_t now = now_ms(), from = d->full_ms > now ? d->full_ms : now;

	if (from + SHARE_MS > now + ALL_MS)
		return err_set(
		    e, EAGAIN, "the pod has had %d sockets in a second", NETNS_DIAL_PER_SECOND);
	d->full_ms = from + SHARE_MS;
	return 0;
}

int netns_dial(struct netns_dial *d, const struct netns_home *home, int netns,
    const struct link_request *r, struct err *e)
{
	struct making m = {.family = (int)r->arg,
	    .type = r->kind == LINK_DIAL_UDP ? SOCK_DGRAM : SOCK_STREAM,
	    .fd = -1};

	if (r->kind >= LINK_DIAL_END || (r->arg != AF_INET && r->arg != AF_INET6))
		return err_set(
		    e, EINVAL, "there is no socket of kind %u and family %u", r->kind, r->arg);
	if (netns < 0)
		return err_set(e, ENOTCONN, "the pod's network namespace is not known");
	if (spend(d, e) || netns_visit(home, netns, make_there, &m, e))
		return -1;
	return m.fd;
}
