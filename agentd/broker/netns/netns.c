/* netns.c - SIOCGSKNS, then a short visit.
 *
 * The accepted side of a unix connection belongs to the namespace of the connecting *socket*, so
 * the question needs no pid and has an answer even after the peer died (process-split.md 2).  We
 * then go there, list the addresses, and come back; a broker that could not come back would make
 * the next pod's acts in this pod's namespace: it aborts.
 */
#include "netns.h"
#include "address.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/nsfs.h>
#include <linux/sockios.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

LOG_SCOPE("broker");

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

#define KEPT_NAME "host-netns"
#define NAMES "/run/netns"

bool netns_same(const struct netns_id *a, const struct netns_id *b)
{
	if (a->cookie && b->cookie)
		return a->cookie == b->cookie;
	return a->ino && a->dev == b->dev && a->ino == b->ino;
}

static struct netns_id id_of(const struct stat *st)
{
	return (struct netns_id){.dev = st->st_dev, .ino = st->st_ino};
}

/* Of the socket's namespace; an accepted one's is the connecting socket's (decisions.md 4). */
static uint64_t cookie_of(int socket)
{
	uint64_t cookie = 0;
	socklen_t len = sizeof(cookie);

	return getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &len) ? 0 : cookie;
}

uint64_t netns_cookie(void)
{
	auto_close int here = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	return cookie_of(here);
}

static bool is_netns(int fd)
{
	return ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWNET;
}

/* Refused to a broker with fewer capabilities than pid 1, as one is that was executed anew; it has
 * what the one before it saw.  -1: nobody ever saw it, our own is the host's then. */
static int open_init(struct broker_fdstore *k)
{
	auto_close int kept = broker_fdstore_take(k, KEPT_NAME);
	int fd = open("/proc/1/ns/net", O_RDONLY | O_CLOEXEC);

	/* Instead of saying no 5.10 opens the link's directory. */
	if (fd >= 0 && !is_netns(fd)) {
		close(fd);
		fd = -1;
	}
	if (fd < 0 && is_netns(kept))
		return take_fd(kept);
	broker_fdstore_drop(k, KEPT_NAME); /* systemd may have one */
	return fd;
}

int netns_home_open(struct netns_home *h, struct broker_fdstore *k, struct err *e)
{
	struct stat st;

	h->fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (h->fd < 0 || fstat(h->fd, &st))
		return err_sys(e, "/proc/self/ns/net");
	h->own = h->init = id_of(&st);
	h->own.cookie = netns_cookie();
	h->init_fd = open_init(k);
	if (h->init_fd < 0)
		return 0;
	if (fstat(h->init_fd, &st))
		return err_sys(e, "/proc/1/ns/net");
	h->init = id_of(&st);
	broker_fdstore_put(k, KEPT_NAME, h->init_fd);
	return 0;
}

void netns_home_close(struct netns_home *h)
{
	mem_closep(&h->fd);
	mem_closep(&h->init_fd);
}

bool netns_is_home(const struct netns_home *h, int netns)
{
	struct netns_id id;
	struct stat st;

	if (fstat(netns, &st))
		return true; /* nobody's at least */
	id = id_of(&st);
	return netns_same(&id, &h->own) || netns_same(&id, &h->init);
}

bool netns_is_own(const struct netns_home *h, int netns)
{
	struct stat st;

	return !fstat(netns, &st) && st.st_dev == h->own.dev && st.st_ino == h->own.ino;
}

static int socket_option(int fd, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) ? -1 : value;
}

int netns_of(const struct netns_home *h, int conn, struct netns_id *id, struct err *e)
{
	struct stat st;
	int fd;

	if (socket_option(conn, SO_DOMAIN) != AF_UNIX ||
	    socket_option(conn, SO_TYPE) != SOCK_STREAM || socket_option(conn, SO_ACCEPTCONN) != 0)
		return err_set(e, ENOTSOCK, "the descriptor is no unix stream connection");
	fd = ioctl(conn, SIOCGSKNS);
	if (fd < 0)
		return err_sys(e, "SIOCGSKNS");
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (fstat(fd, &st)) {
		close(fd);
		return err_sys(e, "network namespace of the connection");
	}
	*id = id_of(&st);
	id->cookie = cookie_of(conn);
	if (netns_same(id, &h->own) || netns_same(id, &h->init)) {
		close(fd);
		return err_set(e, EPERM,
		    "the peer is in the node's own network namespace; a pod needs one of its own");
	}
	return fd;
}

int netns_visit(const struct netns_home *h, int netns, netns_act act, void *ctx, struct err *e)
{
	int rc;

	if (setns(netns, CLONE_NEWNET))
		return err_sys(e, "setns");
	rc = act(ctx, e);
	if (setns(h->fd, CLONE_NEWNET)) {
		log_error(NULL, "cannot leave a pod's network namespace: %m");
		abort();
	}
	return rc;
}

static int list_addresses(void *ctx, struct err *e)
{
	return netns_address_list(ctx, false, e);
}

static int list_addresses_of_machine(void *ctx, struct err *e)
{
	return netns_address_list(ctx, true, e);
}

int netns_describe(
    const struct netns_home *h, struct netns_looked_at at, struct link_packet *out, struct err *e)
{
	return netns_visit(
	    h, at.netns, at.machine ? list_addresses_of_machine : list_addresses, out, e);
}

struct named {
	uint64_t cookie;
	int fd;
};

/* Opened anew: an fd of the name would keep that from being taken away. */
static int look_at_named(void *ctx, struct err *e)
{
	struct named *n = ctx;
	auto_close int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (sock < 0 || cookie_of(sock) != n->cookie)
		return -1;
	n->fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	return n->fd < 0 ? err_sys(e, "/proc/self/ns/net") : 0;
}

int netns_named(const struct netns_home *h, const char *name, uint64_t cookie)
{
	struct named n = {.cookie = cookie, .fd = -1};
	char path[PATH_MAX];
	struct err e;

	snprintf(path, sizeof(path), NAMES "/%s", name);
	auto_close int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || !cookie || !is_netns(fd))
		return -1;
	netns_visit(h, fd, look_at_named, &n, &e);
	return n.fd;
}
