/* listeners.bpf.h - which listening sockets are the pod's Envoy's.
 *
 * One that is bound after the pod's rules came is marked at once, and put into `listeners` when it
 * listens.  An earlier one is looked for: redirect_seek hangs nowhere, the broker runs it in the
 * pod's network namespace with a question in `sought`, once for each port to look from: sockets
 * that share a port are told apart by that.  A program cannot see a socket's owner; the broker asks
 * only for sockets that the kernel lists as the proxy's.
 */
#pragma once
#include "maps.bpf.h"

/* A tc program may put sockets into a map: from 5.10 to 7.2.  Later redirect_collect does it; that
 * would also from 5.12 on, but until 6.4 it may dead-lock. */
const volatile bool has_tc_listeners;

enum { EEXIST_ = 17 };

static __always_inline struct redirect_address local_address(struct bpf_sock *sk)
{
	struct redirect_address a;

	if (sk->family == AF_INET)
		return v4_mapped(sk->src_ip4);
	LOAD_WORD(a.word[0], sk, struct bpf_sock, src_ip6[0]);
	LOAD_WORD(a.word[1], sk, struct bpf_sock, src_ip6[1]);
	LOAD_WORD(a.word[2], sk, struct bpf_sock, src_ip6[2]);
	LOAD_WORD(a.word[3], sk, struct bpf_sock, src_ip6[3]);
	return a;
}

static __always_inline bool same_address(
    const struct redirect_address *a, const struct redirect_address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] &&
	       a->word[3] == b->word[3];
}

/* `sk`: or the context of a program that has one.  -1: no memory. */
static __always_inline int mark_listener(void *sk, const struct redirect_sought *as)
{
	struct redirect_socket *s =
	    bpf_sk_storage_get(&sockets, sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	bool known;

	if (!s)
		return -1;
	known = s->index == as->index && s->kind == as->kind && s->port == as->port;
	if (as->netns)
		s->made.netns = as->netns;
	if (known && s->made.look == as->look)
		return REDIRECT_FOUND_AGAIN;
	s->index = as->index;
	s->kind = as->kind;
	s->port = as->port;
	s->made.look = as->look;
	return known ? REDIRECT_FOUND_KNOWN : REDIRECT_FOUND_NEW;
}

/* Two of different users share address and port only on devices of their own. */
static __always_inline bool is_sought(struct bpf_sock *sk)
{
	const struct redirect_address at = local_address(sk), wanted = sought.address;

	return sk->state == BPF_TCP_LISTEN && sk->src_port == sought.port &&
	       sk->family == sought.family && !sk->bound_dev_if && same_address(&at, &wanted);
}

/* From the pod itself: its own sk_lookup lets that be. */
static __always_inline struct bpf_sock *look_up(struct __sk_buff *skb)
{
	struct bpf_sock_tuple t = {};

	if (sought.family == AF_INET) {
		t.ipv4.saddr = RULES_V4(127, 0, 0, 1);
		t.ipv4.sport = bpf_htons(sought.from);
		t.ipv4.daddr = sought.address.word[3] ? sought.address.word[3] : t.ipv4.saddr;
		t.ipv4.dport = bpf_htons(sought.port);
		return bpf_sk_lookup_tcp(skb, &t, sizeof(t.ipv4), BPF_F_CURRENT_NETNS, 0);
	}
	struct redirect_address to = sought.address;
	if (!(to.word[0] | to.word[1] | to.word[2] | to.word[3]))
		to.word[3] = bpf_htonl(1);
	t.ipv6.saddr[3] = bpf_htonl(1);
	t.ipv6.sport = bpf_htons(sought.from);
	__builtin_memcpy(t.ipv6.daddr, to.word, sizeof(t.ipv6.daddr));
	t.ipv6.dport = bpf_htons(sought.port);
	return bpf_sk_lookup_tcp(skb, &t, sizeof(t.ipv6), BPF_F_CURRENT_NETNS, 0);
}

/* One that is there already is newer, or of the same group. */
static __always_inline int take_listener(struct bpf_sock *sk)
{
	struct redirect_listener_key key = {.index = sought.index, .family = sk->family};
	const struct redirect_sought as = sought;
	int found = mark_listener(sk, &as);
	long rc;

	if (found <= 0 || !has_tc_listeners || !sought.publish)
		return found;
	rc = bpf_map_update_elem(&listeners, &key, sk, BPF_NOEXIST);
	return rc && rc != -EEXIST_ ? REDIRECT_FOUND_NONE : found;
}

/* Nowhere, and only loaded from 7.3 on: what was marked is put into the map by going through all
 * sockets of the namespace.  Those that listen come first; what they accepted has their mark too,
 * and finds the place taken. */
struct socket_in_turn {
	void *meta, *sk;
};

SEC("?iter/tcp")
int redirect_collect(struct socket_in_turn *ctx)
{
	struct redirect_listener_key key = {.index = sought.index, .family = AF_INET};
	const struct redirect_socket *s;
	void *sk = ctx->sk;

	if (!sk)
		return 0;
	s = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	if (!s || s->index != sought.index || s->kind != REDIRECT_SOCKET_LISTENS_IN)
		return 0;
	if (bpf_skc_to_tcp6_sock(sk))
		key.family = AF_INET6;
	bpf_map_update_elem(&listeners, &key, sk, BPF_NOEXIST);
	return 0;
}

SEC("tc")
int redirect_seek(struct __sk_buff *skb)
{
	struct bpf_sock *sk = look_up(skb);
	int found = REDIRECT_FOUND_NONE;

	if (!sk)
		return found;
	if (is_sought(sk))
		found = take_listener(sk);
	bpf_sk_release(sk);
	return found;
}
