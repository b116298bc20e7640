/* pod.c - one pod after the other: set, live, close, remove; found again.
 *
 * set: rows of ports and addresses -> the gate, for a strict pod -> Envoy's sockets, if it listens
 * already -> the pod's own entry, by which the programs begin to see it.  So nothing the pod does
 * is ever decided by half of its rules, and nothing reaches it before the gate is there.
 * live: its addresses -> Envoy's sockets, if they were not found yet -> its own sk_lookup in its
 * network namespace: what that steers to Envoy the gate lets through.
 * close: its sandbox is gone, the next one is not live yet.
 * A change writes new rows, then the entry, then takes away old rows; sockets go on under the
 * same index.  remove is the reverse of set.
 */
#include "pod.h"
#include "broker/ebpf/kubelet_dials.h"
#include "broker/ebpf/links.h"
#include "broker/ebpf/listeners.h"
#include "broker/ebpf/place.h"
#include "broker/ebpf/rows.h"
#include "broker/ebpf/table.h"
#include "common/err.h"
#include "common/log.h"
#include "common/mem.h"
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <utlist.h>

LOG_SCOPE("broker");

/* --- what is known of it --- */

bool redirect_gone(const struct redirect *r, const struct uuid *pod)
{
	const struct redirect_pod_state *p = ebpf_pod_find(r, pod);

	return p && p->steered == REDIRECT_STEERED_GONE;
}

bool redirect_is_steered(const struct redirect *r, const struct uuid *pod)
{
	const struct redirect_pod_state *p = ebpf_pod_find(r, pod);

	return p && p->steered == REDIRECT_STEERED_LIVE;
}

bool redirect_is_shut(const struct redirect *r, const struct uuid *pod)
{
	const struct redirect_pod_state *p = ebpf_pod_find(r, pod);

	return p && p->cgroup && (p->entry.flags & REDIRECT_SHUT);
}

/* A pod whose cgroup holds another one's closes that, too. */
bool redirect_is_closed(const struct redirect *r, int cgroup)
{
	const struct redirect_pod_state *p;
	uint64_t above[REDIRECT_DEPTH];
	struct err e;

	if (ebpf_place_check(&r->top, cgroup, above, &e))
		return false;
	DL_FOREACH (r->pods, p)
		if (ebpf_pod_holds(p, above) && ebpf_link_has_gate(r, p))
			return true;
	return false;
}

void redirect_pods(struct redirect *r, void (*each)(void *ctx, const struct uuid *pod), void *ctx)
{
	struct redirect_pod_state *p, *tmp;

	DL_FOREACH_SAFE (r->pods, p, tmp)
		each(ctx, &p->uid);
}

const struct redirect_rules *redirect_rules(const struct redirect *r, const struct uuid *pod)
{
	const struct redirect_pod_state *p = ebpf_pod_find(r, pod);

	return p ? p->rules : NULL;
}

uint32_t redirect_counted(
    const struct redirect *r, const struct uuid *pod, struct redirect_counters *baseline)
{
	uint32_t index = ebpf_index(r, pod);

	memset(baseline, 0, sizeof(*baseline));
	if (index)
		bpf_map_lookup_elem(bpf_map__fd(r->bpf->maps.baselines), &index, baseline);
	return ebpf_pod_row(index);
}

/* --- set --- */

/* Kilobytes less for each pod than the whole struct. */
static struct redirect_rules *copy_rules(const struct redirect_rules *rules)
{
	size_t size =
	    offsetof(struct redirect_rules, cidrs) + rules->ncidrs * sizeof(rules->cidrs[0]);

	return memcpy(mem_zalloc(size), rules, size);
}

static struct redirect_seen *copy_seen(const struct netns_watch_seen *s)
{
	size_t routes = s->nroutes * sizeof(s->routes[0]);
	struct redirect_seen *out = mem_zalloc(sizeof(*out) + routes);

	out->ninterfaces = s->ninterfaces;
	out->nroutes = s->nroutes;
	memcpy(out->interfaces, s->interfaces, sizeof(out->interfaces));
	memcpy(out->routes, s->routes, routes);
	return out;
}

static void now_late(struct redirect_pod_state *p, bool late)
{
	p->late = late;
	p->pause_s = 0;
	p->look_ms = 0;
}

/* Those who listen on other ports now, or are somebody else, did so before. */
static bool is_other_proxy(const struct redirect_pod *entry, const struct redirect_rules *rules)
{
	return entry->proxy_uid != rules->proxy_uid ||
	       entry->outbound_port != rules->outbound_port ||
	       entry->inbound_port != rules->inbound_port;
}

static void take_rules(struct redirect_pod_state *p, const struct redirect_rules *rules)
{
	const uint32_t known = p->entry.flags & REDIRECT_DNS_KNOWN;

	p->entry.flags = rules->flags | (p->entry.flags & REDIRECT_TRACE);
	if (rules->flags & REDIRECT_DNS)
		p->entry.flags |= known;
	p->entry.proxy_uid = rules->proxy_uid;
	p->entry.proxy_gid = rules->proxy_gid;
	p->entry.outbound_port = rules->outbound_port;
	p->entry.inbound_port = rules->inbound_port;
	p->entry.tunnel_port = rules->tunnel_port;
	p->entry.dns_port = rules->dns_port;
	if (p->rules != rules) {
		free(p->rules);
		p->rules = copy_rules(rules);
	}
}

static void leave(struct redirect_pod_state *p)
{
	if (p->steered == REDIRECT_STEERED_LIVE)
		p->steered = REDIRECT_STEERED_NONE;
	p->envoy = REDIRECT_ENVOY_UNHEARD;
}

/* A pod that comes back has a new cgroup under the same uid; its sandbox is new too. */
static void move_to(struct redirect *r, struct redirect_pod_state *p, uint64_t cgroup)
{
	if (p->cgroup && p->cgroup != cgroup) {
		ebpf_pod_take_out(r, p);
		ebpf_unlink_lookup(r, p);
		leave(p);
		p->entry.home = 0;
		p->since_s = 0;
	}
	p->cgroup = cgroup;
	p->leaves = false;
}

static int put_gate(struct redirect *r, struct redirect_pod_state *p, int cgroup, struct err *e)
{
	if (p->rules->strict)
		return ebpf_link_gate(r, p, cgroup, e);
	ebpf_unlink_gate(r, p);
	return 0;
}

/* An Envoy that runs must be able to ask what was dialled, from the first dial on. */
static int write_all(
    struct redirect *r, struct redirect_pod_state *p, struct redirect_where at, struct err *e)
{
	const struct redirect_pod_state *before = ebpf_pod_before(r, p);

	if (ebpf_pins_make(r, &p->uid, e))
		return -1;
	if (before)
		ebpf_pins_move(r, &before->uid, &p->uid);
	if (ebpf_rows_put(r, p, e) || kubelet_dials_tell(r, e) || put_gate(r, p, at.cgroup, e) ||
	    ebpf_link_getsockopt(r, p, at.cgroup, e) || ebpf_link_names(r, p, at.cgroup, e))
		return -1;
	if (p->late && at.netns >= 0)
		ebpf_listeners_find(r, &p->entry, at.netns);
	return ebpf_pod_put(r, p, e);
}

/* By one entry of the map the cgroup is another pod's; or all is as it was. */
static int write_in_place(
    struct redirect *r, struct redirect_pod_state *p, struct redirect_where at, struct err *e)
{
	struct redirect_pod_state *before = ebpf_pod_before(r, p);
	int rc = write_all(r, p, at, e);

	if (before && rc)
		ebpf_pins_move(r, &p->uid, &before->uid);
	else if (before)
		before->cgroup = 0;
	return rc;
}

static void take_out(struct redirect *r, struct redirect_pod_state *p);

/* Ports that no pod has any more are told by the next audit, if not now. */
static void sweep(struct redirect *r, struct redirect_pod_state *p)
{
	struct err ignored;

	ebpf_rows_sweep(r, p);
	kubelet_dials_tell(r, &ignored);
}

static int set_at(struct redirect *r, struct redirect_pod_state *p, struct redirect_where at,
    const struct redirect_rules *rules, struct err *e)
{
	const bool known = p->cgroup,
		   new_proxy = p->cgroup != p->above[0] || is_other_proxy(&p->entry, rules);
	int rc;

	if (new_proxy)
		now_late(p, ebpf_listeners_possible(at.cgroup));
	move_to(r, p, p->above[0]);
	take_rules(p, rules);
	rc = write_in_place(r, p, at, e);
	if (new_proxy && !p->late) /* somebody may have come meanwhile */
		p->late = ebpf_listeners_possible(at.cgroup);
	if (known)
		sweep(r, p);
	return rc;
}

/* One that is new leaves nothing when it fails; one that is known goes on as far as it got. */
int redirect_set(struct redirect *r, const struct uuid *pod, struct redirect_where at,
    const struct redirect_rules *rules, struct err *e)
{
	struct redirect_pod_state *p;
	bool known;
	int rc = -1;

	if (rules->ninterfaces && !r->can.interfaces)
		return err_set(e, EOPNOTSUPP,
		    "excluded interfaces need Linux 5.17 or newer; use mode istio-cni for this "
		    "pod");
	if (ebpf_links_follow(r, e) || !(p = ebpf_pod_find_or_add(r, pod, e)))
		return -1;
	known = p->cgroup;
	if (!ebpf_place_check(&r->top, at.cgroup, p->above, e) &&
	    !ebpf_pod_check_neighbours(r, p, e))
		rc = set_at(r, p, at, rules, e);
	if (rc && !known)
		take_out(r, p);
	return rc;
}

/* --- live, and not any more --- */

static struct redirect_address address_of(const struct link_address *a)
{
	struct redirect_address out = {{0}};

	if (a->family == AF_INET) {
		out.word[2] = htobe32(0xffff);
		memcpy(&out.word[3], a->bytes, 4);
	} else {
		memcpy(&out, a->bytes, sizeof(out));
	}
	return out;
}

static bool is_zero(const struct redirect_address *a)
{
	return !(a->word[0] | a->word[1] | a->word[2] | a->word[3]);
}

/* The first of each family is what the pod's processes dial from. */
static void take_seen(struct redirect_pod_state *p, const struct netns_watch_seen *seen)
{
	free(p->seen);
	p->seen = copy_seen(seen);
	p->entry.home = seen->cookie;
	memset(&p->entry.source4, 0, sizeof(p->entry.source4));
	memset(&p->entry.source6, 0, sizeof(p->entry.source6));
	for (uint32_t i = 0; i < seen->addresses.naddresses; i++) {
		const struct link_address *a = &seen->addresses.addresses[i];
		struct redirect_address *source =
		    a->family == AF_INET ? &p->entry.source4 : &p->entry.source6;
		if (is_zero(source))
			*source = address_of(a);
	}
}

static int make_live(struct redirect *r, struct redirect_pod_state *p, int netns,
    const struct netns_watch_seen *seen, struct err *e)
{
	bool again = p->seen || p->adopted;

	take_seen(p, seen);
	ebpf_listeners_look(r, p, netns);
	if (p->envoy == REDIRECT_ENVOY_UNHEARD && ebpf_listeners_known(r, p->entry.index))
		p->envoy = REDIRECT_ENVOY_HEARD;
	if (ebpf_rows_put(r, p, e) || ebpf_pod_put(r, p, e) || ebpf_link_lookup(r, p, netns, e))
		return -1;
	if (again)
		ebpf_rows_sweep(r, p);
	p->steered = REDIRECT_STEERED_LIVE;
	return 0;
}

int redirect_live(struct redirect *r, const struct uuid *pod, int netns,
    const struct netns_watch_seen *seen, struct err *e)
{
	struct redirect_pod_state *p = ebpf_pod_find(r, pod);

	if (!p || !p->rules)
		return 0; /* its traffic is not ours, or not yet */
	return make_live(r, p, netns, seen, e);
}

void redirect_close(struct redirect *r, const struct uuid *pod)
{
	struct redirect_pod_state *p = ebpf_pod_find(r, pod);
	char uid[UUID_TEXT_SIZE];
	struct err e;

	if (!p || !p->rules)
		return;
	leave(p);
	p->entry.home = 0;
	now_late(p, false); /* the next one begins under the rules */
	ebpf_unlink_lookup(r, p);
	if (p->cgroup && ebpf_pod_put(r, p, &e)) {
		uuid_format(&p->uid, uid);
		log_warn(uid, "%s", e.msg); /* the audit puts it right */
	}
}

/* --- remove --- */

static void drop_listeners(struct redirect *r, uint32_t index)
{
	static const uint32_t families[] = {AF_INET, AF_INET6};

	for (int i = 0; i < 2; i++) {
		struct redirect_listener_key key = {.index = index, .family = families[i]};
		bpf_map_delete_elem(bpf_map__fd(r->bpf->maps.listeners), &key);
	}
}

static void take_out(struct redirect *r, struct redirect_pod_state *p)
{
	uint32_t index = p->entry.index;
	struct err ignored;

	ebpf_pod_take_out(r, p);
	ebpf_pins_remove(r, &p->uid);
	ebpf_rows_clear(r, p);
	drop_listeners(r, index);
	bpf_map_delete_elem(bpf_map__fd(r->bpf->maps.pods_by_index), &index);
	bpf_map_delete_elem(bpf_map__fd(r->bpf->maps.baselines), &index);
	ebpf_pod_forget(r, p);
	kubelet_dials_tell(r, &ignored);
}

void redirect_leave(struct redirect *r, const struct uuid *pod)
{
	struct redirect_pod_state *p = ebpf_pod_find(r, pod);

	if (p)
		p->leaves = true;
}

void redirect_remove(struct redirect *r, const struct uuid *pod)
{
	struct redirect_pod_state *p = ebpf_pod_find(r, pod);

	if (p)
		take_out(r, p);
}

/* --- after an earlier broker --- */

/* Whatever has an index, of this map, that no pod has. */
static void clear_strangers(const struct redirect *r, const struct bpf_map *m)
{
	int fd = bpf_map__fd(m);
	uint32_t at, next;
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	while (more) {
		at = next;
		more = bpf_map_get_next_key(fd, &at, &next) == 0;
		if (!ebpf_pod_at(r, at))
			bpf_map_delete_elem(fd, &at);
	}
}

/* One that fails is no reason to leave the others to the previous programs. */
static void adopt(struct redirect *r, uint64_t cgroup, const struct redirect_pod *entry)
{
	uint32_t row = ebpf_pod_row(entry->index);
	struct redirect_pod_state *p;
	char uid[UUID_TEXT_SIZE];
	struct err e;

	if (!row || row > REDIRECT_PODS_MAX || r->rows[row]) {
		bpf_map_delete_elem(bpf_map__fd(r->bpf->maps.pods), &cgroup);
		return;
	}
	p = ebpf_pod_add(r, (const struct uuid *)entry->uid, entry->index);
	p->entry = *entry;
	p->cgroup = cgroup;
	p->adopted = true;
	if (ebpf_listeners_known(r, entry->index))
		p->envoy = REDIRECT_ENVOY_HEARD;
	p->late = p->envoy != REDIRECT_ENVOY_HEARD; /* it may have died before it looked */
	if (!ebpf_links_renew(r, p, &e))
		return;
	uuid_format(&p->uid, uid);
	log_error(uid,
	    "its traffic goes by the previous agentd's eBPF programs, until the pod is redirected "
	    "again: %s",
	    e.msg);
}

void redirect_pods_adopt(struct redirect *r)
{
	int fd = bpf_map__fd(r->bpf->maps.pods);
	struct redirect_pod entry;
	uint64_t at, next;
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	while (more) {
		at = next;
		more = bpf_map_get_next_key(fd, &at, &next) == 0;
		if (!bpf_map_lookup_elem(fd, &at, &entry))
			adopt(r, at, &entry);
	}
	ebpf_pins_sweep(r);
	ebpf_rows_adopt(r);
	clear_strangers(r, r->bpf->maps.pods_by_index);
	clear_strangers(r, r->bpf->maps.baselines);
}
