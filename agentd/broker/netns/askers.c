/* askers.c - one dump for each family -> each socket with a peer at port 53 -> destroyed, by its
 * id. */
#include "askers.h"
#include "common/mem.h"
#include "netlink.h"
#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <string.h>
#include <sys/socket.h>

enum { DNS_PORT = 53, ENDED_MAX = 4096 /* some milliseconds */ };

struct question {
	struct nlmsghdr h;
	struct inet_diag_req_v2 r;
};

struct ending {
	int sock; /* beside that of the dump */
	uint32_t spared_uid;
	unsigned n;
};

static void end(void *ctx, struct nlmsghdr *h)
{
	const struct inet_diag_msg *m = NLMSG_DATA(h);
	struct ending *d = ctx;
	struct question q = {
	    .h = {.nlmsg_len = sizeof(q), .nlmsg_type = SOCK_DESTROY, .nlmsg_flags = NLM_F_REQUEST},
	    .r = {.sdiag_family = m->idiag_family,
		.sdiag_protocol = IPPROTO_UDP,
		.idiag_states = ~0u,
		.id = m->id}};

	if (m->id.idiag_dport == htons(DNS_PORT) && m->idiag_uid != d->spared_uid &&
	    d->n++ < ENDED_MAX)
		send(d->sock, &q, sizeof(q), MSG_DONTWAIT);
}

static void end_family(struct ending *d, uint8_t family)
{
	auto_close int sock = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	struct question q = {.h = {.nlmsg_len = sizeof(q),
				 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
				 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	    .r = {.sdiag_family = family,
		.sdiag_protocol = IPPROTO_UDP,
		.idiag_states = ~0u,
		.id.idiag_dport = htons(DNS_PORT)}};
	const struct netns_netlink_dump dump = {
	    &q.h, SOCK_DIAG_BY_FAMILY, sizeof(struct inet_diag_msg), end, d};

	if (sock >= 0)
		netns_netlink_dump(sock, &dump);
}

void netns_askers_end(uint32_t spared_uid)
{
	auto_close int sock = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	struct ending d = {.sock = sock, .spared_uid = spared_uid};

	if (sock < 0)
		return;
	end_family(&d, AF_INET);
	end_family(&d, AF_INET6);
}
