/* netlink.h - the kernel's lists of the caller's network namespace. */
#pragma once
#include <linux/netlink.h>
#include <stddef.h>

struct netns_netlink_dump {
	const struct nlmsghdr *question; /* a dump; its length is in it */
	unsigned type;                   /* of the messages to be told */
	size_t head; /* bytes of theirs behind the nlmsghdr that must be there */
	void (*each)(void *ctx, struct nlmsghdr *h);
	void *ctx;
};
/* On a socket of NETLINK_ROUTE; bounded, and never waits.  -1: errno. */
int netns_netlink_dump(int sock, const struct netns_netlink_dump *d);
