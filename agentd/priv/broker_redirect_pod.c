/* broker_redirect_pod.c - what the programs know of one pod.
 *
 * set: rows of ports and addresses -> the gate, for a strict pod -> the pod's own entry, by which
 * the programs begin to see it.  So nothing the pod does is ever decided by half of its rules, and
 * nothing reaches it before the gate is there.
 * live: its own sk_lookup in its network namespace -> its addresses -> the gate goes.
 * A change writes what is new, then the entry, then takes away what is old; sockets go on under the
 * same index.  remove is the reverse of set.
 */
#include "broker_redirect_pod.h"
#include "../base/mem.h"
#include <bpf/libbpf.h>
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

struct redirect_pod_state {
	struct redirect_pod entry; /* as in the maps */
	struct uuid uid;
	uint64_t cgroup;              /* its id; 0: no entry yet */
	struct redirect_rules *rules; /* NULL: of an earlier broker, not told again yet */
	struct broker_view_seen seen; /* of its network namespace */
	bool looked;                  /* by this broker: what an earlier one saw stays until then */
	bool live;
	struct redirect_pod_state *prev, *next;
};

/* --- pins --- */

static void pin_path(const struct broker_redirect *r, const struct redirect_pod_state *p,
    const char *name, char out[REDIRECT_PATH_SIZE])
{
	char uid[UUID_TEXT_SIZE];

	uuid_format(&p->uid, uid);
	snprintf(out, REDIRECT_PATH_SIZE, "%s/pods/%s%s%s", r->pins, uid, *name ? "/" : "", name);
}

static int make_pin_directory(
    const struct broker_redirect *r, const struct redirect_pod_state *p, struct broker_why *w)
{
	char path[REDIRECT_PATH_SIZE];

	pin_path(r, p, "", path);
	if (mkdir(path, 0700) && errno != EEXIST)
		return broker_refuse_sys(w, "mkdir %s", path);
	return 0;
}

/* The last reference of a link is its pin. */
static void unpin(
    const struct broker_redirect *r, const struct redirect_pod_state *p, const char *name)
{
	char path[REDIRECT_PATH_SIZE];

	pin_path(r, p, name, path);
	unlink(path);
}

static int link_to(struct broker_redirect *r, const struct redirect_pod_state *p,
    const struct bpf_program *program, int target, struct broker_why *w)
{
	struct redirect_link l = {.program = bpf_program__fd(program),
	    .target = target,
	    .type = bpf_program__expected_attach_type(program)};

	pin_path(r, p, bpf_program__name(program), l.path);
	return redirect_link(&l, w);
}

/* --- rows --- */

static int put(const struct bpf_map *m, const void *key, const void *value, struct broker_why *w)
{
	if (bpf_map_update_elem(bpf_map__fd(m), key, value, BPF_ANY))
		return broker_refuse_sys(w, "eBPF map %s", bpf_map__name(m));
	return 0;
}

static struct redirect_port_key row_key(uint32_t index, const struct redirect_row *row)
{
	return (struct redirect_port_key){.index = index, .kind = row->kind, .number = row->number};
}

static struct redirect_cidr_key cidr_key(uint32_t index, const struct redirect_cidr *c)
{
	return (struct redirect_cidr_key){
	    .prefix = REDIRECT_CIDR_BITS + c->bits, .index = index, .address = c->address};
}

static int put_cidr(
    struct broker_redirect *r, uint32_t index, const struct redirect_cidr *c, struct broker_why *w)
{
	struct redirect_cidr_key key = cidr_key(index, c);

	return put(r->bpf->maps.cidrs, &key, &c->flags, w);
}

static bool has_row(const struct redirect_pod_state *p, const struct redirect_rules *rules,
    const struct redirect_port_key *key)
{
	if (rules && key->kind == REDIRECT_PORT_INTERFACE && !p->looked)
		return true;
	if (rules && key->kind == REDIRECT_PORT_INTERFACE)
		for (uint32_t i = 0; i < p->seen.ninterfaces; i++)
			if (p->seen.interfaces[i] == key->number)
				return true;
	for (uint32_t i = 0; rules && i < rules->nrows; i++)
		if (rules->rows[i].kind == key->kind && rules->rows[i].number == key->number)
			return true;
	return false;
}

static bool same_cidr(const struct redirect_cidr *c, const struct redirect_cidr_key *key)
{
	return c->bits + REDIRECT_CIDR_BITS == key->prefix &&
	       !memcmp(&c->address, &key->address, sizeof(c->address));
}

static struct redirect_address address_of(const struct priv_address *a)
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

static struct redirect_cidr local_of(const struct priv_address *a)
{
	return (struct redirect_cidr){
	    .address = address_of(a), .bits = 128, .flags = REDIRECT_CIDR_LOCAL};
}

static bool has_cidr(const struct redirect_pod_state *p, const struct redirect_rules *rules,
    const struct redirect_cidr_key *key)
{
	for (uint32_t i = 0; rules && i < rules->ncidrs; i++)
		if (same_cidr(&rules->cidrs[i], key))
			return true;
	for (uint32_t i = 0; rules && i < p->seen.nroutes; i++)
		if (same_cidr(&p->seen.routes[i], key))
			return true;
	for (uint32_t i = 0; rules && i < p->seen.addresses.naddresses; i++) {
		struct redirect_cidr c = local_of(&p->seen.addresses.addresses[i]);
		if (same_cidr(&c, key))
			return true;
	}
	return false;
}

/* Takes away what `rules` (NULL: nothing) do not have.  Walks the whole map: changes are rare. */
static void sweep_ports(struct broker_redirect *r, const struct redirect_pod_state *p,
    const struct redirect_rules *rules)
{
	int fd = bpf_map__fd(r->bpf->maps.ports);
	struct redirect_port_key at, next;
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	while (more) {
		at = next;
		more = bpf_map_get_next_key(fd, &at, &next) == 0;
		if (at.index == p->entry.index && !has_row(p, rules, &at))
			bpf_map_delete_elem(fd, &at);
	}
}

static bool is_old_sight(const struct redirect_pod_state *p, int map, const void *key)
{
	uint32_t flags = 0;

	return !p->looked && !bpf_map_lookup_elem(map, key, &flags) &&
	       (flags & (REDIRECT_CIDR_LOCAL | REDIRECT_CIDR_INTERFACE));
}

static void sweep_cidrs(struct broker_redirect *r, const struct redirect_pod_state *p,
    const struct redirect_rules *rules)
{
	int fd = bpf_map__fd(r->bpf->maps.cidrs);
	struct redirect_cidr_key at, next;
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	while (more) {
		at = next;
		more = bpf_map_get_next_key(fd, &at, &next) == 0;
		if (at.index == p->entry.index && !has_cidr(p, rules, &at) &&
		    !(rules && is_old_sight(p, fd, &at)))
			bpf_map_delete_elem(fd, &at);
	}
}

/* --- the pod's own addresses --- */

static bool covers(const struct redirect_cidr *c, const struct redirect_address *a)
{
	const uint8_t *x = (const uint8_t *)&c->address, *y = (const uint8_t *)a;
	unsigned whole = c->bits / 8, rest = c->bits % 8;

	if (memcmp(x, y, whole) != 0)
		return false;
	return !rest || ((x[whole] ^ y[whole]) >> (8 - rest)) == 0;
}

/* The flags of the longest of the `n` prefixes that cover one. */
static uint32_t longest(
    const struct redirect_cidr *list, uint32_t n, const struct redirect_cidr *of)
{
	uint32_t flags = 0, bits = 0;

	for (uint32_t i = 0; i < n; i++)
		if (list[i].bits >= bits && list[i].bits <= of->bits &&
		    covers(&list[i], &of->address)) {
			bits = list[i].bits;
			flags = list[i].flags;
		}
	return flags;
}

/* The trie answers with the longest prefix only, so each repeats what covers it: of the rules
 * (which are flat), and of the routes. */
static int put_whole(struct broker_redirect *r, const struct redirect_pod_state *p,
    const struct redirect_rules *rules, const struct redirect_cidr *c, struct broker_why *w)
{
	struct redirect_cidr whole = *c;

	whole.flags |= longest(p->seen.routes, p->seen.nroutes, c);
	if (rules)
		whole.flags |= longest(rules->cidrs, rules->ncidrs, c);
	if (whole.flags & REDIRECT_CIDR_LOCAL)
		whole.flags &= ~(uint32_t)REDIRECT_CIDR_INTERFACE; /* goes over lo */
	return put_cidr(r, p->entry.index, &whole, w);
}

static int put_rules(struct broker_redirect *r, const struct redirect_pod_state *p,
    const struct redirect_rules *rules, struct broker_why *w)
{
	const uint8_t there = 1;

	for (uint32_t i = 0; i < rules->nrows; i++) {
		struct redirect_port_key key = row_key(p->entry.index, &rules->rows[i]);
		if (put(r->bpf->maps.ports, &key, &there, w))
			return -1;
	}
	for (uint32_t i = 0; i < rules->ncidrs; i++)
		if (put_whole(r, p, rules, &rules->cidrs[i], w))
			return -1;
	return 0;
}

/* What was seen in its network namespace. */
static int put_seen(struct broker_redirect *r, const struct redirect_pod_state *p,
    const struct redirect_rules *rules, struct broker_why *w)
{
	const uint8_t there = 1;

	for (uint32_t i = 0; i < p->seen.ninterfaces; i++) {
		const struct redirect_row row = {REDIRECT_PORT_INTERFACE, p->seen.interfaces[i]};
		struct redirect_port_key key = row_key(p->entry.index, &row);
		if (put(r->bpf->maps.ports, &key, &there, w))
			return -1;
	}
	for (uint32_t i = 0; i < p->seen.nroutes; i++)
		if (put_whole(r, p, rules, &p->seen.routes[i], w))
			return -1;
	for (uint32_t i = 0; i < p->seen.addresses.naddresses; i++) {
		struct redirect_cidr c = local_of(&p->seen.addresses.addresses[i]);
		if (put_whole(r, p, rules, &c, w))
			return -1;
	}
	return 0;
}

static bool is_zero(const struct redirect_address *a)
{
	return !(a->word[0] | a->word[1] | a->word[2] | a->word[3]);
}

/* The first of each family is what the pod's processes dial from. */
static void take_seen(struct redirect_pod_state *p, const struct broker_view_seen *seen)
{
	p->seen = *seen;
	p->looked = true;
	memset(&p->entry.source4, 0, sizeof(p->entry.source4));
	memset(&p->entry.source6, 0, sizeof(p->entry.source6));
	for (uint32_t i = 0; i < seen->addresses.naddresses; i++) {
		const struct priv_address *a = &seen->addresses.addresses[i];
		struct redirect_address *source =
		    a->family == AF_INET ? &p->entry.source4 : &p->entry.source6;
		if (is_zero(source))
			*source = address_of(a);
	}
}

/* --- the table --- */

static struct redirect_pod_state *find(const struct broker_redirect *r, const struct uuid *uid)
{
	struct redirect_pod_state *p;

	DL_FOREACH (r->pods, p)
		if (uuid_equal(&p->uid, uid))
			return p;
	return NULL;
}

uint32_t broker_redirect_index(const struct broker_redirect *r, const struct uuid *pod)
{
	const struct redirect_pod_state *p = find(r, pod);

	return p && p->cgroup ? p->entry.index : 0;
}

static struct redirect_pod_state *add(
    struct broker_redirect *r, const struct uuid *uid, uint32_t index)
{
	struct redirect_pod_state *p = broker_zalloc(sizeof(*p));

	p->uid = *uid;
	p->entry.index = index;
	memcpy(p->entry.uid, uid, sizeof(p->entry.uid));
	r->used[index] = true;
	DL_APPEND(r->pods, p);
	return p;
}

static void keep_baseline(struct broker_redirect *r, uint32_t index)
{
	const uint32_t row = index - 1;
	struct redirect_counters now;

	if (!bpf_map_lookup_elem(bpf_map__fd(r->bpf->maps.counters), &row, &now))
		bpf_map_update_elem(bpf_map__fd(r->bpf->maps.baselines), &index, &now, BPF_ANY);
}

static struct redirect_pod_state *find_or_add(
    struct broker_redirect *r, const struct uuid *uid, struct broker_why *w)
{
	struct redirect_pod_state *p = find(r, uid);

	for (uint32_t i = 1; !p && i <= REDIRECT_PODS_MAX; i++)
		if (!r->used[i]) {
			keep_baseline(r, i);
			p = add(r, uid, i);
		}
	if (!p)
		broker_refuse(
		    w, ENOSPC, "traffic of %d pods is redirected already", REDIRECT_PODS_MAX);
	return p;
}

static void forget(struct broker_redirect *r, struct redirect_pod_state *p)
{
	r->used[p->entry.index] = false;
	DL_DELETE(r->pods, p);
	free(p->rules);
	free(p);
}

void redirect_pods_free(struct broker_redirect *r)
{
	struct redirect_pod_state *p, *tmp;

	DL_FOREACH_SAFE (r->pods, p, tmp)
		forget(r, p);
}

/* --- acts --- */

static int put_entry(
    struct broker_redirect *r, const struct redirect_pod_state *p, struct broker_why *w)
{
	if (put(r->bpf->maps.pods_by_index, &p->entry.index, &p->entry, w))
		return -1;
	return put(r->bpf->maps.pods, &p->cgroup, &p->entry, w);
}

static void take_rules(struct redirect_pod_state *p, const struct redirect_rules *rules)
{
	p->entry.flags = rules->flags | (p->entry.flags & REDIRECT_TRACE);
	p->entry.proxy_uid = rules->proxy_uid;
	p->entry.proxy_gid = rules->proxy_gid;
	p->entry.outbound_port = rules->outbound_port;
	p->entry.inbound_port = rules->inbound_port;
	p->entry.tunnel_port = rules->tunnel_port;
	p->entry.dns_port = rules->dns_port;
	if (!p->rules)
		p->rules = broker_zalloc(sizeof(*p->rules));
	*p->rules = *rules;
}

/* A pod that comes back has a new cgroup under the same uid; its sandbox is new too. */
static void move_to(struct broker_redirect *r, struct redirect_pod_state *p, uint64_t cgroup)
{
	if (p->cgroup && p->cgroup != cgroup) {
		bpf_map_delete_elem(bpf_map__fd(r->bpf->maps.pods), &p->cgroup);
		unpin(r, p, "redirect_getsockopt");
		unpin(r, p, "redirect_gate");
		unpin(r, p, "redirect_lookup");
		p->live = false;
	}
	p->cgroup = cgroup;
}

int broker_redirect_set(struct broker_redirect *r, const struct uuid *pod, int cgroup,
    const struct redirect_rules *rules, struct broker_why *w)
{
	struct redirect_pod_state *p = find_or_add(r, pod, w);
	struct stat st;
	bool known = p && p->cgroup;

	if (!p)
		return -1;
	if (fstat(cgroup, &st))
		return broker_refuse_sys(w, "the pod's cgroup");
	if (rules->ninterfaces && !r->interfaces)
		return broker_refuse(w, EOPNOTSUPP,
		    "excluded interfaces need Linux 5.17 or newer; use mode istio-cni for this "
		    "pod");
	move_to(r, p, st.st_ino);
	take_rules(p, rules);
	if (make_pin_directory(r, p, w) || put_rules(r, p, rules, w) || put_seen(r, p, rules, w))
		return -1;
	if (rules->strict && !p->live && link_to(r, p, r->bpf->progs.redirect_gate, cgroup, w))
		return -1;
	if (put_entry(r, p, w) || link_to(r, p, r->bpf->progs.redirect_getsockopt, cgroup, w))
		return -1;
	if (known) {
		sweep_ports(r, p, rules);
		sweep_cidrs(r, p, rules);
	}
	return 0;
}

/* --- sk_lookup, one for each pod --- */

static bool is_place(const struct bpf_insn *i)
{
	return i[0].code == (BPF_LD | BPF_IMM | BPF_DW) && (uint32_t)i[0].imm == 0x72656374 &&
	       (uint32_t)i[1].imm == 0x72656469;
}

/* The program as loaded, with the pod's index where the source has a placeholder. */
static int load_lookup(struct broker_redirect *r, uint32_t index, struct broker_why *w)
{
	LIBBPF_OPTS(bpf_prog_load_opts, o, .expected_attach_type = BPF_SK_LOOKUP);
	const struct bpf_program *model = r->bpf->progs.redirect_lookup;
	size_t n = bpf_program__insn_cnt(model);
	auto_free struct bpf_insn *code = broker_zalloc(n * sizeof(*code));
	int fd;

	memcpy(code, bpf_program__insns(model), n * sizeof(*code));
	for (size_t i = 0; i + 1 < n; i++)
		if (is_place(&code[i])) {
			code[i].imm = (int32_t)index;
			code[i + 1].imm = 0;
		}
	fd = bpf_prog_load(BPF_PROG_TYPE_SK_LOOKUP, "redirect_lookup", "Dual BSD/GPL", code, n, &o);
	return fd < 0 ? broker_refuse_sys(w, "the kernel refuses a pod's sk_lookup") : fd;
}

/* A pinned link of a namespace that is gone, or of another one, is nobody's. */
static bool is_linked_to(const char *path, int netns)
{
	struct bpf_link_info info = {0};
	uint32_t len = sizeof(info);
	struct stat st;
	auto_close int fd = bpf_obj_get(path);

	return fd >= 0 && !bpf_obj_get_info_by_fd(fd, &info, &len) && !fstat(netns, &st) &&
	       info.netns.netns_ino == (uint32_t)st.st_ino;
}

static int link_lookup(
    struct broker_redirect *r, struct redirect_pod_state *p, int netns, struct broker_why *w)
{
	struct redirect_link l = {.target = netns, .type = BPF_SK_LOOKUP};

	pin_path(r, p, "redirect_lookup", l.path);
	if (is_linked_to(l.path, netns))
		return 0;
	unlink(l.path);
	auto_close int program = load_lookup(r, p->entry.index, w);
	l.program = program;
	return program < 0 ? -1 : redirect_link(&l, w);
}

int broker_redirect_live(struct broker_redirect *r, const struct uuid *pod, int netns,
    const struct broker_view_seen *seen, struct broker_why *w)
{
	struct redirect_pod_state *p = find(r, pod);

	if (!p || !p->cgroup)
		return 0; /* its traffic is not ours */
	take_seen(p, seen);
	if ((p->rules && put_rules(r, p, p->rules, w)) || put_seen(r, p, p->rules, w) ||
	    put_entry(r, p, w) || link_lookup(r, p, netns, w))
		return -1;
	if (p->rules) {
		sweep_ports(r, p, p->rules);
		sweep_cidrs(r, p, p->rules);
	}
	p->live = true;
	unpin(r, p, "redirect_gate");
	return 0;
}

const struct redirect_rules *broker_redirect_rules(
    const struct broker_redirect *r, const struct uuid *pod)
{
	const struct redirect_pod_state *p = find(r, pod);

	return p ? p->rules : NULL;
}

int redirect_pod_uid(const struct broker_redirect *r, uint32_t index, struct uuid *out)
{
	const struct redirect_pod_state *p;

	DL_FOREACH (r->pods, p) {
		if (p->entry.index != index)
			continue;
		*out = p->uid;
		return 0;
	}
	return -1;
}

void redirect_pod_trace(struct broker_redirect *r, const struct uuid *pod, bool on)
{
	struct redirect_pod_state *p = find(r, pod);
	struct broker_why w;

	if (!p || !p->cgroup || !(p->entry.flags & REDIRECT_TRACE) == !on)
		return;
	p->entry.flags ^= REDIRECT_TRACE;
	if (put_entry(r, p, &w))
		broker_log(BROKER_WARN, NULL, "trace: %s", w.text);
}

static void drop_listeners(struct broker_redirect *r, uint32_t index)
{
	static const uint32_t families[] = {AF_INET, AF_INET6};

	for (int i = 0; i < 2; i++) {
		struct redirect_listener_key key = {.index = index, .family = families[i]};
		bpf_map_delete_elem(bpf_map__fd(r->bpf->maps.listeners), &key);
	}
}

void broker_redirect_remove(struct broker_redirect *r, const struct uuid *pod)
{
	struct redirect_pod_state *p = find(r, pod);
	char path[REDIRECT_PATH_SIZE];

	if (!p)
		return;
	if (p->cgroup)
		bpf_map_delete_elem(bpf_map__fd(r->bpf->maps.pods), &p->cgroup);
	unpin(r, p, "redirect_gate");
	unpin(r, p, "redirect_lookup");
	unpin(r, p, "redirect_getsockopt");
	pin_path(r, p, "", path);
	rmdir(path);
	sweep_ports(r, p, NULL);
	sweep_cidrs(r, p, NULL);
	drop_listeners(r, p->entry.index);
	bpf_map_delete_elem(bpf_map__fd(r->bpf->maps.pods_by_index), &p->entry.index);
	bpf_map_delete_elem(bpf_map__fd(r->bpf->maps.baselines), &p->entry.index);
	forget(r, p);
}

uint32_t broker_redirect_counted(
    const struct broker_redirect *r, const struct uuid *pod, struct redirect_counters *baseline)
{
	uint32_t index = broker_redirect_index(r, pod);

	memset(baseline, 0, sizeof(*baseline));
	if (index)
		bpf_map_lookup_elem(bpf_map__fd(r->bpf->maps.baselines), &index, baseline);
	return index;
}

void broker_redirect_pods(
    struct broker_redirect *r, void (*each)(void *ctx, const struct uuid *pod), void *ctx)
{
	struct redirect_pod_state *p, *tmp;

	DL_FOREACH_SAFE (r->pods, p, tmp)
		each(ctx, &p->uid);
}

/* --- after an earlier broker --- */

/* Links that are there get the program of now; one whose cgroup or namespace went is left alone. */
static int renew(struct broker_redirect *r, struct redirect_pod_state *p, struct broker_why *w)
{
	const struct {
		const char *name;
		int program;
	} links[] = {
	    {"redirect_getsockopt", bpf_program__fd(r->bpf->progs.redirect_getsockopt)},
	    {"redirect_gate", bpf_program__fd(r->bpf->progs.redirect_gate)},
	    {"redirect_lookup", load_lookup(r, p->entry.index, w)},
	};
	auto_close int lookup = links[2].program;
	char path[REDIRECT_PATH_SIZE];

	if (lookup < 0)
		return -1;
	for (int i = 0; i < 3; i++) {
		pin_path(r, p, links[i].name, path);
		auto_close int link = bpf_obj_get(path);
		if (link < 0)
			continue;
		if (bpf_link_update(link, links[i].program, NULL) && errno != ENOLINK)
			return broker_refuse_sys(w, "replace the program of %s", path);
		p->live |= i == 2;
	}
	return 0;
}

int redirect_pods_adopt(struct broker_redirect *r, struct broker_why *w)
{
	int fd = bpf_map__fd(r->bpf->maps.pods);
	struct redirect_pod entry;
	uint64_t at, next;
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	while (more) {
		at = next;
		more = bpf_map_get_next_key(fd, &at, &next) == 0;
		if (bpf_map_lookup_elem(fd, &at, &entry) || !entry.index ||
		    entry.index > REDIRECT_PODS_MAX || r->used[entry.index])
			continue;
		struct redirect_pod_state *p = add(r, (const struct uuid *)entry.uid, entry.index);
		p->entry = entry;
		p->cgroup = at;
		if (renew(r, p, w))
			return -1;
	}
	return 0;
}
