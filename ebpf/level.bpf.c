/* level.bpf.c - which cgroups is a process in?  As the kernel counts, from the host's root on: a
 * cgroup namespace, or a mount of a part of the tree, shows nobody how far below that it begins.
 */
#include <linux/bpf.h>
/* bpf_helpers.h wants the types first. */
#include "redirect.h"
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 cookie;                   /* of the socket whose process it is */
__u64 ids[REDIRECT_TREE_DEPTH]; /* the root's first */

SEC("cgroup/connect4")
int level_measure(struct bpf_sock_addr *ctx)
{
	if (bpf_get_socket_cookie(ctx) != cookie)
		return 1;
	for (int i = 0; i < REDIRECT_TREE_DEPTH; i++)
		ids[i] = bpf_get_current_ancestor_cgroup_id(i);
	return 1;
}
