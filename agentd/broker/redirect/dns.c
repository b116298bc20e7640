/* dns.c - the mark of a socket that answers a pod's DNS (ebpf/dns.bpf.h), and the names that were
 * answered: what is left of it when nobody answers (ebpf/names.bpf.h).
 *
 * The mark names the pod's index, so that a socket of a pod that is gone answers for nobody.  That
 * a pod was answered once is noted with it: from then on a denial of its resolver is not believed.
 */
#include "broker/ebpf/table.h"
#include "common/err.h"
#include "ebpf/names.h"
#include "pod.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* For `explain`, which cannot look for the socket as the programs do. */
static void note(struct redirect_pod_state *p, int socket, bool answered)
{
	int type = 0;
	socklen_t size = sizeof(type);

	if (p && !getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size))
		*(type == SOCK_STREAM ? &p->answers_tcp : &p->answers_udp) = answered;
}

int redirect_answer(
    struct redirect *r, const struct uuid *pod, int socket, bool answered, struct err *e)
{
	int map = bpf_map__fd(r->bpf->maps.sockets);
	const struct redirect_socket mark = {
	    .index = ebpf_index(r, pod), .kind = REDIRECT_SOCKET_LISTENS_DNS};

	if (!answered) {
		note(ebpf_pod_find(r, pod), socket, false);
		return bpf_map_delete_elem(map, &socket);
	}
	if (!mark.index)
		return err_set(e, ENOENT, "this pod's traffic is not redirected by eBPF");
	if (bpf_map_update_elem(map, &socket, &mark, BPF_ANY))
		return err_sys(e, "mark the DNS proxy's socket");
	note(ebpf_pod_find(r, pod), socket, true);
	return 0;
}

int redirect_answered(struct redirect *r, const struct uuid *pod, struct err *e)
{
	struct redirect_pod_state *p = ebpf_pod_find(r, pod);

	if (!p || (p->entry.flags & REDIRECT_DNS_KNOWN))
		return 0;
	p->entry.flags |= REDIRECT_DNS_KNOWN;
	return p->cgroup ? ebpf_pod_put(r, p, e) : 0;
}

static bool is_told(const struct redirect_names_told *t, const uint8_t pod[16])
{
	for (uint64_t i = 0; i < t->npods; i++)
		if (!memcmp(t->pods[i].pod, pod, sizeof(t->pods[i].pod)))
			return true;
	return false;
}

static void forget_others(int map, const struct redirect_names_told *t)
{
	uint8_t at[16], next[16];
	bool more = bpf_map_get_next_key(map, NULL, next) == 0;

	while (more) {
		memcpy(at, next, sizeof(at));
		more = bpf_map_get_next_key(map, at, next) == 0;
		if (!is_told(t, at))
			bpf_map_delete_elem(map, at);
	}
}

/* The names first: a salt that is new means some of them. */
int redirect_names_put(struct redirect *r, const struct redirect_names_told *t, struct err *e)
{
	const uint32_t zero = 0;
	int of = bpf_map__fd(r->bpf->maps.names_of);

	if (t->npods > REDIRECT_PODS_MAX)
		return err_set(e, EINVAL, "names of more than %d pods", REDIRECT_PODS_MAX);
	forget_others(of, t);
	if (bpf_map_update_elem(bpf_map__fd(r->bpf->maps.names), &zero, &t->names, BPF_ANY))
		return err_sys(e, "eBPF map of names");
	for (uint64_t i = 0; i < t->npods; i++)
		if (bpf_map_update_elem(of, t->pods[i].pod, &t->pods[i].salt, BPF_ANY))
			return err_sys(e, "eBPF map of pods' names");
	return 0;
}
