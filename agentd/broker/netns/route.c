/* route.c - the table `local`, then the main one: each dumped by itself, and cut off where
 * it gets unreasonable, so that a pod that makes many routes does not lose sight of its addresses.
 */
#include "route.h"
#include "common/mem.h"
#include "netlink.h"
#include <endian.h>
#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>

enum { V4_BITS = 96 };

struct listing {
	struct redirect_cidr *out;
	uint32_t n, nexcluded;
	const uint32_t *excluded;
	uint8_t table; /* that is asked for now */
};

static bool is_excluded(const struct listing *l, uint32_t interface)
{
	for (uint32_t i = 0; i < l->nexcluded; i++)
		if (l->excluded[i] == interface)
			return true;
	return false;
}

/* Known to be local without a row. */
static bool is_loopback(const struct redirect_cidr *c)
{
	const struct redirect_address localhost = {{0, 0, 0, htobe32(1)}};

	if (c->bits == 128 && !memcmp(&c->address, &localhost, sizeof(localhost)))
		return true;
	return c->bits >= V4_BITS + 8 && c->address.word[2] == htobe32(0xffff) &&
	       !c->address.word[0] && !c->address.word[1] &&
	       (be32toh(c->address.word[3]) >> 24) == 127;
}

/* The local table is read first, and of one prefix the kernel tells the best route first. */
static void keep_first(struct listing *l, const struct redirect_cidr *c)
{
	for (uint32_t i = 0; i < l->n; i++)
		if (l->out[i].bits == c->bits &&
		    !memcmp(&l->out[i].address, &c->address, sizeof(c->address)))
			return;
	l->out[l->n++] = *c;
}

static void take_route(void *ctx, struct nlmsghdr *h)
{
	struct listing *l = ctx;
	const struct rtmsg *m = NLMSG_DATA(h);
	bool v4 = m->rtm_family == AF_INET;
	struct redirect_cidr c = {.bits = m->rtm_dst_len + (v4 ? V4_BITS : 0)};
	int left = (int)RTM_PAYLOAD(h);
	uint32_t interface = 0;

	if ((!v4 && m->rtm_family != AF_INET6) || m->rtm_dst_len > (v4 ? 32 : 128) ||
	    m->rtm_table != l->table ||
	    m->rtm_type != (l->table == RT_TABLE_LOCAL ? RTN_LOCAL : RTN_UNICAST) ||
	    l->n == NETNS_ROUTES_MAX)
		return;
	if (v4)
		c.address.word[2] = htobe32(0xffff);
	for (struct rtattr *r = RTM_RTA(m); RTA_OK(r, left); r = RTA_NEXT(r, left)) {
		if (r->rta_type == RTA_OIF && RTA_PAYLOAD(r) == sizeof(interface))
			memcpy(&interface, RTA_DATA(r), sizeof(interface));
		else if (r->rta_type == RTA_DST && RTA_PAYLOAD(r) == (v4 ? 4 : 16))
			memcpy(
			    v4 ? &c.address.word[3] : c.address.word, RTA_DATA(r), RTA_PAYLOAD(r));
	}
	if (m->rtm_type == RTN_LOCAL)
		c.flags = REDIRECT_CIDR_LOCAL;
	else if (is_excluded(l, interface))
		c.flags = REDIRECT_CIDR_INTERFACE;
	if (!is_loopback(&c))
		keep_first(l, &c);
}

static void list_table(struct listing *l, uint8_t table)
{
	const struct {
		struct nlmsghdr h;
		struct rtmsg m;
	} question = {.h = {.nlmsg_len = sizeof(question),
			  .nlmsg_type = RTM_GETROUTE,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	    .m.rtm_table = table};
	const struct netns_netlink_dump dump = {
	    &question.h, RTM_NEWROUTE, sizeof(struct rtmsg), take_route, l};
	auto_close int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	const int only_this_table = 1;

	l->table = table;
	if (sock >= 0 && !setsockopt(sock, SOL_NETLINK, NETLINK_GET_STRICT_CHK, &only_this_table,
			     sizeof(only_this_table)))
		netns_netlink_dump(sock, &dump);
}

uint32_t netns_route_list(
    struct redirect_cidr out[NETNS_ROUTES_MAX], const uint32_t *excluded, uint32_t nexcluded)
{
	struct listing l = {.out = out, .excluded = excluded, .nexcluded = nexcluded};

	list_table(&l, RT_TABLE_LOCAL);
	if (nexcluded) /* all of it, to tell what leaves by an excluded interface from the rest */
		list_table(&l, RT_TABLE_MAIN);
	return l.n;
}
