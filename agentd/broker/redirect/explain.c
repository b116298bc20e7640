/* explain.c - the programs' own decisions (ebpf/rules.h), run here on their maps.
 */
#include "explain.h"
#include "broker/ebpf/listeners.h"
#include "broker/ebpf/table.h"
#include "common/err.h"
#include "ebpf/rules.h"
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

/* The two look-ups have no room for a context, and the broker has one thread. */
static const struct redirect_bpf *programs;

static inline int rules_listed(__u32 index, enum redirect_port_kind kind, __u32 number)
{
	const struct redirect_port_key key = {.index = index, .kind = kind, .number = number};
	__u8 there;

	return bpf_map_lookup_elem(bpf_map__fd(programs->maps.ports), &key, &there) == 0;
}

static inline __u32 rules_cidr(__u32 index, const struct redirect_address *a)
{
	const struct redirect_cidr_key key = {
	    .prefix = REDIRECT_CIDR_BITS + 128, .index = index, .address = *a};
	__u32 flags = 0;

	bpf_map_lookup_elem(bpf_map__fd(programs->maps.cidrs), &key, &flags);
	return flags;
}

/* The pod's entry as the programs have it. */
static int find_entry(
    struct redirect *r, const struct uuid *pod, struct redirect_pod *out, struct err *e)
{
	uint32_t index = ebpf_index(r, pod);

	programs = r->bpf;
	if (!index || bpf_map_lookup_elem(bpf_map__fd(r->bpf->maps.pods_by_index), &index, out))
		return err_set(e, ENOENT, "this pod's traffic is not redirected by eBPF");
	return 0;
}

/* Packets to it stay on lo. */
static bool is_own(const struct redirect_pod *p, const struct redirect_address *a)
{
	return rules_is_loopback(a) || rules_is_passthrough(a) ||
	       (rules_cidr(p->index, a) & REDIRECT_CIDR_LOCAL);
}

/* The kubelet's own is let in also before the pod is live. */
static int explain_probe(
    const struct redirect *r, const struct redirect_pod *p, uint16_t port, struct err *e)
{
	if (!rules_listed(p->index, REDIRECT_PORT_PROBE, port))
		return REDIRECT_TO_INBOUND;
	if (!r->probes.said.trees[0].id)
		return err_set(e, EAGAIN,
		    "nobody is let in to probe ports: there is no kubepods tree (--kubepods)");
	return REDIRECT_PASS_PROBE;
}

/* Not live: nothing steers it. */
static int explain_arrival(const struct redirect *r, const struct redirect_pod *p,
    const struct redirect_arrival *a, struct err *e)
{
	const struct redirect_pod_state *state = ebpf_pod_at(r, p->index);
	enum redirect_verdict v = rules_inbound(p, a);

	if (v != REDIRECT_TO_INBOUND || !state->rules)
		return (int)v;
	if (state->steered == REDIRECT_STEERED_LIVE)
		return ebpf_listeners_known(r, p->index) ? (int)v : REDIRECT_DROP_NO_LISTENER;
	if (state->rules->strict)
		return REDIRECT_DROP_GATE;
	return err_set(e, EAGAIN,
	    "the pod is permissive and not live yet: inbound traffic reaches its program without "
	    "Envoy");
}

/* As the programs do: TCP to a resolver is as any other until somebody has answered. */
static int explain_dial(const struct redirect_pod_state *state, const struct redirect_pod *p,
    const struct redirect_flow *f)
{
	enum redirect_verdict v = rules_outbound(p, f);

	if (v != REDIRECT_TO_DNS ||
	    (f->protocol == RULES_TCP ? state->answers_tcp || (p->flags & REDIRECT_DNS_KNOWN)
				      : state->answers_udp))
		return (int)v;
	v = rules_beyond_dns(p, f, rules_cidr(p->index, &f->address));
	return v == REDIRECT_TO_OUTBOUND || v == REDIRECT_TO_OUTBOUND_PORT ? (int)v
									   : REDIRECT_PASS_NO_DNS;
}

int redirect_explain(
    struct redirect *r, const struct uuid *pod, struct redirect_question *q, struct err *e)
{
	const struct redirect_pod_state *state = ebpf_pod_find(r, pod);
	struct redirect_pod entry = {0};

	if (find_entry(r, pod, &entry, e))
		return -1;
	if (q->inbound && !is_own(&entry, &q->arrival.source)) {
		if (state->seen && !is_own(&entry, &q->arrival.address))
			return err_set(e, EINVAL,
			    "neither the source nor the destination is an address of the pod");
		if (q->probe && rules_inbound(&entry, &q->arrival) == REDIRECT_TO_INBOUND) {
			int v = explain_probe(r, &entry, q->arrival.port, e);
			if (v != REDIRECT_TO_INBOUND)
				return v;
		}
		return explain_arrival(r, &entry, &q->arrival, e);
	}
	if (q->inbound)
		q->flow.source = q->arrival.source;
	q->inbound = 0; /* what comes from the pod itself was dialled there */
	return explain_dial(state, &entry, &q->flow);
}
