/* watch.c - enter, subscribe, look, leave -> a notice: in a while look again, until that
 * works -> ...
 */
#include "watch.h"
#include "address.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { AGAIN_MS = 100, FAILED_MS = 1000, DRAIN_MAX = 4096, LO = 1 };

struct visit {
	struct netns_watch *view;
	struct netns_watch_seen *seen;
};

static int open_netlink(unsigned groups)
{
	struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = groups};
	auto_close int fd =
	    socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)))
		return -1;
	return take_fd(fd);
}

/* Nobody reads the answer: a namespace without IPv6 has no use for it, and one that has it says
 * EEXIST. */
static void ask(const void *request, size_t size)
{
	auto_close int fd = open_netlink(0);

	if (fd >= 0 && send(fd, request, size, 0) < 0)
		return;
}

static void add_passthrough_address(void)
{
	static const struct {
		struct nlmsghdr h;
		struct ifaddrmsg m;
		struct rtattr a;
		uint8_t address[16];
	} request = {.h = {.nlmsg_len = sizeof(request),
			 .nlmsg_type = RTM_NEWADDR,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL},
	    .m = {.ifa_family = AF_INET6, .ifa_prefixlen = 128, .ifa_index = LO},
	    .a = {.rta_len = RTA_LENGTH(16), .rta_type = IFA_LOCAL},
	    .address = {[15] = 6}};

	ask(&request, sizeof(request));
}

/* Whoever looks at the routes then knows whether it is there. */
static void add_spread_route(void)
{
	static const struct {
		struct nlmsghdr h;
		struct rtmsg m;
		struct rtattr to;
		uint8_t address[16];
		struct rtattr by;
		uint32_t interface;
	} request = {.h = {.nlmsg_len = sizeof(request),
			 .nlmsg_type = RTM_NEWROUTE,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_CREATE | NLM_F_EXCL},
	    .m = {.rtm_family = AF_INET6,
		.rtm_dst_len = REDIRECT_SPREAD_BITS,
		.rtm_table = RT_TABLE_LOCAL,
		.rtm_protocol = RTPROT_KERNEL, /* which daemons of networks leave alone */
		.rtm_type = RTN_LOCAL},
	    .to = {.rta_len = RTA_LENGTH(16), .rta_type = RTA_DST},
	    .address = {[12] = REDIRECT_SPREAD_FIRST >> 24,
		(REDIRECT_SPREAD_FIRST >> 16) & 0xff,
		(REDIRECT_SPREAD_FIRST >> 8) & 0xff,
		0},
	    .by = {.rta_len = RTA_LENGTH(4), .rta_type = RTA_OIF},
	    .interface = LO};

	ask(&request, sizeof(request));
}

static void find_interfaces(const struct redirect_rules *rules, struct netns_watch_seen *seen)
{
	auto_close int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	seen->ninterfaces = 0;
	for (uint32_t i = 0; fd >= 0 && rules && i < rules->ninterfaces; i++) {
		struct ifreq ifr = {0};

		memcpy(ifr.ifr_name, rules->interfaces[i], sizeof(ifr.ifr_name) - 1);
		if (!ioctl(fd, SIOCGIFINDEX, &ifr))
			seen->interfaces[seen->ninterfaces++] = (uint32_t)ifr.ifr_ifindex;
	}
}

static int look(void *ctx, struct err *e)
{
	struct visit *v = ctx;

	v->seen->cookie = netns_cookie();
	find_interfaces(v->view->rules(v->view->ctx), v->seen);
	v->seen->nroutes =
	    netns_route_list(v->seen->routes, v->seen->interfaces, v->seen->ninterfaces);
	return netns_address_list(&v->seen->addresses, false, e);
}

/* Subscribed first, so that no change falls between. */
static int enter(void *ctx, struct err *e)
{
	struct visit *v = ctx;

	add_passthrough_address();
	add_spread_route();
	v->view->watch.fd = open_netlink(RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR | RTMGRP_LINK |
					 RTMGRP_IPV4_ROUTE | RTMGRP_IPV6_ROUTE);
	if (v->view->watch.fd < 0)
		return err_sys(e, "netlink of the pod");
	return look(ctx, e);
}

int netns_watch_look(struct netns_watch *v, struct netns_watch_seen *seen, struct err *e)
{
	struct visit visit = {v, seen};

	memset(seen, 0, sizeof(*seen));
	return netns_visit(v->home, v->netns, look, &visit, e);
}

/* What it says does not matter, nor that some of it may be lost. */
static void drain(int netlink)
{
	char drop[4096];

	for (int i = 0; i < DRAIN_MAX; i++)
		if (recv(netlink, drop, sizeof(drop), MSG_DONTWAIT) < 0 && errno != ENOBUFS)
			return;
}

static void on_due(void *ctx)
{
	struct netns_watch *v = ctx;
	struct netns_watch_seen seen;
	struct err e;

	drain(v->watch.fd);
	if (netns_watch_look(v, &seen, &e)) {
		broker_timer_set(&v->timer, FAILED_MS);
		return;
	}
	if (broker_watch_start(v->epoll, &v->watch, EPOLLIN))
		broker_timer_set(&v->timer, AGAIN_MS);
	v->changed(v->ctx, &seen);
}

/* Until we look we do not listen either: however many there are, they cost us nothing.  Not even
 * for errors, which epoll would tell unasked: a buffer that overflows is one. */
static void on_notice(void *ctx, uint32_t events)
{
	struct netns_watch *v = ctx;

	(void)events;
	broker_watch_end(v->epoll, &v->watch);
	broker_timer_set(&v->timer, AGAIN_MS);
}

int netns_watch_open(struct netns_watch *v, int netns, struct netns_watch_seen *seen, struct err *e)
{
	struct visit visit = {v, seen};

	memset(seen, 0, sizeof(*seen));
	v->watch = (struct broker_watch){.fd = -1, .ready = on_notice, .ctx = v};
	v->netns = fcntl(netns, F_DUPFD_CLOEXEC, 0);
	if (v->netns < 0 || broker_timer_open(&v->timer, v->epoll, on_due, v)) {
		mem_closep(&v->netns);
		v->watch.ready = NULL;
		return err_sys(e, "look into the pod's network namespace");
	}
	if (netns_visit(v->home, v->netns, enter, &visit, e) ||
	    broker_watch_start(v->epoll, &v->watch, EPOLLIN)) {
		netns_watch_close(v);
		return -1;
	}
	return 0;
}

bool netns_watch_is_of(const struct netns_watch *v, int netns)
{
	struct stat a, b;

	return v->watch.ready && !fstat(v->netns, &a) && !fstat(netns, &b) &&
	       a.st_ino == b.st_ino && a.st_dev == b.st_dev;
}

void netns_watch_close(struct netns_watch *v)
{
	if (!v->watch.ready)
		return;
	broker_timer_close(&v->timer);
	if (v->watch.fd >= 0) {
		broker_watch_end(v->epoll, &v->watch);
		close(v->watch.fd);
	}
	close(v->netns);
	v->watch.ready = NULL;
}
