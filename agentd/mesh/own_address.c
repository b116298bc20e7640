/* own_address.c - see own_address.h. */
#include "own_address.h"
#include <stdint.h>

static bool can_dial_v4(const struct in_addr *a)
{
	const uint32_t n = ntohl(a->s_addr);

	return n >> 24 && n >> 24 != IN_LOOPBACKNET && n >> 16 != 0xa9fe && n >> 28 < 0xe;
}

static bool can_dial_v6(const struct in6_addr *a)
{
	return !IN6_IS_ADDR_UNSPECIFIED(a) && !IN6_IS_ADDR_LOOPBACK(a) &&
	       !IN6_IS_ADDR_LINKLOCAL(a) && !IN6_IS_ADDR_MULTICAST(a);
}

bool own_address_read(const char *text, char out[INET6_ADDRSTRLEN])
{
	struct in6_addr v6;
	struct in_addr v4;

	if (inet_pton(AF_INET6, text, &v6) == 1)
		return can_dial_v6(&v6) && inet_ntop(AF_INET6, &v6, out, INET6_ADDRSTRLEN);
	return inet_pton(AF_INET, text, &v4) == 1 && can_dial_v4(&v4) &&
	       inet_ntop(AF_INET, &v4, out, INET6_ADDRSTRLEN);
}
