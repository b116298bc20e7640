/* broker_netns.c - SIOCGSKNS, then a short visit.
 *
 * The accepted side of a unix connection belongs to the namespace of the connecting *socket*, so
 * the question needs no pid and has an answer even after the peer died (process-split.md 2).  We
 * then go there, make a socket to read the cookie from, list the addresses, and come back; a broker
 * that could not come back would make the next pod's acts in this pod's namespace: it aborts.
 */
#include "broker_netns.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71
#endif

bool broker_netns_same(const struct broker_netns_id *a, const struct broker_netns_id *b)
{
	return a->dev == b->dev && a->ino == b->ino;
}

static struct broker_netns_id id_of(const struct stat *st)
{
	return (struct broker_netns_id){.dev = st->st_dev, .ino = st->st_ino};
}

int broker_netns_home_open(struct broker_netns_home *h, struct broker_why *w)
{
	struct stat st;

	h->fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (h->fd < 0 || fstat(h->fd, &st))
		return broker_refuse_sys(w, "/proc/self/ns/net");
	h->own = h->init = id_of(&st);
	/* Refused to a broker with fewer capabilities than pid 1; our own is the host's then. */
	if (!stat("/proc/1/ns/net", &st))
		h->init = id_of(&st);
	return 0;
}

static int socket_option(int fd, int name)
{
	int value = -1;
	socklen_t len = sizeof(value);

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) ? -1 : value;
}

int broker_netns_of(
    const struct broker_netns_home *h, int conn, struct broker_netns_id *id, struct broker_why *w)
{
	struct stat st;
	int fd;

	if (socket_option(conn, SO_DOMAIN) != AF_UNIX ||
	    socket_option(conn, SO_TYPE) != SOCK_STREAM || socket_option(conn, SO_ACCEPTCONN) != 0)
		return broker_refuse(w, ENOTSOCK, "what was sent is no unix stream connection");
	fd = ioctl(conn, SIOCGSKNS);
	if (fd < 0)
		return broker_refuse_sys(w, "SIOCGSKNS");
	fcntl(fd, F_SETFD, FD_CLOEXEC);
	if (fstat(fd, &st)) {
		close(fd);
		return broker_refuse_sys(w, "network namespace of the connection");
	}
	*id = id_of(&st);
	if (broker_netns_same(id, &h->own) || broker_netns_same(id, &h->init)) {
		close(fd);
		return broker_refuse(w, EPERM,
		    "the peer is in the node's own network namespace; a pod needs one of its own");
	}
	return fd;
}

/* Loopback and link-local addresses do not count, nor what is no unicast address. */
static bool is_instance_address(const struct sockaddr *sa, struct priv_address *out)
{
	*out = (struct priv_address){.family = (uint8_t)sa->sa_family};
	if (sa->sa_family == AF_INET) {
		const struct in_addr *a = &((const struct sockaddr_in *)(const void *)sa)->sin_addr;
		uint32_t ip = ntohl(a->s_addr);
		memcpy(out->bytes, a, sizeof(*a));
		return ip != INADDR_ANY && ip >> 24 != 127 && ip >> 16 != 0xa9fe &&
		       !IN_MULTICAST(ip);
	}
	if (sa->sa_family == AF_INET6) {
		const struct in6_addr *a =
		    &((const struct sockaddr_in6 *)(const void *)sa)->sin6_addr;
		memcpy(out->bytes, a, sizeof(*a));
		return !IN6_IS_ADDR_UNSPECIFIED(a) && !IN6_IS_ADDR_LOOPBACK(a) &&
		       !IN6_IS_ADDR_LINKLOCAL(a) && !IN6_IS_ADDR_MULTICAST(a);
	}
	return false;
}

static void add_address(struct priv_packet *out, const struct priv_address *a)
{
	for (uint32_t i = 0; i < out->naddresses; i++)
		if (!memcmp(&out->addresses[i], a, sizeof(*a)))
			return;
	if (out->naddresses < PRIV_ADDRESSES_MAX)
		out->addresses[out->naddresses++] = *a;
}

/* An IPv4 address with a label goes by "eth0:label". */
static bool is_of(const struct ifaddrs *address, const char *interface)
{
	size_t n = strlen(interface);

	return !strncmp(address->ifa_name, interface, n) &&
	       (address->ifa_name[n] == '\0' || address->ifa_name[n] == ':');
}

/* getifaddrs() lists the interfaces, then all of IPv4, then all of IPv6; Go, and so pilot-agent,
 * goes from interface to interface. */
static int list_addresses(struct priv_packet *out, struct broker_why *w)
{
	struct ifaddrs *all;
	struct priv_address a;

	out->naddresses = 0;
	if (getifaddrs(&all))
		return broker_refuse_sys(w, "addresses of the pod");
	for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
		if (!i->ifa_addr || i->ifa_addr->sa_family != AF_PACKET ||
		    !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
			continue;
		for (const struct ifaddrs *j = all; j; j = j->ifa_next)
			if (j->ifa_addr && is_of(j, i->ifa_name) &&
			    is_instance_address(j->ifa_addr, &a))
				add_address(out, &a);
	}
	freeifaddrs(all);
	return 0;
}

static int read_cookie(uint64_t *cookie, struct broker_why *w)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	socklen_t len = sizeof(*cookie);

	*cookie = 0;
	if (fd < 0)
		return broker_refuse_sys(w, "socket in the pod's network namespace");
	int rc = getsockopt(fd, SOL_SOCKET, SO_NETNS_COOKIE, cookie, &len);
	if (rc && errno == ENOPROTOOPT)
		rc = 0; /* before 5.14 */
	else if (rc)
		broker_refuse_sys(w, "SO_NETNS_COOKIE");
	close(fd);
	return rc;
}

int broker_netns_describe(
    const struct broker_netns_home *h, int netns, struct priv_packet *out, struct broker_why *w)
{
	int rc;

	if (setns(netns, CLONE_NEWNET))
		return broker_refuse_sys(w, "setns");
	rc = read_cookie(&out->netns_cookie, w) || list_addresses(out, w) ? -1 : 0;
	if (setns(h->fd, CLONE_NEWNET)) {
		broker_log(BROKER_ERROR, NULL, "cannot leave a pod's network namespace: %m");
		abort();
	}
	return rc;
}
