/* dns_servers.c - addresses of the pod's plan first, else the node's list. */
#include "dns_servers.h"
#include "mesh/traffic.h"
#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { ADDRESS_BITS = 128 };

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};

static struct dns_server server_of(const struct redirect_address *a)
{
	struct dns_server s = {.family = AF_INET6};

	memcpy(s.address.bytes, a->word, sizeof(s.address.bytes));
	if (memcmp(s.address.bytes, mapped, sizeof(mapped)) != 0)
		return s;
	s = (struct dns_server){.family = AF_INET};
	memcpy(s.address.bytes, &a->word[3], sizeof(a->word[3]));
	return s;
}

static void read_list(const char *list, struct dns_server *out, size_t *n)
{
	char text[INET6_ADDRSTRLEN];

	for (const char *at = list; *at && *n < DNS_SERVERS_MAX;) {
		size_t length = strcspn(at, ",");
		struct dns_server s = {.family = memchr(at, ':', length) ? AF_INET6 : AF_INET};

		snprintf(text, sizeof(text), "%.*s", (int)length, at);
		if (length < sizeof(text) && inet_pton(s.family, text, s.address.bytes) == 1)
			out[(*n)++] = s;
		at += length + (at[length] == ',');
	}
}

bool pod_dns_servers(
    const struct redirect_plan *plan, const char *node_upstream, struct dns_server *out, size_t *n)
{
	const struct redirect_rules *r = &plan->rules;

	*n = 0;
	if (plan->mode != REDIRECT_MODE_EBPF || !(r->flags & REDIRECT_DNS))
		return false;
	for (uint32_t i = 0; i < r->ncidrs && *n < DNS_SERVERS_MAX; i++)
		if ((r->cidrs[i].flags & REDIRECT_CIDR_DNS) && r->cidrs[i].bits == ADDRESS_BITS)
			out[(*n)++] = server_of(&r->cidrs[i].address);
	if (*n == 0)
		read_list(node_upstream, out, n);
	return *n > 0;
}
