/* broker_redirect_rows.c - put, then sweep.
 *
 * The trie answers with the longest prefix only, so each row repeats what the wider ones say that
 * cover it: of the rules (which are flat among themselves), and of the routes.
 */
#include "broker_redirect_rows.h"
#include <bpf/libbpf.h>
#include <string.h>

/* --- put --- */

static unsigned changed;

unsigned redirect_rows_changed(void)
{
	return changed;
}

/* What is there already is not written: an audit counts what was not. */
static int put(const struct bpf_map *m, const void *key, const void *value, struct broker_why *w)
{
	uint32_t was = 0; /* both maps' values fit */

	if (!bpf_map_lookup_elem(bpf_map__fd(m), key, &was) &&
	    !memcmp(&was, value, bpf_map__value_size(m)))
		return 0;
	changed++;
	if (bpf_map_update_elem(bpf_map__fd(m), key, value, BPF_ANY))
		return broker_refuse_sys(w, "eBPF map %s", bpf_map__name(m));
	return 0;
}

static int put_port(
    const struct broker_redirect *r, struct redirect_port_key key, struct broker_why *w)
{
	const uint8_t there = 1;

	return put(r->bpf->maps.ports, &key, &there, w);
}

/* ::/0 does not cover IPv4, though it does in the trie. */
static bool covers(const struct redirect_cidr *c, const struct redirect_address *a)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	const uint8_t *x = (const uint8_t *)&c->address, *y = (const uint8_t *)a;
	unsigned whole = c->bits / 8, rest = c->bits % 8;

	if (memcmp(x, y, whole) != 0 || (whole < sizeof(v4) && !memcmp(y, v4, sizeof(v4))))
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

static int put_cidr(const struct broker_redirect *r, const struct redirect_pod_state *p,
    const struct redirect_cidr *c, struct broker_why *w)
{
	const struct redirect_cidr_key key = {
	    .prefix = REDIRECT_CIDR_BITS + c->bits, .index = p->entry.index, .address = c->address};
	uint32_t flags = c->flags | longest(p->rules->cidrs, p->rules->ncidrs, c);

	if (p->seen)
		flags |= longest(p->seen->routes, p->seen->nroutes, c);

	if (flags & REDIRECT_CIDR_LOCAL)
		flags &= ~(uint32_t)REDIRECT_CIDR_INTERFACE; /* goes over lo */
	flags |= key.prefix << REDIRECT_CIDR_PREFIX;
	return put(r->bpf->maps.cidrs, &key, &flags, w);
}

int redirect_rows_put(
    const struct broker_redirect *r, const struct redirect_pod_state *p, struct broker_why *w)
{
	const struct redirect_rules *rules = p->rules;
	struct redirect_port_key key = {.index = p->entry.index};

	for (uint32_t i = 0; i < rules->nrows; i++) {
		key.kind = rules->rows[i].kind;
		key.number = rules->rows[i].number;
		if (put_port(r, key, w))
			return -1;
	}
	key.kind = REDIRECT_PORT_INTERFACE;
	for (uint32_t i = 0; p->seen && i < p->seen->ninterfaces; i++) {
		key.number = p->seen->interfaces[i];
		if (put_port(r, key, w))
			return -1;
	}
	for (uint32_t i = 0; i < rules->ncidrs; i++)
		if (put_cidr(r, p, &rules->cidrs[i], w))
			return -1;
	for (uint32_t i = 0; p->seen && i < p->seen->nroutes; i++)
		if (put_cidr(r, p, &p->seen->routes[i], w))
			return -1;
	return 0;
}

/* --- sweep --- */

/* What an earlier broker saw counts until this one has looked. */
static bool has_port(const struct redirect_pod_state *p, const struct redirect_port_key *key)
{
	if (key->kind == REDIRECT_PORT_INTERFACE && !p->seen)
		return true;
	if (key->kind == REDIRECT_PORT_INTERFACE)
		for (uint32_t i = 0; i < p->seen->ninterfaces; i++)
			if (p->seen->interfaces[i] == key->number)
				return true;
	for (uint32_t i = 0; i < p->rules->nrows; i++)
		if (p->rules->rows[i].kind == key->kind && p->rules->rows[i].number == key->number)
			return true;
	return false;
}

static bool is_among(
    const struct redirect_cidr *list, uint32_t n, const struct redirect_cidr_key *key)
{
	for (uint32_t i = 0; i < n; i++)
		if (list[i].bits + REDIRECT_CIDR_BITS == key->prefix &&
		    !memcmp(&list[i].address, &key->address, sizeof(key->address)))
			return true;
	return false;
}

static bool has_cidr(
    const struct redirect_pod_state *p, const struct redirect_cidr_key *key, uint32_t flags)
{
	if (!p->seen && (flags & (REDIRECT_CIDR_LOCAL | REDIRECT_CIDR_INTERFACE)))
		return true;
	return is_among(p->rules->cidrs, p->rules->ncidrs, key) ||
	       (p->seen && is_among(p->seen->routes, p->seen->nroutes, key));
}

static void delete_row(int map, const void *key)
{
	changed++;
	bpf_map_delete_elem(map, key);
}

/* Walks a whole map, both times: changes are rare.  `index` 0: whoever is not in the table. */
struct sweep {
	const struct broker_redirect *r;
	const struct redirect_pod_state *keep; /* what this one has; NULL: nothing */
	uint32_t index;
	bool all; /* each pod keeps what it has */
};

/* Is it to be looked at?  By what `*keep` has. */
static bool is_of(const struct sweep *s, uint32_t index, const struct redirect_pod_state **keep)
{
	*keep = s->all ? redirect_pod_at(s->r, index) : s->keep;
	if (s->all)
		return !*keep || (*keep)->rules; /* of an earlier broker: nobody knows yet */
	return s->index ? index == s->index : !redirect_pod_at(s->r, index);
}

static void sweep_ports(const struct sweep *s)
{
	int fd = bpf_map__fd(s->r->bpf->maps.ports);
	const struct redirect_pod_state *keep;
	struct redirect_port_key at, next;
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	while (more) {
		at = next;
		more = bpf_map_get_next_key(fd, &at, &next) == 0;
		if (is_of(s, at.index, &keep) && !(keep && has_port(keep, &at)))
			delete_row(fd, &at);
	}
}

static void sweep_cidrs(const struct sweep *s)
{
	int fd = bpf_map__fd(s->r->bpf->maps.cidrs);
	const struct redirect_pod_state *keep;
	struct redirect_cidr_key at, next;
	uint32_t flags = 0;
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	while (more) {
		at = next;
		more = bpf_map_get_next_key(fd, &at, &next) == 0;
		if (!is_of(s, at.index, &keep) || bpf_map_lookup_elem(fd, &at, &flags))
			continue;
		if (!keep || !has_cidr(keep, &at, flags))
			delete_row(fd, &at);
	}
}

static void sweep(const struct sweep *s)
{
	sweep_ports(s);
	sweep_cidrs(s);
}

void redirect_rows_sweep(const struct broker_redirect *r, const struct redirect_pod_state *p)
{
	sweep(&(struct sweep){.r = r, .keep = p, .index = p->entry.index});
}

void redirect_rows_sweep_all(const struct broker_redirect *r)
{
	sweep(&(struct sweep){.r = r, .all = true});
}

void redirect_rows_clear(const struct broker_redirect *r, uint32_t index)
{
	sweep(&(struct sweep){.r = r, .index = index});
}

void redirect_rows_clear_strangers(const struct broker_redirect *r)
{
	sweep(&(struct sweep){.r = r});
}
