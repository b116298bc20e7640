/* netlink.c - question -> parts, each of several messages -> DONE, or an error. */
#include "netlink.h"
#include <stdbool.h>
#include <sys/socket.h>

enum { PARTS_MAX = 8, PART_BYTES = 32768 };

/* False: that was the last part. */
static bool take_part(const struct netns_netlink_dump *d, char *part, size_t size)
{
	struct nlmsghdr *h;

	for (size_t at = 0; at + sizeof(*h) <= size; at += NLMSG_ALIGN(h->nlmsg_len)) {
		h = (struct nlmsghdr *)(void *)(part + at);
		if (h->nlmsg_len < sizeof(*h) || h->nlmsg_len > size - at ||
		    h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
			return false;
		if (h->nlmsg_type == d->type && h->nlmsg_len >= NLMSG_LENGTH(d->head))
			d->each(d->ctx, h);
	}
	return true;
}

/* The kernel makes each part when the previous one is taken: we never have to wait for it. */
int netns_netlink_dump(int sock, const struct netns_netlink_dump *d)
{
	char part[PART_BYTES] __attribute__((aligned(NLMSG_ALIGNTO)));
	ssize_t n;

	if (send(sock, d->question, d->question->nlmsg_len, 0) < 0)
		return -1;
	for (int i = 0; i < PARTS_MAX; i++)
		if ((n = recv(sock, part, sizeof(part), MSG_DONTWAIT)) <= 0 ||
		    !take_part(d, part, (size_t)n))
			break;
	return 0;
}
