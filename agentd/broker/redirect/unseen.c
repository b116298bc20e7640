/* unseen.c - nothing decided -> a minute -> is a socket connected there?
 *
 * A connection counts as dialled when its own port is one that dials take, and nobody listens
 * there.
 */
#include "unseen.h"
#include "broker/ebpf/table.h"
#include "broker/ebpf/tcp_list.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum { PORTS = 65536, WAIT_S = 60 };

static int64_t now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

/* Verdicts of dials stand before those of arrivals. */
static bool is_decided(const struct redirect *r, const struct redirect_pod_state *p)
{
	const uint32_t index = p->entry.index, row = ebpf_pod_row(index) - 1;
	struct redirect_counters now = {0}, before = {0};
	uint64_t n = 0;

	bpf_map_lookup_elem(bpf_map__fd(r->bpf->maps.counters), &row, &now);
	bpf_map_lookup_elem(bpf_map__fd(r->bpf->maps.baselines), &index, &before);
	for (int v = 0; v < REDIRECT_PASS_TUNNEL; v++)
		n += now.n[v] - before.n[v];
	return n;
}

/* --- who is connected --- */

struct search {
	bool listens[PORTS];
	uint32_t first, last; /* ports that dials take */
	bool found;
};

static bool on_listener(void *ctx, const struct redirect_tcp_socket *s)
{
	struct search *all = ctx;

	if (s->state != REDIRECT_TCP_LISTENS)
		return false; /* those come first */
	all->listens[s->port % PORTS] = true;
	return true;
}

static bool on_connection(void *ctx, const struct redirect_tcp_socket *s)
{
	struct search *all = ctx;

	all->found = s->state == REDIRECT_TCP_ESTABLISHED && !ebpf_tcp_is_loopback(&s->remote) &&
		     s->port >= all->first && s->port <= all->last &&
		     !all->listens[s->port % PORTS];
	return !all->found;
}

static void read_ports(struct search *all)
{
	FILE *f = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
	char text[64] = "", *rest = text;

	if (f && !fgets(text, sizeof(text), f))
		*text = '\0';
	if (f)
		fclose(f);
	all->first = (uint32_t)strtoul(rest, &rest, 10);
	all->last = (uint32_t)strtoul(rest, &rest, 10);
}

static int search(void *ctx, struct err *e)
{
	struct search *all = ctx;

	(void)e;
	read_ports(all);
	ebpf_tcp_list(AF_INET, on_listener, all);
	ebpf_tcp_list(AF_INET6, on_listener, all);
	ebpf_tcp_list(AF_INET, on_connection, all);
	if (!all->found)
		ebpf_tcp_list(AF_INET6, on_connection, all);
	return 0;
}

int redirect_unseen(struct redirect *r, const struct uuid *pod, int netns, struct err *e)
{
	struct redirect_pod_state *p = ebpf_pod_find(r, pod);
	struct search all = {.found = false};
	struct err ignored;

	if (!p || !p->cgroup || !r->home || is_decided(r, p))
		return 0;
	if (!p->since_s)
		p->since_s = now_s();
	if (now_s() - p->since_s < WAIT_S || netns_visit(r->home, netns, search, &all, &ignored) ||
	    !all.found)
		return 0;
	return err_set(e, ENODATA,
	    "its connections go past Envoy: it has one, and the eBPF programs saw no dial in a "
	    "minute; its processes are not in its cgroup, or dialled earlier: restart them (agentd "
	    "--check)");
}
