/* dial.c - kind and family checked -> may it be had now? -> a visit, a socket on a port of its own.
 *
 * The kernel chooses the port, by a socket that goes again.  A port that is asked for by its number
 * stays the socket's for good: the worker cannot have another, on which the app would be asked.
 *
 * A socket for the loopback is connected here: Landlock lets the worker dial istiod's ports only.
 *
 * A leaky bucket in one number: each socket puts the time when all may be had again off by its
 * share of a second.
 */
#include "dial.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

enum {
	SHARE_MS = 1000 / NETNS_DIAL_PER_SECOND,
	ALL_MS = NETNS_DIAL_MAX * SHARE_MS,
	TRIES = 4, /* somebody else may have the port meanwhile */
	FREE_PORTS = 1024,
	ADMIN_PORT = 15000,
	FAMILY_MASK = (1 << LINK_DIAL_PORT_SHIFT) - 1,
};

struct making {
	int family, type, fd;
	uint16_t to; /* port of the loopback; 0: it is not connected */
};

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* Of any address; -1: errno. */
static int bind_to(const struct making *m, int fd, uint16_t port)
{
	union address a = {.v6.sin6_family = (sa_family_t)m->family}; /* v4 has it there, too */
	const bool v6 = m->family == AF_INET6;

	*(v6 ? &a.v6.sin6_port : &a.v4.sin_port) = port;
	return bind(fd, &a.any, v6 ? sizeof(a.v6) : sizeof(a.v4));
}

/* In network order; 0: there is none. */
static uint16_t find_port(const struct making *m)
{
	auto_close int fd = socket(m->family, m->type | SOCK_CLOEXEC, 0);
	union address a = {.v6 = {0}};
	socklen_t size = sizeof(a);

	if (fd < 0 || bind_to(m, fd, 0) || getsockname(fd, &a.any, &size))
		return 0;
	return m->family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port;
}

static int bind_somewhere(const struct making *m, int fd)
{
	for (int i = 0; i < TRIES; i++) {
		uint16_t port = find_port(m);

		if (port && !bind_to(m, fd, port))
			return 0;
	}
	return -1;
}

static int connect_there(const struct making *m, int fd)
{
	const bool v6 = m->family == AF_INET6;
	union address a = {.v6.sin6_family = (sa_family_t)m->family};

	*(v6 ? &a.v6.sin6_port : &a.v4.sin_port) = htons(m->to);
	if (v6)
		a.v6.sin6_addr = in6addr_loopback;
	else
		a.v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return connect(fd, &a.any, v6 ? sizeof(a.v6) : sizeof(a.v4)) && errno != EINPROGRESS ? -1
											     : 0;
}

static int make_there(void *ctx, struct err *e)
{
	struct making *m = ctx;
	auto_close int fd = socket(m->family, m->type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_sys(e, "a socket of the pod");
	if (bind_somewhere(m, fd))
		return err_sys(e, "a port of the pod");
	if (m->to && connect_there(m, fd))
		return err_sys(e, "port %u of the pod's loopback", m->to);
	m->fd = take_fd(fd);
	return 0;
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
	struct making m = {.family = (int)(r->arg & FAMILY_MASK),
	    .type = r->kind == LINK_DIAL_UDP ? SOCK_DGRAM : SOCK_STREAM,
	    .to = (uint16_t)(r->arg >> LINK_DIAL_PORT_SHIFT)};
	const bool connected = r->kind == LINK_DIAL_LOOPBACK;

	if (r->kind >= LINK_DIAL_END || (m.family != AF_INET && m.family != AF_INET6) ||
	    (!connected && m.to))
		return err_set(
		    e, EINVAL, "there is no socket of kind %u and family %u", r->kind, r->arg);
	if (connected && (m.to < FREE_PORTS || m.to == ADMIN_PORT))
		return err_set(e, EACCES, "port %u of a pod's loopback is not dialled", m.to);
	if (netns < 0)
		return err_set(e, ENOTCONN, "the pod's network namespace is not known");
	if (spend(d, e) || netns_visit(home, netns, make_there, &m, e))
		return -1;
	return m.fd;
}
