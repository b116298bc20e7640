/* redirect.bpf.c - the programs: where they hang, and what each does, in the order of a connection.
 *
 * Attached once, at the cgroup above all pods: connect, sendmsg, recvmsg, getpeername, post_bind,
 * sockops.  At the root of the tree, where some pod has probe ports: probe_connect, probe_sockops.
 * At each pod's cgroup: getsockopt (above all pods it would cost everybody else), and of a strict
 * one the gate, with sock_create, which tells it whose a socket is; of one whose DNS is captured
 * `names`.  In each pod's network namespace: its own copy of sk_lookup.  Nowhere, but run by the
 * broker: redirect_seek, redirect_collect.
 *
 * A process outside of every pod leaves by the first line of each program.  sockops and getsockopt
 * know nothing but the socket's storage (kernels.md 3.2).
 */
#include "dns.bpf.h"
#include "inbound.bpf.h"
#include "listeners.bpf.h"
#include "names.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

enum { ALLOW = 1, REFUSE = 0, SOCK_STREAM_ = 1 };

/* --- connect --- */

static __always_inline void forget(struct bpf_sock_addr *ctx)
{
	if (ctx->sk)
		bpf_sk_storage_delete(&sockets, ctx->sk);
}

/* A capture port dialled as such: a stale tuple of the same ports must not speak for it. */
static __always_inline bool is_direct(const struct redirect_pod *p, const struct redirect_flow *f)
{
	return f->protocol == RULES_TCP && f->port == p->outbound_port &&
	       (rules_is_loopback(&f->address) || is_spread6(&f->address));
}

static __always_inline int on_connect(struct bpf_sock_addr *ctx, bool v6)
{
	const struct redirect_pod *p = pod_of_socket(ctx);
	struct redirect_flow f;
	struct redirect_address to;
	enum redirect_verdict v;
	__u16 port;
	bool tcp;

	if (!p)
		return ALLOW;
	if (is_inside(p, bpf_get_netns_cookie(ctx))) {
		forget(ctx);
		return ALLOW;
	}
	f = flow_of(ctx, v6);
	tcp = f.protocol == RULES_TCP;
	v = rules_outbound(p, &f);
	if (v == REDIRECT_TO_DNS) {
		to = slot_address(rules_is_v4(&f.address), 0);
		/* Answers by TCP cannot be judged: who asks so is refused, as by any server that
		 * is down. */
		if (!is_answered(ctx, p, &to, tcp) && !(tcp && (p->flags & REDIRECT_DNS_KNOWN))) {
			v = rules_beyond_dns(p, &f, rules_cidr(p->index, &f.address));
			if (v != REDIRECT_TO_OUTBOUND && v != REDIRECT_TO_OUTBOUND_PORT)
				v = REDIRECT_PASS_NO_DNS;
		}
	}
	count(p->index, v);
	trace(p, v, &f, NULL);
	switch (v) {
	case REDIRECT_TO_OUTBOUND:
	case REDIRECT_TO_OUTBOUND_PORT:
		to = capture_address(ctx, p, &f, bind_source(ctx, p, &f, v6));
		port = p->outbound_port;
		if (remember(ctx, p, REDIRECT_SOCKET_DIALLED, &f))
			return REFUSE; /* fail closed: it would leave the pod as plain text */
		redial(ctx, &to, port, v6);
		return ALLOW;
	case REDIRECT_TO_DNS:
		bind_source(ctx, p, &f, v6);
		port = p->dns_port;
		if (remember(ctx, p, REDIRECT_SOCKET_DNS, &f))
			return REFUSE;
		redial(ctx, &to, port, v6);
		return ALLOW;
	case REDIRECT_TO_SELF:
		return remember(ctx, p, REDIRECT_SOCKET_PROXY, &f) ? REFUSE : ALLOW;
	default:
		if (is_direct(p, &f))
			return remember(ctx, p, REDIRECT_SOCKET_DIRECT, &f) ? REFUSE : ALLOW;
		if (v == REDIRECT_PASS_NO_DNS && (p->flags & REDIRECT_DNS_KNOWN))
			return remember(ctx, p, REDIRECT_SOCKET_ASKS, &f) ? REFUSE : ALLOW;
		forget(ctx);
		return ALLOW;
	}
}

SEC("cgroup/connect4")
int redirect_connect4(struct bpf_sock_addr *ctx)
{
	return on_connect(ctx, false);
}

SEC("cgroup/connect6")
int redirect_connect6(struct bpf_sock_addr *ctx)
{
	return on_connect(ctx, true);
}

/* --- the dialler asks whom it talks to --- */

static __always_inline int on_getpeername(struct bpf_sock_addr *ctx, bool v6)
{
	struct redirect_socket *s = NULL;

	if (ctx->sk)
		s = bpf_sk_storage_get(&sockets, ctx->sk, NULL, 0);
	if (s && (s->kind == REDIRECT_SOCKET_DIALLED || s->kind == REDIRECT_SOCKET_DNS))
		redial(ctx, &s->address, s->port, v6);
	return ALLOW;
}

SEC("cgroup/getpeername4")
int redirect_getpeername4(struct bpf_sock_addr *ctx)
{
	return on_getpeername(ctx, false);
}

SEC("cgroup/getpeername6")
int redirect_getpeername6(struct bpf_sock_addr *ctx)
{
	return on_getpeername(ctx, true);
}

/* --- DNS by unconnected sockets --- */

static __always_inline int on_sendmsg(struct bpf_sock_addr *ctx, bool v6)
{
	const struct redirect_pod *p;
	struct redirect_flow f;
	struct redirect_address to;
	int slot;

	if (ctx->user_port != bpf_htons(RULES_DNS_PORT))
		return ALLOW;
	p = pod_of_socket(ctx);
	if (!p || !(p->flags & REDIRECT_DNS) || is_inside(p, bpf_get_netns_cookie(ctx)))
		return ALLOW;
	f = flow_of(ctx, v6);
	f.protocol = RULES_UDP;
	enum redirect_verdict v = rules_outbound(p, &f);
	to = slot_address(rules_is_v4(&f.address), 0);
	if (v == REDIRECT_TO_DNS && !is_answered(ctx, p, &to, false))
		v = REDIRECT_PASS_NO_DNS;
	count(p->index, v);
	trace(p, v, &f, NULL);
	if (v == REDIRECT_PASS_NO_DNS && (p->flags & REDIRECT_DNS_KNOWN))
		return remember(ctx, p, REDIRECT_SOCKET_ASKS, &f) ? REFUSE : ALLOW;
	if (v != REDIRECT_TO_DNS)
		return ALLOW;
	slot = slot_of(ctx, &f.address);
	if (slot < 0) {
		count(p->index, REDIRECT_DROP_NO_MEMORY);
		return ALLOW; /* to the pod's own resolver: names are no secret */
	}
	to = slot_address(rules_is_v4(&f.address), slot);
	redial(ctx, &to, p->dns_port, v6);
	return ALLOW;
}

SEC("cgroup/sendmsg4")
int redirect_sendmsg4(struct bpf_sock_addr *ctx)
{
	return on_sendmsg(ctx, false);
}

SEC("cgroup/sendmsg6")
int redirect_sendmsg6(struct bpf_sock_addr *ctx)
{
	return on_sendmsg(ctx, true);
}

SEC("cgroup/recvmsg4")
int redirect_recvmsg4(struct bpf_sock_addr *ctx)
{
	restore_server(ctx, false);
	return ALLOW;
}

SEC("cgroup/recvmsg6")
int redirect_recvmsg6(struct bpf_sock_addr *ctx)
{
	restore_server(ctx, true);
	return ALLOW;
}

/* --- Envoy's listeners --- */

static __always_inline int on_bound(struct bpf_sock *ctx, const struct redirect_address *to)
{
	const struct redirect_pod *p = pod_of_socket(ctx);
	__u64 ids;
	__u16 kind = 0;

	if (!p || ctx->type != SOCK_STREAM_)
		return ALLOW;
	if (ctx->src_port == p->outbound_port)
		kind = REDIRECT_SOCKET_LISTENS_OUT;
	else if (ctx->src_port == p->inbound_port && !rules_is_loopback(to))
		kind = REDIRECT_SOCKET_LISTENS_IN;
	ids = bpf_get_current_uid_gid();
	if (!kind ||
	    (!rules_same_id((__u32)ids, p->proxy_uid) && !rules_same_id(ids >> 32, p->proxy_gid)))
		return ALLOW;
	const struct redirect_sought as = {.index = p->index,
	    .kind = kind,
	    .port = ctx->src_port,
	    .netns = bpf_get_netns_cookie(ctx)};
	if (mark_listener(ctx, &as) < 0) {
		count(p->index, REDIRECT_DROP_NO_MEMORY);
		return REFUSE; /* an Envoy that nothing reaches had better say so */
	}
	return ALLOW;
}

SEC("cgroup/post_bind4")
int redirect_post_bind4(struct bpf_sock *ctx)
{
	const struct redirect_address to = v4_mapped(ctx->src_ip4);

	return on_bound(ctx, &to);
}

SEC("cgroup/post_bind6")
int redirect_post_bind6(struct bpf_sock *ctx)
{
	struct redirect_address to;

	LOAD_WORD(to.word[0], ctx, struct bpf_sock, src_ip6[0]);
	LOAD_WORD(to.word[1], ctx, struct bpf_sock, src_ip6[1]);
	LOAD_WORD(to.word[2], ctx, struct bpf_sock, src_ip6[2]);
	LOAD_WORD(to.word[3], ctx, struct bpf_sock, src_ip6[3]);
	return on_bound(ctx, &to);
}

/* --- the life of a TCP connection --- */

/* As the dialler's end shows it (accepted = false), or the accepted socket's. */
static __always_inline struct redirect_tuple_key tuple_key(
    __u32 index, const struct ends *e, bool accepted)
{
	struct redirect_tuple_key k = {.index = index};

	k.client = accepted ? e->remote : e->local;
	k.client_port = accepted ? e->remote_port : e->local_port;
	k.target = accepted ? e->local.word[3] : e->remote.word[3];
	return k;
}

static __always_inline struct redirect_self_key self_key_of(__u32 index, const struct ends *e)
{
	return (struct redirect_self_key){.index = index,
	    .source_port = e->local_port,
	    .port = e->remote_port,
	    .source = e->local,
	    .address = e->remote};
}

static __always_inline void on_syn(
    struct bpf_sock_ops *ctx, const struct redirect_socket *s, const struct ends *e)
{
	struct redirect_tuple_key key = tuple_key(s->index, e, false);
	struct redirect_self_key self = self_key_of(s->index, e);
	struct redirect_tuple value = {.address = s->address, .port = s->port};
	__u8 one = 1;

	switch (s->kind) {
	case REDIRECT_SOCKET_DIALLED:
		bpf_map_update_elem(&tuples, &key, &value, BPF_ANY);
		break;
	case REDIRECT_SOCKET_DIRECT:
		bpf_map_delete_elem(&tuples, &key);
		return;
	case REDIRECT_SOCKET_PROXY:
		if (rules_is_passthrough(&e->local))
			return;
		bpf_map_update_elem(&self_calls, &self, &one, BPF_ANY);
		break;
	default:
		return;
	}
	bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_STATE_CB_FLAG);
}

/* A refused dial leaves no tuple; a call of the pod to itself ends with Envoy's own socket. */
static __always_inline void on_state(
    struct bpf_sock_ops *ctx, const struct redirect_socket *s, const struct ends *e)
{
	__u32 now = ctx->args[1];

	if (s->kind == REDIRECT_SOCKET_DIALLED) {
		struct redirect_tuple_key key = tuple_key(s->index, e, false);
		if (now == BPF_TCP_CLOSE)
			bpf_map_delete_elem(&tuples, &key);
		bpf_sock_ops_cb_flags_set(ctx, 0);
	} else if (s->kind == REDIRECT_SOCKET_PROXY && now == BPF_TCP_CLOSE) {
		struct redirect_self_key self = self_key_of(s->index, e);
		bpf_map_delete_elem(&self_calls, &self);
	}
}

static __always_inline void on_accepted(struct redirect_socket *s, const struct ends *e)
{
	struct redirect_tuple_key key = tuple_key(s->index, e, true);
	struct redirect_tuple *t;

	if (s->kind != REDIRECT_SOCKET_LISTENS_OUT)
		return;
	t = bpf_map_lookup_elem(&tuples, &key);
	if (!t) {
		count(s->index, REDIRECT_LOST_DESTINATION);
		return;
	}
	s->address = t->address;
	s->port = t->port;
	s->kind = REDIRECT_SOCKET_ACCEPTED;
	bpf_map_delete_elem(&tuples, &key);
}

static __always_inline bool is_any(struct bpf_sock_ops *ctx)
{
	const struct ends e = ends_of(ctx);

	if (ctx->family == AF_INET)
		return !e.local.word[3];
	return !(e.local.word[0] | e.local.word[1] | e.local.word[2] | e.local.word[3]);
}

/* It dialled once, and disconnected: whoever it accepts would inherit what it dialled. */
static __always_inline bool was_dialler(const struct redirect_socket *s)
{
	return s->kind == REDIRECT_SOCKET_DIALLED || s->kind == REDIRECT_SOCKET_DIRECT ||
	       s->kind == REDIRECT_SOCKET_PROXY || s->kind == REDIRECT_SOCKET_DNS;
}

static __always_inline void on_listen(struct bpf_sock_ops *ctx, struct redirect_socket *s)
{
	struct redirect_listener_key key = {.index = s->index, .family = ctx->family};
	const struct redirect_pod *p = bpf_map_lookup_elem(&pods_by_index, &key.index);

	if (was_dialler(s))
		s->kind = REDIRECT_SOCKET_NOTHING;
	if (s->kind != REDIRECT_SOCKET_LISTENS_IN)
		return;
	/* The first one stays: of a group the kernel chooses, and another is no better.  But one
	 * that listens inside the pod gives way to the pod's own.  One at a single address is for
	 * the broker to look at, if it is the only one. */
	const bool own = p && p->home && p->home == s->made.netns;
	if (is_any(ctx))
		bpf_sock_hash_update(ctx, &listeners, &key, own ? BPF_ANY : BPF_NOEXIST);
	tell(s->index, REDIRECT_NEWS_LISTENS);
}

SEC("sockops")
int redirect_sockops(struct bpf_sock_ops *ctx)
{
	struct redirect_socket *s;
	struct ends e;
	__u32 op = ctx->op;

	if (op != BPF_SOCK_OPS_TCP_CONNECT_CB && op != BPF_SOCK_OPS_STATE_CB &&
	    op != BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB && op != BPF_SOCK_OPS_TCP_LISTEN_CB)
		return 1;
	if (!ctx->sk)
		return 1;
	s = bpf_sk_storage_get(&sockets, ctx->sk, NULL, 0);
	if (!s)
		return 1;
	if (op == BPF_SOCK_OPS_TCP_LISTEN_CB) {
		on_listen(ctx, s);
		return 1;
	}
	e = ends_of(ctx);
	if (op == BPF_SOCK_OPS_TCP_CONNECT_CB)
		on_syn(ctx, s, &e);
	else if (op == BPF_SOCK_OPS_STATE_CB)
		on_state(ctx, s, &e);
	else
		on_accepted(s, &e);
	return 1;
}

/* --- the kubelet's connections --- */

SEC("cgroup/connect4")
int redirect_probe_connect4(struct bpf_sock_addr *ctx)
{
	mark_prober(ctx);
	return ALLOW;
}

SEC("cgroup/connect6")
int redirect_probe_connect6(struct bpf_sock_addr *ctx)
{
	mark_prober(ctx);
	return ALLOW;
}

static __always_inline struct redirect_self_key probe_key(struct bpf_sock_ops *ctx)
{
	const struct ends e = ends_of(ctx);

	return self_key_of(0, &e);
}

SEC("sockops")
int redirect_probe_sockops(struct bpf_sock_ops *ctx)
{
	struct redirect_self_key key;
	__u32 op = ctx->op;
	__u8 one = 1;

	if (op != BPF_SOCK_OPS_TCP_CONNECT_CB && op != BPF_SOCK_OPS_STATE_CB)
		return 1;
	if (op == BPF_SOCK_OPS_TCP_CONNECT_CB && !probed(bpf_ntohl(ctx->remote_port)))
		return 1;
	if (!ctx->sk || !bpf_sk_storage_get(&probers, ctx->sk, NULL, 0))
		return 1;
	key = probe_key(ctx);
	if (op == BPF_SOCK_OPS_TCP_CONNECT_CB) {
		bpf_map_update_elem(&probes, &key, &one, BPF_ANY);
		bpf_sock_ops_cb_flags_set(
		    ctx, ctx->bpf_sock_ops_cb_flags | BPF_SOCK_OPS_STATE_CB_FLAG);
	} else if (ctx->args[1] == BPF_TCP_CLOSE) {
		bpf_map_delete_elem(&probes, &key);
	}
	return 1;
}

/* --- Envoy asks what the client dialled --- */

enum { SOL_IP_ = 0, SOL_IPV6_ = 41, SO_ORIGINAL_DST = 80, PAGE = 4096 };

struct sockaddr4 {
	__u16 family, port;
	__u32 address;
	__u64 zero;
};
struct sockaddr6 {
	__u16 family, port;
	__u32 flow;
	struct redirect_address address;
	__u32 scope;
};

SEC("cgroup/getsockopt")
int redirect_getsockopt(struct bpf_sockopt *ctx)
{
	struct redirect_socket *s = NULL;
	struct redirect_address a;
	void *value, *end;
	__u16 port;
	bool v6 = ctx->level == SOL_IPV6_;

	/* Longer than a page: the kernel's own answer stands (before 6.5: EFAULT otherwise). */
	if (ctx->optlen > PAGE)
		ctx->optlen = 0;
	if (ctx->optname != SO_ORIGINAL_DST || (ctx->level != SOL_IP_ && !v6) || !ctx->sk)
		return 1;
	s = bpf_sk_storage_get(&sockets, ctx->sk, NULL, 0);
	if (!s)
		return 1;
	if (s->kind == REDIRECT_SOCKET_ACCEPTED) {
		a = s->address;
		port = s->port;
	} else if (s->kind == REDIRECT_SOCKET_LISTENS_OUT && !ctx->retval) {
		return 1; /* somebody else sent it here, and has answered */
	} else if (s->kind == REDIRECT_SOCKET_LISTENS_IN ||
		   s->kind == REDIRECT_SOCKET_LISTENS_OUT) {
		/* Accepted by it: what arrived has its own destination still. */
		port = ctx->sk->src_port;
		a = local_address(ctx->sk);
	} else {
		return 1;
	}
	value = ctx->optval;
	end = ctx->optval_end;
	if (v6) {
		struct sockaddr6 *out = value;
		if ((void *)(out + 1) > end)
			return 1;
		out->family = AF_INET6;
		out->port = bpf_htons(port);
		out->flow = out->scope = 0;
		out->address = a;
		ctx->optlen = sizeof(*out);
	} else {
		struct sockaddr4 *out = value;
		if (!rules_is_v4(&a) || (void *)(out + 1) > end)
			return 1;
		out->family = AF_INET;
		out->port = bpf_htons(port);
		out->address = a.word[3];
		out->zero = 0;
		ctx->optlen = sizeof(*out);
	}
	asm volatile("" ::: "memory"); /* two stores to the context must not become one */
	ctx->retval = 0;
	return 1;
}

/* --- inbound --- */

/* Before 6.15 the gate cannot ask where a socket is. */
SEC("cgroup/sock_create")
int redirect_sock_create(struct bpf_sock *ctx)
{
	const __u64 netns = bpf_get_netns_cookie(ctx);
	const struct redirect_pod *p;
	struct redirect_socket *s;
	bool of_node;

	if (gate_knows_netns || ctx->type != SOCK_STREAM_)
		return ALLOW;
	of_node = is_of_node(netns);
	p = of_node ? NULL : pod_of_task();
	if (!of_node && (!p || p->home == netns))
		return ALLOW;
	s = bpf_sk_storage_get(&sockets, ctx, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s)
		return ALLOW;
	s->kind = of_node ? REDIRECT_SOCKET_OF_NODE : REDIRECT_SOCKET_MADE;
	s->made.netns = netns;
	return ALLOW;
}

SEC("sk_lookup")
int redirect_lookup(struct bpf_sk_lookup *ctx)
{
	return take_arrival(ctx);
}

SEC("cgroup_skb/ingress")
int redirect_gate(struct __sk_buff *skb)
{
	return guard(skb);
}

/* --- answers of the pod's own resolver --- */

SEC("cgroup_skb/ingress")
int redirect_names(struct __sk_buff *skb)
{
	__u32 index = asks_elsewhere(skb);

	return !index || is_believed(skb, index);
}
