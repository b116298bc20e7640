/* probes.bpf.h - the kubelet's own connections: let in to a pod's probe ports, past Envoy.
 *
 * A process of root's in the node's network namespace, and in no pod's cgroup, dials a port that
 * some pod has in its list -> the socket is marked -> its SYN is about to go: its addresses and
 * ports are noted -> the pod's sk_lookup and gate find them noted, and the port in the pod's own
 * list: the app's listener has it -> the dialler's socket closes: not noted any more.
 *
 * It stays noted until then: of the handshake's last packet the gate sees the listener, and with
 * SYN cookies sk_lookup is asked again (status-listener.md 4).  A source address would prove
 * nothing, since forwarded traffic can have the node's; nor would the kubelet's cgroup, which is
 * another one after each restart.
 *
 * Every dial of the node comes by: nobody's fails here, and one to a port that is in no list
 * leaves at once, here and in sockops, without a question to the kernel.
 * An unknown or unreadable packet is nobody's: it goes to Envoy.
 */
#pragma once
#include "maps.bpf.h"

enum { PROBES_MAX = 16384 };

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct redirect_probing);
} probing SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u32);
} probers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, PROBES_MAX);
	__type(key, struct redirect_self_key);
	__type(value, __u8);
} probes SEC(".maps");

/* --- who dials --- */

static __always_inline const struct redirect_probing *probed(__u16 port)
{
	__u32 zero = 0;
	const struct redirect_probing *p = bpf_map_lookup_elem(&probing, &zero);

	return p && p->ports[port >> 6] >> (port & 63) & 1 ? p : NULL;
}

/* Where no tree is known, everybody may be a pod's. */
static __always_inline bool is_of_pods(const struct redirect_probing *p)
{
	if (!p->trees[0].id)
		return true;
	for (__u32 i = 0; i < REDIRECT_TREES_MAX; i++) {
		__u64 id = p->trees[i].id;

		if (id && bpf_get_current_ancestor_cgroup_id(p->trees[i].level) == id)
			return true;
	}
	return pod_of_task() != NULL;
}

/* The cheapest question first. */
static __always_inline bool is_kubelet(struct bpf_sock_addr *ctx, const struct redirect_probing *p)
{
	return !(__u32)bpf_get_current_uid_gid() && ctx->protocol == RULES_TCP &&
	       is_of_node(bpf_get_netns_cookie(ctx)) && !is_of_pods(p);
}

/* A socket that is dialled again, by somebody else, is not the kubelet's any more. */
static __always_inline void mark_prober(struct bpf_sock_addr *ctx)
{
	const struct redirect_probing *p = probed(bpf_ntohs(ctx->user_port));

	if (!p || !ctx->sk)
		return;
	if (is_kubelet(ctx, p))
		bpf_sk_storage_get(&probers, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	else
		bpf_sk_storage_delete(&probers, ctx->sk);
}

/* --- what arrives --- */

static __always_inline bool is_noted(
    const struct redirect_pod *p, const struct redirect_self_key *arrival)
{
	struct redirect_self_key key = *arrival;

	key.index = 0;
	return rules_listed(p->index, REDIRECT_PORT_PROBE, key.port) &&
	       bpf_map_lookup_elem(&probes, &key);
}

struct ip4_head {
	__u8 length, tos;
	__u16 total, id, fragment;
	__u8 ttl, protocol;
	__u16 check;
	__u32 source, address;
};
struct ip6_head {
	__u32 flow;
	__u16 length;
	__u8 next, hops;
	struct redirect_address source, address;
};
struct tcp_ports {
	__u16 source, port;
};
enum { IP4_FRAGMENT = 0x3fff, IP4_WORDS = 0xf };

/* -1: it is not plain TCP: with extension headers, or of fragments. */
static __always_inline int key_of_ip4(struct __sk_buff *skb, struct redirect_self_key *key)
{
	struct ip4_head ip;

	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) || ip.protocol != RULES_TCP ||
	    ip.fragment & bpf_htons(IP4_FRAGMENT))
		return -1;
	key->source = v4_mapped(ip.source);
	key->address = v4_mapped(ip.address);
	return (ip.length & IP4_WORDS) * 4;
}

static __always_inline int key_of_ip6(struct __sk_buff *skb, struct redirect_self_key *key)
{
	struct ip6_head ip;

	if (bpf_skb_load_bytes(skb, 0, &ip, sizeof(ip)) || ip.next != RULES_TCP)
		return -1;
	key->source = ip.source;
	key->address = ip.address;
	return sizeof(ip);
}

/* For the gate: `port` is whom the packet would reach. */
static __always_inline bool is_noted_packet(
    struct __sk_buff *skb, const struct redirect_pod *p, __u16 port)
{
	struct redirect_self_key key = {.port = port};
	struct tcp_ports tcp;
	int at = -1;

	if (!rules_listed(p->index, REDIRECT_PORT_PROBE, port))
		return false;
	if (skb->protocol == bpf_htons(ETHERTYPE_IP4))
		at = key_of_ip4(skb, &key);
	else if (skb->protocol == bpf_htons(ETHERTYPE_IP6))
		at = key_of_ip6(skb, &key);
	if (at < 0 || bpf_skb_load_bytes(skb, at, &tcp, sizeof(tcp)) || bpf_ntohs(tcp.port) != port)
		return false;
	key.source_port = bpf_ntohs(tcp.source);
	return is_noted(p, &key);
}
