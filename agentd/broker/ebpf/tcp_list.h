/* tcp_list.h - the kernel's list of TCP sockets in the network namespace that we are in. */
#pragma once
#include "ebpf/redirect.h"
#include <stdbool.h>
#include <stdint.h>

enum { REDIRECT_TCP_ESTABLISHED = 1, REDIRECT_TCP_LISTENS = 10 };

struct redirect_tcp_socket {
	struct redirect_address address, remote;
	uint32_t port, state, uid;
};
/* Calls `each` for every socket of AF_INET or AF_INET6, until it returns false.  Listening ones
 * come first.  A pod may have as many as it likes, so the list ends after some thousand.  No IPv6:
 * none. */
void ebpf_tcp_list(
    uint32_t family, bool (*each)(void *ctx, const struct redirect_tcp_socket *s), void *ctx);
/* Also ::127.0.0.0/104, where captured dials of IPv6 end (ebpf/outbound.bpf.h). */
bool ebpf_tcp_is_loopback(const struct redirect_address *a);
