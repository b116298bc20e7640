/* maps.bpf.h - the programs' memory, and the few look-ups that all of them need.
 *
 * Of what is declared here `pods`, `pods_by_index`, `pod_levels`, `ports`, `cidrs` and `baselines`
 * are the broker's to write, and a mark in `sockets`; the rest is filled and emptied by the
 * programs.  Everything a socket needs to know lies in its own storage, which dies with it.
 */
#pragma once
#include "words.bpf.h"
/* The rules are plain C, with the kernel's types. */
#include "rules.h"

enum {
	PORTS_MAX = REDIRECT_PODS_MAX * 64,
	CIDRS_MAX = REDIRECT_PODS_MAX * 256,
	LISTENERS_MAX = REDIRECT_PODS_MAX * 2,
	TUPLES_MAX = 16384,
	SELF_CALLS_MAX = 4096,
	TRACES_BYTES = 1 << 18,
	NEWS_BYTES = 1 << 14,
};

/* Set before loading. */
const volatile __u32 pod_level_first = 1; /* of the cgroup tree: below where the programs hang */
const volatile __u64 node_cookie;         /* of agentd's network namespace; 0: not known */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, REDIRECT_PODS_MAX);
	__type(key, __u64); /* id of the pod's cgroup */
	__type(value, struct redirect_pod);
} pods SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32); /* bit n: n levels below the root is a pod's cgroup, or was one */
} pod_levels SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, REDIRECT_PODS_MAX);
	__type(key, __u32); /* the same by index, where there is no current task */
	__type(value, struct redirect_pod);
} pods_by_index SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, PORTS_MAX);
	__type(key, struct redirect_port_key);
	__type(value, __u8);
} ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, CIDRS_MAX);
	__type(key, struct redirect_cidr_key);
	__type(value, __u32);
} cidrs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct redirect_socket);
} sockets SEC(".maps");

/* The resolvers that an unconnected UDP socket asks: 127.0.53.(1 + slot) is the one in `slot`. */
struct dns_slots {
	struct redirect_address server[REDIRECT_DNS_SLOTS];
	__u32 next;
};
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct dns_slots);
} resolvers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, TUPLES_MAX);
	__type(key, struct redirect_tuple_key);
	__type(value, struct redirect_tuple);
} tuples SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, SELF_CALLS_MAX);
	__type(key, struct redirect_self_key);
	__type(value, __u8);
} self_calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_SOCKHASH);
	__uint(max_entries, LISTENERS_MAX);
	__type(key, struct redirect_listener_key);
	__type(value, __u64);
} listeners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, REDIRECT_PODS_MAX);
	__type(key, __u32);
	__type(value, struct redirect_counters);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, REDIRECT_PODS_MAX);
	__type(key, __u32); /* index */
	__type(value, struct redirect_counters);
} baselines SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, TRACES_BYTES);
} traces SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, NEWS_BYTES);
} news SEC(".maps");

static inline int rules_listed(__u32 index, enum redirect_port_kind kind, __u32 number)
{
	struct redirect_port_key key = {.index = index, .kind = kind, .number = number};

	return bpf_map_lookup_elem(&ports, &key) != NULL;
}

static inline __u32 rules_cidr(__u32 index, const struct redirect_address *a)
{
	struct redirect_cidr_key key = {
	    .prefix = REDIRECT_CIDR_BITS + 128, .index = index, .address = *a};
	__u32 *flags = bpf_map_lookup_elem(&cidrs, &key);

	return flags ? *flags : 0;
}

static __always_inline void count(__u32 index, enum redirect_verdict v)
{
	__u32 at = (index & REDIRECT_ROW_MASK) - 1;
	struct redirect_counters *c = bpf_map_lookup_elem(&counters, &at);

	if (c && v < REDIRECT_VERDICTS)
		__sync_fetch_and_add(&c->n[v], 1);
}

/* Of each load of the programs, never pinned: records that found no room; what the broker asks
 * listeners.bpf.h. */
__u64 traces_lost;
struct redirect_sought sought;
__u64 told_ns[2 * REDIRECT_PODS_MAX]; /* of each row and kind: when it was told last */

enum { LISTENS_PAUSE_NS = 10 * 1000 * 1000, REFUSED_PAUSE_NS = 1000 * 1000 * 1000 };

/* A pod that listens and closes without end is told of now and then. */
static __always_inline void tell(__u32 index, enum redirect_news_kind kind)
{
	const bool listens = kind == REDIRECT_NEWS_LISTENS;
	__u32 at = 2 * ((index & REDIRECT_ROW_MASK) - 1) + listens;
	__u64 now = bpf_ktime_get_ns();
	struct redirect_news n = {.index = index, .kind = kind};

	if (at >= 2 * REDIRECT_PODS_MAX ||
	    now - told_ns[at] < (listens ? LISTENS_PAUSE_NS : REFUSED_PAUSE_NS))
		return;
	told_ns[at] = now;
	bpf_ringbuf_output(&news, &n, sizeof(n), 0);
}

/* One test of a flag for pods that nobody looks at.  `source`: of an arrival, else NULL. */
static __always_inline void trace(const struct redirect_pod *p, enum redirect_verdict v,
    const struct redirect_flow *f, const struct redirect_address *source)
{
	struct redirect_trace *t;

	if (!(p->flags & REDIRECT_TRACE))
		return;
	t = bpf_ringbuf_reserve(&traces, sizeof(*t), 0);
	if (!t) {
		__sync_fetch_and_add(&traces_lost, 1);
		return;
	}
	__builtin_memset(t, 0, sizeof(*t));
	t->time_ns = bpf_ktime_get_ns();
	t->index = p->index;
	t->verdict = v;
	t->uid = f->uid;
	t->gid = f->gid;
	t->port = f->port;
	t->protocol = f->protocol;
	t->address = f->address;
	if (source) {
		t->source = *source;
		t->inbound = 1;
	}
	bpf_ringbuf_submit(t, 0);
}

/* Each level costs every process on the node a look-up: only levels with pods are asked.  Bit 0 is
 * the first one below where we hang. */
static __always_inline __u32 levels_of_pods(void)
{
	__u32 zero = 0, *levels = bpf_map_lookup_elem(&pod_levels, &zero);

	return levels ? *levels >> pod_level_first : 0;
}

/* The node's own network namespace is nobody's: that of the first process, or agentd's, where the
 * node is itself a container.  Both helpers are asked where all kernels know them (kernels.md 1).
 */
static __always_inline bool is_of_node(__u64 cookie)
{
	return cookie == bpf_get_netns_cookie(NULL) || cookie == node_cookie;
}

/* The pod whose cgroup the running task is in; only where such a question is allowed (kernels.md
 * 3.1). */
static __always_inline const struct redirect_pod *pod_of_task(void)
{
	__u32 levels = levels_of_pods();

	for (__u32 i = 0; i < REDIRECT_DEPTH; i++) {
		__u64 id;
		const struct redirect_pod *p;

		if (!(levels >> i))
			break;
		if (!(levels >> i & 1))
			continue;
		id = bpf_get_current_ancestor_cgroup_id(pod_level_first + i);
		if (!id)
			break;
		p = bpf_map_lookup_elem(&pods, &id);
		if (p)
			return p;
	}
	return NULL;
}

/* Whose the socket of `ctx` is: a process with hostNetwork sees no change, whatever cgroup it is
 * in. */
static __always_inline const struct redirect_pod *pod_of_socket(void *ctx)
{
	const struct redirect_pod *p = pod_of_task();

	return p && !is_of_node(bpf_get_netns_cookie(ctx)) ? p : NULL;
}

static __always_inline bool envoy_is_home(const struct redirect_pod *p, __u32 family)
{
	struct redirect_listener_key key = {.index = p->index, .family = family};
	struct bpf_sock *sk = bpf_map_lookup_elem(&listeners, &key);
	struct redirect_socket *s;
	bool home;

	if (!sk)
		return false;
	s = bpf_sk_storage_get(&sockets, sk, NULL, 0);
	home = s && s->kind == REDIRECT_SOCKET_LISTENS_IN && s->made.netns == p->home;
	bpf_sk_release(sk);
	return home;
}

/* In a namespace that the pod made in itself?  What is there leaves only through the pod's own, as
 * forwarded traffic.
 *
 * The pod's own is the one where its Envoy listens now: the kernel takes a socket that goes out of
 * `listeners`, whoever is there to notice.  An earlier sandbox's cookie alone would let the next
 * sandbox out.  Not for programs that can give no reference back (kernels.md 3.10).
 */
static __always_inline bool is_inside(const struct redirect_pod *p, __u64 netns)
{
	return p->home && p->home != netns && !(p->flags & REDIRECT_SHUT) &&
	       (envoy_is_home(p, AF_INET) || envoy_is_home(p, AF_INET6));
}
