/* broker_redirect_dns.c - the mark of a socket that answers a pod's DNS (ebpf/dns.bpf.h).
 *
 * It names the pod's index, so that a socket of a pod that is gone answers for nobody.
 */
#include "broker_redirect_pod.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

int broker_redirect_answer(struct broker_redirect *r, const struct uuid *pod, int socket,
    bool answered, struct broker_why *w)
{
	int map = bpf_map__fd(r->bpf->maps.sockets);
	const struct redirect_socket mark = {
	    .index = broker_redirect_index(r, pod), .kind = REDIRECT_SOCKET_LISTENS_DNS};

	if (!answered)
		return bpf_map_delete_elem(map, &socket);
	if (!mark.index)
		return broker_refuse(w, ENOENT, "this pod's traffic is not redirected by eBPF");
	if (bpf_map_update_elem(map, &socket, &mark, BPF_ANY))
		return broker_refuse_sys(w, "mark the DNS proxy's socket");
	return 0;
}
