/* inbound.bpf.h - what arrives at a pod, and what its Envoy dials in its own pod.
 *
 * Envoy binds its inbound port, to any address but a loopback one, where nobody arrives: the socket
 * is marked -> it listens: it is put into `listeners`, if none is there, and the broker hears -> a
 * SYN to any port of the pod: the rules -> it is given to that listener, source and destination as
 * they were.  One program for each pod's network namespace: sk_lookup cannot ask where it is, so
 * the pod's index is written into its instructions (ebpf-redirect.md H1).
 *
 * The gate, at the cgroup of a strict pod, lets nothing else through from outside.  A packet that
 * program did not steer, because it is not there yet or not any more, reaches no listening socket
 * of the app's.  The kubelet alone is let in by both (probes.bpf.h).
 */
#pragma once
#include "probes.bpf.h"

#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

static __always_inline __u32 own_index(void)
{
	__u64 index;

	asm volatile("%0 = " TEXT(REDIRECT_INDEX_PLACE) " ll" : "=r"(index));
	return index;
}

/* Set when the kernel has the field (5.17), and the helper for packets (6.15). */
const volatile bool has_ingress_ifindex, gate_knows_netns;

static __always_inline struct redirect_self_key self_key(const struct redirect_pod *p,
    const struct redirect_address *source, __u16 source_port,
    const struct redirect_address *address, __u16 port)
{
	return (struct redirect_self_key){.index = p->index,
	    .source_port = source_port,
	    .port = port,
	    .source = *source,
	    .address = *address};
}

/* A dual-stack listener takes IPv4 as well. */
static __always_inline int steer(struct bpf_sk_lookup *ctx, __u32 index)
{
	struct redirect_listener_key key = {.index = index, .family = ctx->family};
	struct bpf_sock *sk = bpf_map_lookup_elem(&listeners, &key);

	if (!sk && ctx->family == AF_INET) {
		key.family = AF_INET6;
		sk = bpf_map_lookup_elem(&listeners, &key);
	}
	if (!sk) {
		count(index, REDIRECT_DROP_NO_LISTENER);
		tell(index, REDIRECT_NEWS_REFUSED);
		return SK_DROP;
	}
	long rc = bpf_sk_assign(ctx, sk, BPF_SK_LOOKUP_F_REPLACE);
	bpf_sk_release(sk);
	return rc ? SK_DROP : SK_PASS;
}

static __always_inline struct redirect_arrival arrival_of(struct bpf_sk_lookup *ctx)
{
	struct redirect_arrival a = {.port = ctx->local_port};

	__u32 from, to;

	if (ctx->family == AF_INET) {
		LOAD_WORD(from, ctx, struct bpf_sk_lookup, remote_ip4);
		LOAD_WORD(to, ctx, struct bpf_sk_lookup, local_ip4);
		a.source = v4_mapped(from);
		a.address = v4_mapped(to);
	} else {
		LOAD_WORD(a.source.word[0], ctx, struct bpf_sk_lookup, remote_ip6[0]);
		LOAD_WORD(a.source.word[1], ctx, struct bpf_sk_lookup, remote_ip6[1]);
		LOAD_WORD(a.source.word[2], ctx, struct bpf_sk_lookup, remote_ip6[2]);
		LOAD_WORD(a.source.word[3], ctx, struct bpf_sk_lookup, remote_ip6[3]);
		LOAD_WORD(a.address.word[0], ctx, struct bpf_sk_lookup, local_ip6[0]);
		LOAD_WORD(a.address.word[1], ctx, struct bpf_sk_lookup, local_ip6[1]);
		LOAD_WORD(a.address.word[2], ctx, struct bpf_sk_lookup, local_ip6[2]);
		LOAD_WORD(a.address.word[3], ctx, struct bpf_sk_lookup, local_ip6[3]);
	}
	if (has_ingress_ifindex)
		a.ifindex = ctx->ingress_ifindex;
	return a;
}

static __always_inline void trace_arrival(
    const struct redirect_pod *p, enum redirect_verdict v, const struct redirect_arrival *a)
{
	const struct redirect_flow f = {
	    .address = a->address, .port = a->port, .protocol = RULES_TCP};

	/* The proxy's calls in its own pod were told when it dialled. */
	if (v != REDIRECT_TO_SELF)
		trace(p, v, &f, &a->source);
}

static __always_inline int take_arrival(struct bpf_sk_lookup *ctx)
{
	__u32 index = own_index();
	const struct redirect_pod *p;
	struct redirect_arrival a;
	enum redirect_verdict v;

	if (ctx->protocol != RULES_TCP)
		return SK_PASS;
	p = bpf_map_lookup_elem(&pods_by_index, &index);
	if (!p)
		return SK_PASS;
	a = arrival_of(ctx);
	struct redirect_self_key key =
	    self_key(p, &a.source, bpf_ntohs(ctx->remote_port), &a.address, a.port);
	v = bpf_map_lookup_elem(&self_calls, &key) ? REDIRECT_TO_SELF : rules_inbound(p, &a);
	if (v == REDIRECT_PASS_INBOUND_LOCAL)
		return SK_PASS; /* it was counted as a dial, or is the broker's look-up */
	if (v == REDIRECT_TO_INBOUND && is_noted(p, &key))
		v = REDIRECT_PASS_PROBE;
	count(index, v);
	trace_arrival(p, v, &a);
	return v == REDIRECT_TO_SELF || v == REDIRECT_TO_INBOUND ? steer(ctx, index) : SK_PASS;
}

enum { LOOPBACK_IFINDEX = 1 };

/* Whom the packet would reach: an open port in wait of a client?  Nothing of the packet itself is
 * believed: a SYN behind extension headers is one as well.  0: no, or Envoy's own, or the node's.
 * `netns`: where that is; 0: in the pod's own namespace, or nobody knows.
 */
static __always_inline __u16 port_reached(struct __sk_buff *skb, __u64 *netns)
{
	struct bpf_sock *sk = skb->sk;
	struct redirect_socket *s;

	if (!sk)
		return 0;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol != RULES_TCP || sk->state != BPF_TCP_LISTEN)
		return 0;
	s = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (s && (s->kind == REDIRECT_SOCKET_LISTENS_IN || s->kind == REDIRECT_SOCKET_OF_NODE))
		return 0;
	if (gate_knows_netns) {
		*netns = bpf_get_netns_cookie(skb);
		return is_of_node(*netns) ? 0 : sk->src_port;
	}
	if (s && s->kind == REDIRECT_SOCKET_MADE)
		*netns = s->made.netns;
	return sk->src_port;
}

static __always_inline const struct redirect_pod *pod_of_packet(struct __sk_buff *skb)
{
	__u32 levels = levels_of_pods();

	for (__u32 i = 0; i < REDIRECT_DEPTH; i++) {
		const struct redirect_pod *p;
		__u64 id;

		if (!(levels >> i))
			break;
		if (!(levels >> i & 1))
			continue;
		id = bpf_skb_ancestor_cgroup_id(skb, pod_level_first + i);
		if (!id)
			break;
		p = bpf_map_lookup_elem(&pods, &id);
		if (p)
			return p;
	}
	return NULL;
}

static __always_inline int guard(struct __sk_buff *skb)
{
	const struct redirect_pod *p;
	__u64 netns = 0;
	__u16 port;

	if (skb->ifindex == LOOPBACK_IFINDEX)
		return 1;
	port = port_reached(skb, &netns);
	if (!port)
		return 1;
	p = pod_of_packet(skb);
	if (!p || rules_inbound_port(p, skb->ifindex, port) != REDIRECT_TO_INBOUND ||
	    (netns && is_inside(p, netns)) || is_noted_packet(skb, p, port))
		return 1;
	const struct redirect_arrival a = {.port = port};
	count(p->index, REDIRECT_DROP_GATE);
	trace_arrival(p, REDIRECT_DROP_GATE, &a);
	return 0;
}
