/* names.bpf.h - while nobody answers a pod's DNS: which answers of its own resolver are kept back.
 *
 * agentd is away, a question goes to the pod's resolver: its socket is marked (redirect.bpf.c) ->
 * the answer comes, the programs of this file see it -> a denial of a name that istiod knows, or
 * any answer about a name that only istiod has, is dropped: the app would believe it.  It asks
 * again, after some seconds.  All other names are answered as they are.
 *
 * At the cgroup of each pod whose DNS is captured.  A packet that is not UDP leaves by the second
 * line.  What is not understood passes.
 */
#pragma once
#include "maps.bpf.h"
#include "names.h"

enum {
	IPV6_HEADER = 40,
	UDP_HEADER = 8,
	DNS_HEADER = 12,
	DNS_LABEL_MAX = 63,
	DNS_LABELS_MAX = 40, /* of a name that is looked at */
	DNS_NO_ERROR = 0,
	DNS_NO_SUCH_NAME = 3,
};

/* How a resolver says that it knows, or that there is none. */
struct dns_head {
	__u8 id[2], flags, code, counts[8];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct redirect_names);
} names SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, REDIRECT_PODS_MAX);
	__type(key, __u8[16]); /* a pod's uid */
	__type(value, __u64);  /* the salt of its table */
} names_of SEC(".maps");

struct names_scratch {
	__u8 text[NAMES_TEXT_SIZE];
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct names_scratch);
} names_text SEC(".maps");

/* The index of the pod whose socket it is; 0: it asks nobody, or the DNS proxy. */
static __always_inline __u32 asks_elsewhere(struct __sk_buff *skb)
{
	struct bpf_sock *sk = skb->sk;
	struct redirect_socket *s;

	if (!sk)
		return 0;
	sk = bpf_sk_fullsock(sk);
	if (!sk || sk->protocol != RULES_UDP)
		return 0;
	s = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	return s && s->kind == REDIRECT_SOCKET_ASKS ? s->index : 0;
}

static __always_inline const __u64 *salt_of(__u32 index)
{
	struct redirect_pod *p = bpf_map_lookup_elem(&pods_by_index, &index);

	return p ? bpf_map_lookup_elem(&names_of, p->uid) : NULL;
}

/* Where a datagram from port 53 has its message; 0: it is none. */
static __always_inline __u32 message_of(struct __sk_buff *skb)
{
	__u32 at = IPV6_HEADER;
	__u16 port = 0;
	__u8 first = 0;

	if (skb->protocol == bpf_htons(ETHERTYPE_IP4)) {
		if (bpf_skb_load_bytes(skb, 0, &first, sizeof(first)))
			return 0;
		at = (first & 15) * 4;
	} else if (skb->protocol != bpf_htons(ETHERTYPE_IP6)) {
		return 0;
	}
	if (bpf_skb_load_bytes(skb, at, &port, sizeof(port)) || port != bpf_htons(RULES_DNS_PORT))
		return 0;
	return at + UDP_HEADER;
}

/* The question's name, with dots for the lengths of its labels. */
static __always_inline bool read_name(struct __sk_buff *skb, __u32 at, struct names_scratch *s)
{
	__u32 more = skb->len - at - 1, i = 0;

	if (skb->len <= at)
		return false;
	if (more > NAMES_TEXT_SIZE - 2) /* the last byte stays 0 */
		more = NAMES_TEXT_SIZE - 2;
	asm volatile("" : "+r"(more)); /* 5.10 wants the mask, and a size that is never 0 */
	more &= NAMES_TEXT_SIZE - 1;
	__builtin_memset(s->text, 0, sizeof(s->text));
	if (bpf_skb_load_bytes(skb, at, s->text, more + 1))
		return false;
	for (__u32 n = 0; n < DNS_LABELS_MAX; n++) {
		__u8 length = s->text[i & (NAMES_TEXT_SIZE - 1)];
		if (!length)
			return i;
		if (length > DNS_LABEL_MAX)
			return false;
		s->text[i & (NAMES_TEXT_SIZE - 1)] = '.';
		i += length + 1;
	}
	return false;
}

struct names_found {
	__u64 known, istiods;
};

static __always_inline void look_up_name(
    const struct redirect_names *sets, __u64 hash, struct names_found *f)
{
	__u64 ended = names_hash_end(hash);

	f->known |= names_has(sets->known, ended);
	f->istiods |= names_has(sets->istiods, ended);
}

/* At the end of the name the rest of the message is forgotten. */
static __always_inline struct names_found find_name(
    const struct redirect_names *sets, const struct names_scratch *s, __u64 salt)
{
	struct names_found f = {};
	__u64 hash = names_hash_begin(salt);

	for (int i = NAMES_TEXT_SIZE - 1; i >= 0; i--) {
		__u8 c = s->text[i];

		if (!c) {
			hash = names_hash_begin(salt);
			f.known = f.istiods = 0;
			continue;
		}
		hash = names_hash_add(hash, c >= 'A' && c <= 'Z' ? c | 0x20 : c);
		if (c == '.')
			look_up_name(sets, i ? names_hash_wildcard(hash) : hash, &f);
	}
	return f;
}

static __always_inline bool is_believed(struct __sk_buff *skb, __u32 index)
{
	__u32 zero = 0, at = message_of(skb);
	struct names_scratch *s = bpf_map_lookup_elem(&names_text, &zero);
	const struct redirect_names *sets = bpf_map_lookup_elem(&names, &zero);
	const __u64 *salt = salt_of(index);
	struct dns_head head = {};
	struct names_found f;

	if (!at || !s || !sets || !salt || bpf_skb_load_bytes(skb, at, &head, sizeof(head)) ||
	    !read_name(skb, at + DNS_HEADER, s))
		return true;
	f = find_name(sets, s, *salt);
	head.code &= 15;
	return !((head.code == DNS_NO_SUCH_NAME && f.known) ||
		 ((head.code == DNS_NO_SUCH_NAME || head.code == DNS_NO_ERROR) && f.istiods));
}
