/* rows.c - put, then sweep: by what was written, since a walk through the maps
 * looks at every pod's rows, and a pod can change its addresses as often as it likes.
 *
 * The trie answers with the longest prefix only, so each row repeats what the wider ones say that
 * cover it: of the rules (which are flat among themselves), and of the routes.
 */
#include "rows.h"
#include "common/err.h"
#include "common/mem.h"
#include <bpf/libbpf.h>
#include <stdlib.h>
#include <string.h>

/* --- what is written --- */

static const struct bpf_map *map_of(
    const struct redirect *r, const struct redirect_written_row *row)
{
	return row->is_cidr ? r->bpf->maps.cidrs : r->bpf->maps.ports;
}

static const void *key_of(const struct redirect_written_row *row)
{
	return row->is_cidr ? (const void *)&row->cidr : &row->port;
}

static bool is_same(const struct redirect_written_row *a, const struct redirect_written_row *b)
{
	size_t size = a->is_cidr ? sizeof(a->cidr) : sizeof(a->port);

	return a->is_cidr == b->is_cidr && !memcmp(key_of(a), key_of(b), size);
}

static void append(struct redirect_written *e, const struct redirect_written_row *row)
{
	struct redirect_written_row *rows;

	if (e->n == e->room) {
		e->room = e->room ? 2 * e->room : 8;
		rows = mem_zalloc(e->room * sizeof(*rows));
		if (e->n)
			memcpy(rows, e->rows, e->n * sizeof(*rows));
		free(e->rows);
		e->rows = rows;
	}
	e->rows[e->n++] = *row;
}

static void remember(struct redirect_written *e, const struct redirect_written_row *row)
{
	for (uint32_t i = 0; i < e->n; i++)
		if (is_same(&e->rows[i], row))
			return;
	append(e, row);
}

/* --- put --- */

static unsigned changed;

unsigned ebpf_rows_changed(void)
{
	return changed;
}

/* What is there already is not written: an audit counts what was not. */
static int put(const struct redirect *r, struct redirect_pod_state *p,
    const struct redirect_written_row *row, const void *value, struct err *e)
{
	const struct bpf_map *m = map_of(r, row);
	uint32_t was = 0; /* both maps' values fit */

	if (!bpf_map_lookup_elem(bpf_map__fd(m), key_of(row), &was) &&
	    !memcmp(&was, value, bpf_map__value_size(m)))
		return 0;
	remember(&p->written, row);
	changed++;
	if (bpf_map_update_elem(bpf_map__fd(m), key_of(row), value, BPF_ANY))
		return err_sys(e, "eBPF map %s", bpf_map__name(m));
	return 0;
}

static int put_port(const struct redirect *r, struct redirect_pod_state *p, uint32_t kind,
    uint32_t number, struct err *e)
{
	const struct redirect_written_row row = {.port = {p->entry.index, kind, number}};
	const uint8_t there = 1;

	return put(r, p, &row, &there, e);
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

static int put_cidr(const struct redirect *r, struct redirect_pod_state *p,
    const struct redirect_cidr *c, struct err *e)
{
	const struct redirect_written_row row = {
	    .is_cidr = true, .cidr = {REDIRECT_CIDR_BITS + c->bits, p->entry.index, c->address}};
	uint32_t flags = c->flags | longest(p->rules->cidrs, p->rules->ncidrs, c);

	if (p->seen)
		flags |= longest(p->seen->routes, p->seen->nroutes, c);

	if (flags & REDIRECT_CIDR_LOCAL)
		flags &= ~(uint32_t)REDIRECT_CIDR_INTERFACE; /* goes over lo */
	flags |= row.cidr.prefix << REDIRECT_CIDR_PREFIX;
	return put(r, p, &row, &flags, e);
}

int ebpf_rows_put(const struct redirect *r, struct redirect_pod_state *p, struct err *e)
{
	const struct redirect_rules *rules = p->rules;

	for (uint32_t i = 0; i < rules->nrows; i++)
		if (put_port(r, p, rules->rows[i].kind, rules->rows[i].number, e))
			return -1;
	for (uint32_t i = 0; p->seen && i < p->seen->ninterfaces; i++)
		if (put_port(r, p, REDIRECT_PORT_INTERFACE, p->seen->interfaces[i], e))
			return -1;
	for (uint32_t i = 0; i < rules->ncidrs; i++)
		if (put_cidr(r, p, &rules->cidrs[i], e))
			return -1;
	for (uint32_t i = 0; p->seen && i < p->seen->nroutes; i++)
		if (put_cidr(r, p, &p->seen->routes[i], e))
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

static bool is_wanted(const struct redirect *r, const struct redirect_pod_state *p,
    const struct redirect_written_row *row)
{
	uint32_t flags = 0;

	if (!row->is_cidr)
		return has_port(p, &row->port);
	bpf_map_lookup_elem(bpf_map__fd(map_of(r, row)), &row->cidr, &flags);
	return has_cidr(p, &row->cidr, flags);
}

static void delete_row(const struct redirect *r, const struct redirect_written_row *row)
{
	changed += !bpf_map_delete_elem(bpf_map__fd(map_of(r, row)), key_of(row));
}

void ebpf_rows_sweep(const struct redirect *r, struct redirect_pod_state *p)
{
	struct redirect_written *e = &p->written;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < e->n; i++)
		if (is_wanted(r, p, &e->rows[i]))
			e->rows[kept++] = e->rows[i];
		else
			delete_row(r, &e->rows[i]);
	e->n = kept;
}

void ebpf_rows_clear(const struct redirect *r, struct redirect_pod_state *p)
{
	for (uint32_t i = 0; i < p->written.n; i++)
		delete_row(r, &p->written.rows[i]);
	p->written.n = 0;
}

/* --- every row there is --- */

typedef void (*row_visit)(const struct redirect *r, const struct redirect_written_row *row);

/* The next key is asked for first: this one may go. */
static void each_port(const struct redirect *r, row_visit visit)
{
	struct redirect_written_row row = {.is_cidr = false};
	struct redirect_port_key next;
	int fd = bpf_map__fd(map_of(r, &row));
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	while (more) {
		row.port = next;
		more = bpf_map_get_next_key(fd, &row.port, &next) == 0;
		visit(r, &row);
	}
}

static void each_cidr(const struct redirect *r, row_visit visit)
{
	struct redirect_written_row row = {.is_cidr = true};
	struct redirect_cidr_key next;
	int fd = bpf_map__fd(map_of(r, &row));
	bool more = bpf_map_get_next_key(fd, NULL, &next) == 0;

	while (more) {
		row.cidr = next;
		more = bpf_map_get_next_key(fd, &row.cidr, &next) == 0;
		visit(r, &row);
	}
}

static struct redirect_pod_state *pod_of(
    const struct redirect *r, const struct redirect_written_row *row)
{
	return ebpf_pod_at(r, row->is_cidr ? row->cidr.index : row->port.index);
}

/* What an earlier broker wrote for a pod is not known before that is asked for. */
static void sweep_row(const struct redirect *r, const struct redirect_written_row *row)
{
	const struct redirect_pod_state *p = pod_of(r, row);

	if (!p || (p->rules && !is_wanted(r, p, row)))
		delete_row(r, row);
}

void ebpf_rows_sweep_all(const struct redirect *r)
{
	each_port(r, sweep_row);
	each_cidr(r, sweep_row);
}

static void adopt_row(const struct redirect *r, const struct redirect_written_row *row)
{
	struct redirect_pod_state *p = pod_of(r, row);

	if (p)
		append(&p->written, row);
	else
		delete_row(r, row);
}

void ebpf_rows_adopt(const struct redirect *r)
{
	each_port(r, adopt_row);
	each_cidr(r, adopt_row);
}
