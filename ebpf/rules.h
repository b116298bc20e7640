/* rules.h - the decisions, one function for each direction, in the order of istio's rules.
 *
 * Compiled into the programs and into the broker's `explain`, so that both decide alike.  A file
 * that includes this defines the two look-ups below.  Each `if` is a rule of istio-agent.md 11.3;
 * its number stands beside it.
 */
#pragma once
#include "rules_types.h"

enum { RULES_TCP = 6, RULES_UDP = 17, RULES_DNS_PORT = 53 };

/* Is `number` in the pod's list?  Flags of the longest prefix that holds `a`; 0: none. */
static inline int rules_listed(__u32 index, enum redirect_port_kind kind, __u32 number);
static inline __u32 rules_cidr(__u32 index, const struct redirect_address *a);

#define RULES_V4(a, b, c, d) (__builtin_bswap32((__u32)(a) << 24 | (b) << 16 | (c) << 8 | (d)))

static inline int rules_is_v4(const struct redirect_address *a)
{
	return a->word[0] == 0 && a->word[1] == 0 && a->word[2] == __builtin_bswap32(0xffff);
}

/* 127.0.0.0/8 or ::1 */
static inline int rules_is_loopback(const struct redirect_address *a)
{
	if (rules_is_v4(a))
		return (a->word[3] & RULES_V4(255, 0, 0, 0)) == RULES_V4(127, 0, 0, 0);
	return (a->word[0] | a->word[1] | a->word[2]) == 0 && a->word[3] == __builtin_bswap32(1);
}

/* 127.0.0.1 and ::1 alone: what istio's rules call loopback.  A dial of 0.0.0.0 or :: ends there.
 */
static inline int rules_is_localhost(const struct redirect_address *a)
{
	if (rules_is_v4(a))
		return a->word[3] == RULES_V4(127, 0, 0, 1) || a->word[3] == 0;
	return (a->word[0] | a->word[1] | a->word[2]) == 0 &&
	       (a->word[3] == __builtin_bswap32(1) || a->word[3] == 0);
}

/* 127.0.0.6 and ::6: where Envoy and the agent dial the app from. */
static inline int rules_is_passthrough(const struct redirect_address *a)
{
	if (rules_is_v4(a))
		return a->word[3] == RULES_V4(127, 0, 0, 6);
	return (a->word[0] | a->word[1] | a->word[2]) == 0 && a->word[3] == __builtin_bswap32(6);
}

/* Is it from there?  The kernel dials ::6 from ::6 itself. */
static inline int rules_from_passthrough(const struct redirect_flow *f)
{
	const struct redirect_address *s = &f->source;

	return rules_is_passthrough(s) ||
	       (!(s->word[0] | s->word[1] | s->word[2] | s->word[3]) && !rules_is_v4(&f->address) &&
		   rules_is_passthrough(&f->address));
}

/* Ids of a pod with a user namespace of its own are k * 65536 + n on the node (the kubelet's rule).
 */
static inline int rules_same_id(__u32 id, __u32 wanted)
{
	return (id & 0xffff) == (wanted & 0xffff);
}

/* Rules 7 to 10: also for what is DNS, while nobody answers it. */
static inline enum redirect_verdict rules_beyond_dns(
    const struct redirect_pod *p, const struct redirect_flow *f, __u32 cidr)
{
	if (rules_is_localhost(&f->address))
		return REDIRECT_PASS_LOOPBACK; /* 7 */
	if (cidr & REDIRECT_CIDR_EXCLUDE)
		return REDIRECT_PASS_CIDR_EXCLUDED; /* 8 */
	if (f->protocol != RULES_TCP)
		return REDIRECT_PASS_NOT_TCP; /* the targets of 9 and 10 take TCP only */
	if (rules_listed(p->index, REDIRECT_PORT_OUTBOUND_INCLUDE, f->port))
		return REDIRECT_TO_OUTBOUND_PORT; /* 9 */
	if ((p->flags & REDIRECT_OUTBOUND_ALL) || (cidr & REDIRECT_CIDR_INCLUDE))
		return REDIRECT_TO_OUTBOUND; /* 10 */
	return REDIRECT_PASS_NOT_INCLUDED;
}

static inline enum redirect_verdict rules_outbound(
    const struct redirect_pod *p, const struct redirect_flow *f)
{
	__u32 cidr = rules_cidr(p->index, &f->address);
	int localhost = rules_is_localhost(&f->address);
	int local = localhost || rules_is_loopback(&f->address) ||
		    rules_is_passthrough(&f->address) || (cidr & REDIRECT_CIDR_LOCAL);
	int tcp = f->protocol == RULES_TCP;
	int dns_port = (p->flags & REDIRECT_DNS) && f->port == RULES_DNS_PORT;
	/* 3a, 4a: what the proxy dials in its own pod, as if it came from outside. */
	int to_self = local && !localhost && tcp && f->port != p->tunnel_port;
	/* 3b, 4b: what others dial there.  With DNS the rules look at TCP only, and not at port 53.
	 */
	int stays = local && !(p->flags & REDIRECT_LOOPBACK_INCLUDED) &&
		    (!(p->flags & REDIRECT_DNS) || (tcp && !dns_port));

	if ((cidr & REDIRECT_CIDR_INTERFACE) && !local)
		return REDIRECT_PASS_INTERFACE; /* before ISTIO_OUTPUT; a default route covers lo */
	if (rules_listed(p->index, REDIRECT_PORT_OUTBOUND_EXCLUDE, f->port))
		return REDIRECT_PASS_PORT_EXCLUDED; /* 1 */
	if (local && rules_from_passthrough(f))
		return REDIRECT_PASS_PROXY_PASSTHROUGH; /* 2 */
	if (rules_same_id(f->uid, p->proxy_uid))
		return to_self && !dns_port ? REDIRECT_TO_SELF
					    : REDIRECT_PASS_PROXY_UID; /* 3a, 3c */
	if (stays)
		return REDIRECT_PASS_LOCAL; /* 3b: 4b can add nothing */
	if (rules_same_id(f->gid, p->proxy_gid))
		return to_self ? REDIRECT_TO_SELF : REDIRECT_PASS_PROXY_GID; /* 4a, 4c */
	if (!rules_listed(p->index, REDIRECT_PORT_GROUP, f->gid) ==
	    !!(p->flags & REDIRECT_GROUPS_INCLUDE))
		return REDIRECT_PASS_GROUP; /* 5 */
	if (dns_port && ((p->flags & REDIRECT_DNS_ALL) || (cidr & REDIRECT_CIDR_DNS)))
		return REDIRECT_TO_DNS; /* 6 */
	return rules_beyond_dns(p, f, cidr);
}

/* ISTIO_INBOUND, but for where it comes from. */
static inline enum redirect_verdict rules_inbound_port(
    const struct redirect_pod *p, __u32 ifindex, __u16 port)
{
	if (ifindex && rules_listed(p->index, REDIRECT_PORT_INTERFACE, ifindex))
		return REDIRECT_PASS_INTERFACE;
	if (port == p->tunnel_port)
		return REDIRECT_PASS_TUNNEL;
	if (!(p->flags & REDIRECT_INBOUND_ALL))
		return rules_listed(p->index, REDIRECT_PORT_INBOUND_INCLUDE, port)
			   ? REDIRECT_TO_INBOUND
			   : REDIRECT_PASS_INBOUND_NOT_INCLUDED;
	if (rules_listed(p->index, REDIRECT_PORT_INBOUND_EXCLUDE, port))
		return REDIRECT_PASS_INBOUND_EXCLUDED;
	return REDIRECT_TO_INBOUND;
}

/* For connections that did not come over lo: their source is the pod's own then. */
static inline enum redirect_verdict rules_inbound(
    const struct redirect_pod *p, const struct redirect_arrival *a)
{
	int same =
	    a->source.word[0] == a->address.word[0] && a->source.word[1] == a->address.word[1] &&
	    a->source.word[2] == a->address.word[2] && a->source.word[3] == a->address.word[3];

	if (same || rules_is_loopback(&a->source) || rules_is_passthrough(&a->source) ||
	    (rules_cidr(p->index, &a->source) & REDIRECT_CIDR_LOCAL))
		return REDIRECT_PASS_INBOUND_LOCAL;
	return rules_inbound_port(p, a->ifindex, a->port);
}
