/* broker_view.h - what redirection has to know of a pod's network namespace, now and at each
 * change.
 *
 * Its addresses, the indexes of the interfaces that are excluded by name; and ::6 on lo, which
 * istio adds as well (where Envoy dials the app from, ebpf-redirect.md 5).  A pod that is root in
 * there can change its addresses as often as it likes: we look again at most ten times a second.
 */
#pragma once
#include "broker/base/loop.h"
#include "broker_netns.h"
#include "broker_route.h"
#include "common/rules.h"

struct broker_view_seen {
	struct priv_packet addresses; /* naddresses, addresses: to dial from */
	uint32_t ninterfaces, interfaces[REDIRECT_INTERFACES_MAX]; /* of those that exist */
	uint32_t nroutes;
	struct redirect_cidr routes[BROKER_ROUTES_MAX]; /* what stays inside, what is excluded */
};
typedef void (*broker_view_changed)(void *ctx, const struct broker_view_seen *seen);

/* Embed it zeroed; stays where it is while it is open. */
struct broker_view {
	struct broker_watch watch; /* netlink, of that namespace */
	struct broker_timer timer;
	int epoll, netns; /* ours */
	const struct broker_netns_home *home;
	const struct redirect_rules *(*rules)(void *ctx); /* names of interfaces; NULL: none */
	broker_view_changed changed;
	void *ctx;
};

/* Looks, fills in `seen`, and tells `changed` from then on.  `netns` stays the caller's. */
int broker_view_open(
    struct broker_view *v, int netns, struct broker_view_seen *seen, struct broker_why *w);
/* Once more, now: the rules changed. */
int broker_view_look(struct broker_view *v, struct broker_view_seen *seen, struct broker_why *w);
bool broker_view_is_of(const struct broker_view *v, int netns);
void broker_view_close(struct broker_view *v);
