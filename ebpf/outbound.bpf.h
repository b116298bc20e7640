/* outbound.bpf.h - what a pod's processes dial.
 *
 * connect -> the rules -> the destination becomes Envoy's port on an address of lo, the real one is
 * kept with the socket -> the SYN is about to go: the tuple that Envoy will see is noted -> Envoy
 * accepts: the tuple is moved to the accepted socket -> Envoy asks SO_ORIGINAL_DST: answered from
 * there.  The dialler who asks getpeername() sees what it dialled.
 *
 * Sixty-four addresses, by the destination's hash, so that one pod is not limited to one port range
 * of connections (ebpf-redirect.md H2).  Those of IPv6 are a route that the broker puts there.
 * Where it is not, they are ::1, and some of what Linux says is lost (ebpf-redirect.md 13).
 */
#pragma once
#include "maps.bpf.h"

static __always_inline struct redirect_address dialled6(struct bpf_sock_addr *ctx)
{
	struct redirect_address a;

	LOAD_WORD(a.word[0], ctx, struct bpf_sock_addr, user_ip6[0]);
	LOAD_WORD(a.word[1], ctx, struct bpf_sock_addr, user_ip6[1]);
	LOAD_WORD(a.word[2], ctx, struct bpf_sock_addr, user_ip6[2]);
	LOAD_WORD(a.word[3], ctx, struct bpf_sock_addr, user_ip6[3]);
	return a;
}

static __always_inline void redial(
    struct bpf_sock_addr *ctx, const struct redirect_address *to, __u16 port, bool v6)
{
	if (v6) {
		ctx->user_ip6[0] = to->word[0];
		ctx->user_ip6[1] = to->word[1];
		ctx->user_ip6[2] = to->word[2];
		ctx->user_ip6[3] = to->word[3];
	} else {
		ctx->user_ip4 = to->word[3];
	}
	ctx->user_port = bpf_htons(port);
}

/* What the socket is bound to; all zero: nothing yet. */
static __always_inline struct redirect_address bound_to(struct bpf_sock_addr *ctx, bool v6)
{
	struct redirect_address a = {};
	struct bpf_sock *sk = ctx->sk;

	if (!sk)
		return a;
	if (!v6)
		return sk->src_ip4 ? v4_mapped(sk->src_ip4) : a;
	LOAD_WORD(a.word[0], sk, struct bpf_sock, src_ip6[0]);
	LOAD_WORD(a.word[1], sk, struct bpf_sock, src_ip6[1]);
	LOAD_WORD(a.word[2], sk, struct bpf_sock, src_ip6[2]);
	LOAD_WORD(a.word[3], sk, struct bpf_sock, src_ip6[3]);
	return a;
}

/* As the kernel takes them: 0.0.0.0 is the socket's own address, or 127.0.0.1; :: is ::1. */
static __always_inline void name_any(struct redirect_flow *f)
{
	if (f->address.word[3])
		return;
	if (rules_is_v4(&f->address))
		f->address.word[3] = f->source.word[3] ? f->source.word[3] : RULES_V4(127, 0, 0, 1);
	else if (!(f->address.word[0] | f->address.word[1] | f->address.word[2]))
		f->address.word[3] = bpf_htonl(1);
}

static __always_inline struct redirect_flow flow_of(struct bpf_sock_addr *ctx, bool v6)
{
	__u64 ids = bpf_get_current_uid_gid();
	struct redirect_flow f = {.uid = (__u32)ids,
	    .gid = ids >> 32,
	    .port = bpf_ntohs(ctx->user_port),
	    .protocol = ctx->protocol,
	    .source = bound_to(ctx, v6)};

	if (v6) {
		f.address = dialled6(ctx);
	} else {
		__u32 a;
		LOAD_WORD(a, ctx, struct bpf_sock_addr, user_ip4);
		f.address = v4_mapped(a);
	}
	name_any(&f);
	return f;
}

static __always_inline bool is_set(const struct redirect_address *a)
{
	return a->word[0] | a->word[1] | a->word[2] | a->word[3];
}

/* As the pod itself may dial them, too. */
static __always_inline bool is_spread6(const struct redirect_address *a)
{
	return !(a->word[0] | a->word[1] | a->word[2]) &&
	       bpf_ntohl(a->word[3]) - REDIRECT_SPREAD_FIRST < REDIRECT_SPREAD;
}

/* The row says that the pod has them.  In another namespace than its own, or for a socket of one
 * device, Linux would look for them outside. */
static __always_inline bool leads_home(
    struct bpf_sock_addr *ctx, const struct redirect_pod *p, const struct redirect_address *to)
{
	return p->home && p->home == bpf_get_netns_cookie(ctx) && ctx->sk &&
	       !ctx->sk->bound_dev_if && (rules_cidr(p->index, to) & REDIRECT_CIDR_LOCAL);
}

/* `bound`: it has a source.  Else Linux chooses one that suits ::1, and would choose ::6. */
static __always_inline struct redirect_address capture_address(struct bpf_sock_addr *ctx,
    const struct redirect_pod *p, const struct redirect_flow *f, bool bound)
{
	const struct redirect_address *a = &f->address;
	__u32 h = bpf_ntohl(a->word[0] ^ a->word[1] ^ a->word[2] ^ a->word[3]) ^ f->port;
	struct redirect_address to = {};

	to.word[3] = bpf_htonl(REDIRECT_SPREAD_FIRST + (h * 0x9e3779b1u >> 26) % REDIRECT_SPREAD);
	if (rules_is_v4(a))
		return v4_mapped(to.word[3]);
	if (!bound || !leads_home(ctx, p, &to))
		to.word[3] = bpf_htonl(1);
	return to;
}

/* -1: no memory, and a connection without a mark must not be. */
static __always_inline int remember(struct bpf_sock_addr *ctx, const struct redirect_pod *p,
    enum redirect_socket_kind kind, const struct redirect_flow *f)
{
	struct redirect_socket *s;

	if (!ctx->sk)
		return -1;
	s = bpf_sk_storage_get(&sockets, ctx->sk, NULL, BPF_SK_STORAGE_GET_F_CREATE);
	if (!s) {
		count(p->index, REDIRECT_DROP_NO_MEMORY);
		return -1;
	}
	s->index = p->index;
	s->kind = kind;
	s->port = f->port;
	s->address = f->address;
	return 0;
}

/* As the kernel would choose: what stays in the pod comes from the very address. */
static __always_inline struct redirect_address natural_source(
    const struct redirect_pod *p, const struct redirect_flow *f)
{
	if (rules_is_loopback(&f->address))
		return (struct redirect_address){};
	if (((p->flags & REDIRECT_LOOPBACK_INCLUDED) || f->port == RULES_DNS_PORT) &&
	    (rules_cidr(p->index, &f->address) & REDIRECT_CIDR_LOCAL))
		return f->address;
	if (rules_is_v4(&f->address))
		return p->source4;
	return p->source6;
}

/* So that getsockname() and Envoy see the pod's address and not 127.0.0.1.  A socket that is bound
 * already stays as it is.  False: it is bound to nothing. */
static __always_inline bool bind_source(
    struct bpf_sock_addr *ctx, const struct redirect_pod *p, const struct redirect_flow *f, bool v6)
{
	struct redirect_address source = natural_source(p, f);
	bool bound = is_set(&f->source);

	if (!v6) {
		struct sockaddr_in_ {
			__u16 family, port;
			__u32 address;
			__u64 zero;
		} in = {.family = AF_INET, .address = source.word[3]};
		if (in.address && !bpf_bind(ctx, (struct sockaddr *)&in, sizeof(in)))
			bound = true;
	} else {
		struct sockaddr_in6_ {
			__u16 family, port;
			__u32 flow;
			struct redirect_address address;
			__u32 scope;
		} in6 = {.family = AF_INET6, .address = source};
		if (is_set(&source) && !bpf_bind(ctx, (struct sockaddr *)&in6, sizeof(in6)))
			bound = true;
	}
	return bound;
}
