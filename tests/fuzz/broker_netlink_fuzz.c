/* broker_netlink_fuzz.c - any bytes as a part of rtnetlink's answer: a pod that is root in its
 * network namespace chooses names, addresses and routes there.
 *
 * First byte: which list.  The rest is the part, in memory of just its size.
 * SOAK: 10000000 runs
 */
#include "broker/netns/address.c"
#include "broker/netns/netlink.c" /* its statics */
#include "broker/netns/route.c"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool held)
{
	if (!held)
		abort();
}

static void addresses(char *part, size_t size)
{
	struct found f = {.sock = -1, .asked = -1};

	/* With no socket to ask by, no interface counts; what would is added all the same. */
	f.asked = 1;
	f.counts = true;
	take_part(&(struct netns_netlink_dump){NULL, RTM_NEWADDR, sizeof(struct ifaddrmsg),
		      take_address, &f},
	    part, size);
	must(f.n <= FOUND_MAX);
	for (unsigned i = 0; i < f.n; i++) {
		must(address_counts(&f.list[i].address));
		must(!i || f.list[i - 1].interface <= f.list[i].interface);
	}
}

static void routes(char *part, size_t size, uint8_t table)
{
	static struct redirect_cidr out[NETNS_ROUTES_MAX];
	const uint32_t excluded[] = {2, 7};
	struct listing l = {.out = out, .excluded = excluded, .nexcluded = 2, .table = table};

	take_part(
	    &(struct netns_netlink_dump){NULL, RTM_NEWROUTE, sizeof(struct rtmsg), take_route, &l},
	    part, size);
	must(l.n <= NETNS_ROUTES_MAX);
	for (uint32_t i = 0; i < l.n; i++) {
		must(out[i].bits <= 128 && !is_loopback(&out[i]));
		must(table == RT_TABLE_LOCAL
			 ? out[i].flags == REDIRECT_CIDR_LOCAL
			 : out[i].flags == 0 || out[i].flags == REDIRECT_CIDR_INTERFACE);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *part;

	if (!size || !(part = malloc(size)))
		return 0;
	memcpy(part, data + 1, --size);
	if (data[0] % 3 == 0)
		addresses(part, size);
	else
		routes(part, size, data[0] % 3 == 1 ? RT_TABLE_LOCAL : RT_TABLE_MAIN);
	free(part);
	return 0;
}
