/* dns.bpf.h - does a DNS proxy answer for this pod, and which server was asked?
 *
 * A query goes to the DNS proxy only while a socket with the broker's mark listens where the query
 * would be sent; else to the pod's own resolver (kernels.md 9).  What asks must not depend on what
 * answers: recvmsg looks at neither mark nor listener, so late answers keep their right source.
 */
#pragma once
#include "outbound.bpf.h"

/* The look-up gives a reference: the fields are read, then it is given back. */
static __always_inline bool is_answered(struct bpf_sock_addr *ctx, const struct redirect_pod *p,
    const struct redirect_address *at, bool tcp)
{
	struct bpf_sock_tuple t = {};
	struct bpf_sock *sk;
	struct redirect_socket *mark;
	__u32 size = sizeof(t.ipv6);
	bool answered;

	/* From the pod itself: its own sk_lookup looks at this too, and must let it be. */
	if (rules_is_v4(at)) {
		t.ipv4.saddr = RULES_V4(127, 0, 0, 1);
		t.ipv4.daddr = at->word[3];
		t.ipv4.dport = bpf_htons(p->dns_port);
		size = sizeof(t.ipv4);
	} else {
		t.ipv6.saddr[3] = bpf_htonl(1);
		__builtin_memcpy(t.ipv6.daddr, at->word, sizeof(t.ipv6.daddr));
		t.ipv6.dport = bpf_htons(p->dns_port);
	}
	if (tcp)
		sk = bpf_sk_lookup_tcp(ctx, &t, size, BPF_F_CURRENT_NETNS, 0);
	else
		sk = bpf_sk_lookup_udp(ctx, &t, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return false;
	mark = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	answered = mark && mark->kind == REDIRECT_SOCKET_LISTENS_DNS && mark->index == p->index &&
		   sk->src_port == p->dns_port && (!tcp || sk->state == BPF_TCP_LISTEN);
	bpf_sk_release(sk);
	return answered;
}

static __always_inline struct redirect_address slot_address(bool v4, __u32 slot)
{
	if (v4)
		return v4_mapped(bpf_htonl(0x7f003501 + slot)); /* 127.0.53.1 and on */
	return (struct redirect_address){{0, 0, 0, bpf_htonl(1)}};
}

/* Which slot the server has, or gets; the oldest is given up.  IPv6 has one address, so one slot:
 * the last server asked.  -1: no memory. */
static __always_inline int slot_of(struct bpf_sock_addr *ctx, const struct redirect_address *server)
{
	struct dns_slots *d;
	__u32 slot;

	if (!ctx->sk)
		return -1;
	d = bpf_sk_storage_get(&resolvers, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!d)
		return -1;
	if (!rules_is_v4(server)) {
		d->server[0] = *server;
		return 0;
	}
	for (slot = 0; slot < REDIRECT_DNS_SLOTS; slot++)
		if (d->server[slot].word[3] == server->word[3] && rules_is_v4(&d->server[slot]))
			return slot;
	slot = d->next & (REDIRECT_DNS_SLOTS - 1);
	d->next++;
	d->server[slot] = *server;
	return slot;
}

/* An answer of the DNS proxy: the server that was asked takes its place as the source. */
static __always_inline void restore_server(struct bpf_sock_addr *ctx, bool v6)
{
	struct redirect_address from;
	struct redirect_socket *s;
	struct dns_slots *d;
	__u32 slot = 0;

	if (!ctx->sk)
		return;
	if (v6) {
		from = dialled6(ctx);
	} else {
		__u32 a;
		LOAD_WORD(a, ctx, struct bpf_sock_addr, user_ip4);
		from = v4_mapped(a);
	}
	if (!rules_is_loopback(&from))
		return;
	s = bpf_sk_storage_get(&sockets, ctx->sk, NULL, 0);
	if (s && s->kind == REDIRECT_SOCKET_DNS && ctx->sk->dst_port) { /* connected still */
		redial(ctx, &s->address, s->port, v6);
		return;
	}
	d = bpf_sk_storage_get(&resolvers, ctx->sk, NULL, 0);
	if (!d)
		return;
	if (rules_is_v4(&from))
		slot = (bpf_ntohl(from.word[3]) - 0x7f003501) & 0xffff;
	if (slot >= REDIRECT_DNS_SLOTS)
		return;
	redial(ctx, &d->server[slot], RULES_DNS_PORT, v6);
}
