/* iptables.c - nftables by netlink: all chains, some kilobytes at a time; then, of those
 * tables of legacy iptables that exist already, all bytes of their rules.
 *
 * A table of the legacy kind is made by asking for it, with its hooks, so /proc is read first.  A
 * chain's name stands in its rules as text, and that is all we look for.
 */
#include "iptables.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter_ipv4/ip_tables.h>
#include <linux/netlink.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

static const char chain[] = "ISTIO_", table[] = "istio-proxy";

/* The kernel's headers and libc's do not go together. */
enum { LEVEL_IP = 0, LEVEL_IPV6 = 41 };
enum { RULES_SIZE_MAX = 1 << 20, DUMP_SIZE_MAX = 1 << 20, PATIENCE_S = 1 };

static int refuse(struct err *e, const char *kind, const char *name)
{
	return err_set(e, EEXIST,
	    "its network namespace has istio's own rules (%s, %.40s): istio-cni or istio-init "
	    "redirects it already; leave it to them: give the pod mode istio-cni or istio-init",
	    kind, name);
}

/* --- nftables --- */

static int ask_chains(int fd)
{
	const struct {
		struct nlmsghdr h;
		struct nfgenmsg g;
	} request = {.h = {.nlmsg_len = sizeof(request),
			 .nlmsg_type = NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_GETCHAIN,
			 .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
	    .g = {.version = NFNETLINK_V0}};

	return send(fd, &request, sizeof(request), 0) == sizeof(request) ? 0 : -1;
}

/* A text attribute of a message about a chain; "": not there. */
static const char *attribute(const struct nlmsghdr *h, unsigned type)
{
	size_t at = NLMSG_HDRLEN + NLMSG_ALIGN(sizeof(struct nfgenmsg));

	while (at + NLA_HDRLEN <= h->nlmsg_len) {
		const struct nlattr *a = (const void *)((const char *)h + at);
		const char *text = (const char *)a + NLA_HDRLEN;

		if (a->nla_len < NLA_HDRLEN || a->nla_len > h->nlmsg_len - at)
			break;
		if ((a->nla_type & NLA_TYPE_MASK) == type &&
		    memchr(text, '\0', a->nla_len - NLA_HDRLEN))
			return text;
		at += NLA_ALIGN(a->nla_len);
	}
	return "";
}

static int check_chain(const struct nlmsghdr *h, struct err *e)
{
	const char *of = attribute(h, NFTA_CHAIN_TABLE), *name = attribute(h, NFTA_CHAIN_NAME);

	if (!strncmp(name, chain, strlen(chain)))
		return refuse(e, "iptables-nft chain", name);
	if (!strncmp(of, table, strlen(table)))
		return refuse(e, "nftables table", of);
	return 0;
}

/* 1: there is more to come; 0: that was all; -1: found. */
static int check_part(const char *part, size_t size, struct err *e)
{
	const struct nlmsghdr *h;

	for (size_t at = 0; at + sizeof(*h) <= size; at += NLMSG_ALIGN(h->nlmsg_len)) {
		h = (const void *)(part + at);
		if (h->nlmsg_len < sizeof(*h) || h->nlmsg_len > size - at ||
		    h->nlmsg_type == NLMSG_DONE || h->nlmsg_type == NLMSG_ERROR)
			return 0;
		if (check_chain(h, e))
			return -1;
	}
	return 1;
}

static int check_nftables(struct err *e)
{
	const struct timeval patience = {.tv_sec = PATIENCE_S};
	auto_close int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER);
	char part[16 * 1024] __attribute__((aligned(NLMSG_ALIGNTO)));

	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)) ||
	    ask_chains(fd))
		return 0;
	for (size_t read = 0; read < DUMP_SIZE_MAX;) {
		ssize_t n = recv(fd, part, sizeof(part), 0);
		int rc = n > 0 ? check_part(part, (size_t)n, e) : 0;

		if (rc <= 0)
			return rc;
		read += (size_t)n;
	}
	return 0;
}

/* --- legacy iptables --- */

/* Both families' structs and numbers are alike but for the entries, which are only bytes to us. */
static int check_table(int fd, const char *name, bool v6, struct err *e)
{
	int level = v6 ? LEVEL_IPV6 : LEVEL_IP;
	struct ipt_getinfo info = {0};
	socklen_t size = sizeof(info);

	snprintf(info.name, sizeof(info.name), "%s", name);
	if (getsockopt(fd, level, IPT_SO_GET_INFO, &info, &size) || info.size > RULES_SIZE_MAX)
		return 0;
	size = (socklen_t)(sizeof(struct ipt_get_entries) + info.size);
	auto_free struct ipt_get_entries *rules = mem_zalloc(size);
	snprintf(rules->name, sizeof(rules->name), "%s", name);
	rules->size = info.size;
	if (getsockopt(fd, level, IPT_SO_GET_ENTRIES, rules, &size))
		return 0;
	if (memmem(rules->entrytable, info.size, chain, strlen(chain)))
		return refuse(e, "legacy iptables table", name);
	return 0;
}

static int check_legacy(bool v6, struct err *e)
{
	FILE *names =
	    fopen(v6 ? "/proc/self/net/ip6_tables_names" : "/proc/self/net/ip_tables_names", "re");
	auto_close int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	char name[XT_TABLE_MAXNAMELEN + 1];
	int rc = 0;

	while (names && fd >= 0 && !rc && fgets(name, sizeof(name), names)) {
		name[strcspn(name, "\n")] = '\0';
		rc = check_table(fd, name, v6, e);
	}
	if (names)
		(void)fclose(names);
	return rc;
}

int netns_iptables_check(void *unused, struct err *e)
{
	(void)unused;
	if (check_nftables(e) || check_legacy(false, e) || check_legacy(true, e))
		return -1;
	return 0;
}
