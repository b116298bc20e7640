/* address.c - one dump of addresses by rtnetlink, cut off where it gets unreasonable.
 *
 * Not getifaddrs(): a pod may be root in its network namespace and make a million interfaces and
 * addresses there; all of them would be read into our memory.  The order is that of Go's
 * net.Interfaces(), and so of pilot-agent: by interface, IPv4 before IPv6.
 * A machine has bridges of container engines, and networks that the mesh does not know: there
 * the interfaces that lead out come first.
 */
#include "address.h"
#include "common/err.h"
#include "common/mem.h"
#include "netlink.h"
#include <arpa/inet.h>
#include <linux/ethtool.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { FOUND_MAX = 64 };

/* How well an interface leads out. */
enum rank { DEFAULT_ROUTE, GATEWAY, NEIGHBOURS, BRIDGE };

struct found {
	int sock;
	int asked; /* the interface of `counts` */
	bool counts;
	bool has_default[2]; /* of IPv4, IPv6: the kernel tells the best one first */
	unsigned n;
	struct {
		int interface;
		enum rank rank;
		struct link_address address;
	} list[FOUND_MAX]; /* by interface, else as they came */
};

static bool interface_counts(struct found *f, int interface)
{
	struct ifreq ifr = {.ifr_ifindex = interface};

	if (f->asked == interface)
		return f->counts;
	f->asked = interface;
	f->counts = !ioctl(f->sock, SIOCGIFNAME, &ifr) && !ioctl(f->sock, SIOCGIFFLAGS, &ifr) &&
		    (ifr.ifr_flags & IFF_UP) && !(ifr.ifr_flags & IFF_LOOPBACK);
	return f->counts;
}

/* Loopback and link-local addresses do not count, nor what is no unicast address. */
static bool address_counts(const struct link_address *a)
{
	struct in6_addr v6;
	uint32_t v4;

	if (a->family == AF_INET) {
		memcpy(&v4, a->bytes, sizeof(v4));
		v4 = ntohl(v4);
		return v4 != INADDR_ANY && v4 >> 24 != 127 && v4 >> 16 != 0xa9fe &&
		       !IN_MULTICAST(v4);
	}
	memcpy(&v6, a->bytes, sizeof(v6));
	return !IN6_IS_ADDR_UNSPECIFIED(&v6) && !IN6_IS_ADDR_LOOPBACK(&v6) &&
	       !IN6_IS_ADDR_LINKLOCAL(&v6) && !IN6_IS_ADDR_MULTICAST(&v6);
}

static void add(struct found *f, int interface, const struct link_address *a)
{
	unsigned at = f->n;

	for (unsigned i = 0; i < f->n; i++)
		if (!memcmp(&f->list[i].address, a, sizeof(*a)))
			return;
	if (f->n == FOUND_MAX)
		return;
	while (at > 0 && f->list[at - 1].interface > interface)
		at--;
	memmove(&f->list[at + 1], &f->list[at], (f->n - at) * sizeof(f->list[0]));
	f->list[at].interface = interface;
	f->list[at].address = *a;
	f->n++;
}

/* IFA_LOCAL is our end of a point-to-point link, IFA_ADDRESS the other's; IPv6 has mostly no LOCAL.
 */
static void take_address(void *ctx, struct nlmsghdr *h)
{
	struct found *f = ctx;
	const struct ifaddrmsg *m = NLMSG_DATA(h);
	size_t size = m->ifa_family == AF_INET ? 4 : 16;
	struct link_address a = {.family = m->ifa_family};
	bool have = false, local = false;
	int left = (int)IFA_PAYLOAD(h);

	if (m->ifa_family != AF_INET && m->ifa_family != AF_INET6)
		return;
	for (struct rtattr *r = IFA_RTA(m); RTA_OK(r, left); r = RTA_NEXT(r, left)) {
		bool is_local = r->rta_type == IFA_LOCAL;
		if (RTA_PAYLOAD(r) != size || local || (!is_local && r->rta_type != IFA_ADDRESS))
			continue;
		memcpy(a.bytes, RTA_DATA(r), size);
		have = true;
		local = is_local;
	}
	if (have && address_counts(&a) && interface_counts(f, (int)m->ifa_index))
		add(f, (int)m->ifa_index, &a);
}

static bool is_bridge(const struct found *f, int interface)
{
	struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
	struct ifreq ifr = {.ifr_ifindex = interface};

	if (ioctl(f->sock, SIOCGIFNAME, &ifr))
		return false;
	ifr.ifr_data = (void *)&driver;
	return !ioctl(f->sock, SIOCETHTOOL, &ifr) && !strcmp(driver.driver, "bridge");
}

static void take_gateway(void *ctx, struct nlmsghdr *h)
{
	struct found *f = ctx;
	const struct rtmsg *m = NLMSG_DATA(h);
	const bool v6 = m->rtm_family == AF_INET6, all = !m->rtm_dst_len;
	int left = (int)RTM_PAYLOAD(h), interface = 0;
	bool gateway = all;
	enum rank rank;

	if (m->rtm_table != RT_TABLE_MAIN || m->rtm_type != RTN_UNICAST)
		return;
	for (struct rtattr *r = RTM_RTA(m); RTA_OK(r, left); r = RTA_NEXT(r, left)) {
		if (r->rta_type == RTA_OIF && RTA_PAYLOAD(r) == sizeof(interface))
			memcpy(&interface, RTA_DATA(r), sizeof(interface));
		gateway = gateway || r->rta_type == RTA_GATEWAY || r->rta_type == RTA_VIA;
	}
	if (!gateway)
		return;
	rank = all && !f->has_default[v6] ? DEFAULT_ROUTE : GATEWAY;
	f->has_default[v6] |= all;
	for (unsigned i = 0; i < f->n; i++)
		if (f->list[i].interface == interface && f->list[i].rank > rank)
			f->list[i].rank = rank;
}

/* Of one rank they stay as they are. */
static void order_by_rank(struct found *f)
{
	for (unsigned i = 1; i < f->n; i++)
		for (unsigned at = i; at && f->list[at - 1].rank > f->list[at].rank; at--) {
			const typeof(*f->list) next = f->list[at];

			f->list[at] = f->list[at - 1];
			f->list[at - 1] = next;
		}
}

static int put_outward_first(struct found *f)
{
	static const struct {
		struct nlmsghdr h;
		struct rtmsg m;
	} question = {.h = {.nlmsg_len = sizeof(question),
			  .nlmsg_type = RTM_GETROUTE,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};
	const struct netns_netlink_dump dump = {
	    &question.h, RTM_NEWROUTE, sizeof(struct rtmsg), take_gateway, f};

	for (unsigned i = 0; i < f->n; i++)
		f->list[i].rank = is_bridge(f, f->list[i].interface) ? BRIDGE : NEIGHBOURS;
	if (netns_netlink_dump(f->sock, &dump))
		return -1;
	order_by_rank(f);
	return 0;
}

int netns_address_list(struct link_packet *out, bool outward_first, struct err *e)
{
	static const struct {
		struct nlmsghdr h;
		struct ifaddrmsg m;
	} question = {.h = {.nlmsg_len = sizeof(question),
			  .nlmsg_type = RTM_GETADDR,
			  .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP}};
	auto_close int sock = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	struct found f = {.sock = sock, .asked = -1};
	const struct netns_netlink_dump dump = {
	    &question.h, RTM_NEWADDR, sizeof(struct ifaddrmsg), take_address, &f};

	if (sock < 0 || netns_netlink_dump(sock, &dump) || (outward_first && put_outward_first(&f)))
		return err_sys(e, "addresses of the pod");
	out->naddresses = f.n < LINK_ADDRESSES_MAX ? f.n : LINK_ADDRESSES_MAX;
	for (unsigned i = 0; i < out->naddresses; i++)
		out->addresses[i] = f.list[i].address;
	return 0;
}
