/* words.bpf.h - addresses as the kernel's contexts show them. */
#pragma once
#include <linux/bpf.h>
/* bpf_helpers.h wants the types first. */
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <stdbool.h>

#include "redirect.h"

/* One load, at an offset that the compiler cannot merge with another (kernels.md 3.9). */
#define LOAD_WORD(to, from, type, field)                                                           \
	asm volatile("%0 = *(u32 *)(%1 + %2)"                                                      \
		     : "=r"(to)                                                                    \
		     : "r"(from), "i"(__builtin_offsetof(type, field)))

enum { AF_INET = 2, AF_INET6 = 10, ETHERTYPE_IP4 = 0x0800, ETHERTYPE_IP6 = 0x86dd };

static __always_inline struct redirect_address v4_mapped(__u32 address)
{
	return (struct redirect_address){{0, 0, bpf_htonl(0xffff), address}};
}

/* Of a TCP connection, as one socket sees it; ports in host order. */
struct ends {
	struct redirect_address local, remote;
	__u16 local_port, remote_port;
};

static __always_inline struct ends ends_of(struct bpf_sock_ops *ctx)
{
	struct ends e = {.local_port = ctx->local_port, .remote_port = bpf_ntohl(ctx->remote_port)};
	__u32 a, b;

	if (ctx->family == AF_INET6) {
		LOAD_WORD(e.local.word[0], ctx, struct bpf_sock_ops, local_ip6[0]);
		LOAD_WORD(e.local.word[1], ctx, struct bpf_sock_ops, local_ip6[1]);
		LOAD_WORD(e.local.word[2], ctx, struct bpf_sock_ops, local_ip6[2]);
		LOAD_WORD(e.local.word[3], ctx, struct bpf_sock_ops, local_ip6[3]);
		LOAD_WORD(e.remote.word[0], ctx, struct bpf_sock_ops, remote_ip6[0]);
		LOAD_WORD(e.remote.word[1], ctx, struct bpf_sock_ops, remote_ip6[1]);
		LOAD_WORD(e.remote.word[2], ctx, struct bpf_sock_ops, remote_ip6[2]);
		LOAD_WORD(e.remote.word[3], ctx, struct bpf_sock_ops, remote_ip6[3]);
	} else {
		LOAD_WORD(a, ctx, struct bpf_sock_ops, local_ip4);
		LOAD_WORD(b, ctx, struct bpf_sock_ops, remote_ip4);
		e.local = v4_mapped(a);
		e.remote = v4_mapped(b);
	}
	return e;
}
