/* watch.h - the facts that redirection needs of a pod's network namespace, now and at each change.
 *
 * Its addresses, the indexes of the interfaces that are excluded by name.  Two things are added to
 * lo: ::6, as istio does (where Envoy dials the app from, ebpf-redirect.md 5), and a route of type
 * `local`, ::127.15.1.0/121, where captured dials of IPv6 end (ebpf-redirect.md 13).  A pod that is
 * root in there can change its addresses as often as it likes: we look again at most ten times a
 * second.
 */
#pragma once
#include "border/protocol.h"
#include "border/rules.h"
#include "broker/base/loop.h"
#include "common/err.h"
#include "netns.h"
#include "route.h"

struct netns_watch_seen {
	uint64_t cookie;              /* 0: the kernel has none (netns.h) */
	struct link_packet addresses; /* naddresses, addresses: to dial from */
	uint32_t ninterfaces, interfaces[REDIRECT_INTERFACES_MAX]; /* of those that exist */
	uint32_t nroutes;
	struct redirect_cidr routes[NETNS_ROUTES_MAX]; /* what stays inside, what is excluded */
};
typedef void (*netns_watch_changed)(void *ctx, const struct netns_watch_seen *seen);

/* Embed it zeroed; stays where it is while it is open. */
struct netns_watch {
	struct broker_watch watch; /* netlink, of that namespace */
	struct broker_timer timer;
	int epoll, netns; /* ours */
	const struct netns_home *home;
	const struct redirect_rules *(*rules)(void *ctx); /* names of interfaces; NULL: none */
	netns_watch_changed changed;
	void *ctx;
};

/* Looks, fills in `seen`, and tells `changed` from then on.  `netns` stays the caller's. */
int netns_watch_open(
    struct netns_watch *v, int netns, struct netns_watch_seen *seen, struct err *e);
/* Once more, now: the rules changed. */
int netns_watch_look(struct netns_watch *v, struct netns_watch_seen *seen, struct err *e);
bool netns_watch_is_of(const struct netns_watch *v, int netns);
void netns_watch_close(struct netns_watch *v);
