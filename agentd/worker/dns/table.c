/* table.c - NameTable -> hosts -> each name that a host has -> a hash of names; a question ->
 * the name itself, or with the search domain taken off, or the nearest wildcard.
 *
 * Names lie one after the other in `text`, addresses in `addresses`; a host is a range of them.
 * The suffix that the resolver appended (the first search domain, which libc tries before the bare
 * name) is not stored: "a.b.ns.svc.cluster.local." is an alias of "a.b." if that is a name.
 */
#include "table.h"
#include "base/hash.h"
#include "common/err.h"
#include "common/mem.h"
#include "ebpf/names.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

/* Fields of NameTable, of its map's entries, and of NameInfo. */
enum { TABLE = 1, KEY = 1, INFO = 2 };
enum { IPS = 1, REGISTRY = 2, SHORT_NAME = 3, NAMESPACE = 4, ALT_HOSTS = 5 };

enum { HOST_SIZE = 256, ADDRESS_SIZE = 64, SUFFIX_SIZE = 600 };

struct host {
	uint32_t first4, n4, first6, n6; /* in `addresses` */
	uint32_t cluster;                /* the cluster's own DNS has it, too */
};
struct name {
	uint32_t text, host; /* where it begins, whose it is */
};

struct dns_table {
	unsigned refs;
	char search[SUFFIX_SIZE]; /* ".ns.svc.cluster.local." */
	struct host *hosts;
	struct name *names;
	uint32_t *slots; /* of a hash of names: index + 1, or 0 */
	struct dns_address *addresses;
	char *text;
	uint32_t nhosts, nnames, nslots, naddresses, ntext;
	struct dns_table *prev, *next;
};

/* Of all pods. */
static struct dns_table *tables;

/* --- names --- */

/* Anybody who may make a ServiceEntry chooses names, and all pods wait for this one thread. */
static uint32_t hash(const char *s)
{
	static struct hash_key key;
	static bool known;

	if (!known)
		key = hash_key_new();
	known = true;
	return (uint32_t)hash_text(&key, s);
}

static const char *text_of(const struct dns_table *t, const struct name *n)
{
	return t->text + n->text;
}

static const struct name *find(const struct dns_table *t, const char *name)
{
	uint32_t at = t->nslots ? hash(name) & (t->nslots - 1) : 0;

	for (; t->nslots && t->slots[at]; at = (at + 1) & (t->nslots - 1)) {
		const struct name *n = &t->names[t->slots[at] - 1];
		if (!strcmp(text_of(t, n), name))
			return n;
	}
	return NULL;
}

static void insert(struct dns_table *t, uint32_t index)
{
	uint32_t at = hash(text_of(t, &t->names[index])) & (t->nslots - 1);

	while (t->slots[at])
		at = (at + 1) & (t->nslots - 1);
	t->slots[at] = index + 1;
}

/* Half full at most. */
static void make_room(struct dns_table *t)
{
	if (2 * (t->nnames + 1) <= t->nslots)
		return;
	t->nslots = t->nslots ? t->nslots * 2 : 64;
	free(t->slots);
	t->slots = mem_zalloc(t->nslots * sizeof(*t->slots));
	for (uint32_t i = 0; i < t->nnames; i++)
		insert(t, i);
}

/* Room for `n` and as much again, whenever that is a power of two. */
#define GROW(array, n)                                                                             \
	do {                                                                                       \
		if (((n) & ((n)-1)) == 0)                                                          \
			(array) =                                                                  \
			    mem_realloc((array), ((n) ? 2 * (size_t)(n) : 1) * sizeof(*(array)));  \
	} while (0)

static uint32_t add_text(struct dns_table *t, const char *s)
{
	uint32_t at = t->ntext;

	for (;; s++) {
		GROW(t->text, t->ntext);
		t->text[t->ntext++] = *s;
		if (!*s)
			return at;
	}
}

struct reading {
	struct dns_table *table;
	const struct dns_zone *zone;
	char domain[SUFFIX_SIZE]; /* "svc.cluster.local" */
	struct err *e;
};

/* The name of the host that is last; one that another host has already stays that one's. */
static int add_name(struct reading *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static int add_name(struct reading *r, const char *fmt, ...)
{
	struct dns_table *t = r->table;
	char name[3 * HOST_SIZE];
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(name, sizeof(name), fmt, args);
	va_end(args);
	if (n <= 1 || n > HOST_SIZE)
		return 0;       /* nobody can ask for it */
	if (name[n - 2] == '.') /* "host." with our dot */
		name[n - 1] = '\0';
	for (char *c = name; *c; c++)
		*c = (char)tolower((unsigned char)*c);
	if (!strcmp(name, "*.") || find(t, name))
		return 0; /* every name there is would be istiod's */
	if (t->nnames == DNS_TABLE_NAMES_MAX || t->ntext + HOST_SIZE > DNS_TABLE_TEXT_MAX)
		return err_set(r->e, ERR_INVALID, "more than %d names", DNS_TABLE_NAMES_MAX);
	make_room(t);
	GROW(t->names, t->nnames);
	t->names[t->nnames] = (struct name){add_text(t, name), t->nhosts - 1};
	insert(t, t->nnames++);
	return 0;
}

/* --- a host --- */

struct info {
	struct pbwire value; /* the NameInfo */
	char host[HOST_SIZE], registry[32], short_name[HOST_SIZE], ns[HOST_SIZE];
};

static int malformed(struct reading *r)
{
	return err_set(r->e, ERR_PROTOCOL, "malformed NameTable");
}

/* Too long, or no text: as if it were not there. */
static void copy(struct pbwire text, char *out, size_t size)
{
	if (pbwire_string(text, out, size))
		*out = '\0';
}

static int read_info(struct reading *r, struct info *i)
{
	struct pbwire at = i->value;
	struct pbwire_field f;
	int more;

	while ((more = pbwire_next(&at, &f)) > 0) {
		if (f.type != PBWIRE_BYTES)
			continue;
		if (f.number == REGISTRY)
			copy(f.bytes, i->registry, sizeof(i->registry));
		else if (f.number == SHORT_NAME)
			copy(f.bytes, i->short_name, sizeof(i->short_name));
		else if (f.number == NAMESPACE)
			copy(f.bytes, i->ns, sizeof(i->ns));
	}
	return more < 0 ? malformed(r) : 0;
}

static int add_address(struct reading *r, int family, const char *text)
{
	struct dns_table *t = r->table;
	struct host *h = &t->hosts[t->nhosts - 1];
	struct dns_address a = {{0}};

	if (inet_pton(family, text, a.bytes) != 1)
		return 0;
	if (t->naddresses == DNS_TABLE_ADDRESSES_MAX)
		return err_set(
		    r->e, ERR_INVALID, "more than %d addresses", DNS_TABLE_ADDRESSES_MAX);
	GROW(t->addresses, t->naddresses);
	t->addresses[t->naddresses++] = a;
	family == AF_INET ? h->n4++ : h->n6++;
	return 0;
}

static int add_addresses(struct reading *r, const struct info *i, int family)
{
	char text[ADDRESS_SIZE];
	struct pbwire at = i->value;
	struct pbwire_field f;

	while (pbwire_next(&at, &f) > 0) {
		if (f.number != IPS || f.type != PBWIRE_BYTES)
			continue;
		copy(f.bytes, text, sizeof(text));
		if (add_address(r, family, text))
			return -1;
	}
	return 0;
}

static bool is_of_cluster(const struct info *i)
{
	return !strcmp(i->registry, "Kubernetes");
}

static int add_host(struct reading *r, const struct info *i)
{
	struct dns_table *t = r->table;
	struct host *h;

	GROW(t->hosts, t->nhosts);
	h = &t->hosts[t->nhosts++];
	*h = (struct host){.first4 = t->naddresses, .cluster = is_of_cluster(i)};
	if (add_addresses(r, i, AF_INET))
		return -1;
	h->first6 = t->naddresses;
	if (add_addresses(r, i, AF_INET6))
		return -1;
	return 0;
}

static bool ends_with(const char *s, const char *tail)
{
	size_t n = strlen(s), m = strlen(tail);

	return n >= m && !strcmp(s + n - m, tail);
}

static int add_alt_hosts(struct reading *r, const struct info *i)
{
	char alt[HOST_SIZE];
	struct pbwire at = i->value;
	struct pbwire_field f;

	while (pbwire_next(&at, &f) > 0) {
		if (f.number != ALT_HOSTS || f.type != PBWIRE_BYTES)
			continue;
		copy(f.bytes, alt, sizeof(alt));
		if (*alt && add_name(r, "%s.", alt))
			return -1;
	}
	return 0;
}

/* A service of the cluster is called by the names that Kubernetes gives it, too. */
static int add_short_names(struct reading *r, const struct info *i)
{
	bool ours = !strcmp(i->ns, r->zone->ns);

	if (!ends_with(i->host, r->domain))
		return 0;
	if (*i->short_name && *i->ns &&
	    (add_name(r, "%s.%s.", i->short_name, i->ns) ||
		(ours && add_name(r, "%s.", i->short_name)) ||
		add_name(r, "%s.%s.svc.", i->short_name, i->ns)))
		return -1;
	return add_alt_hosts(r, i);
}

static int add_names(struct reading *r, const struct info *i)
{
	if (is_of_cluster(i) && ends_with(i->host, "."))
		return 0;
	if (add_name(r, "%s.", i->host))
		return -1;
	return is_of_cluster(i) ? add_short_names(r, i) : 0;
}

static int read_entry(struct reading *r, struct pbwire entry)
{
	struct info i = {.host = ""};
	struct pbwire_field f;
	struct dns_table *t = r->table;
	int more;

	while ((more = pbwire_next(&entry, &f)) > 0) {
		if (f.number == KEY && f.type == PBWIRE_BYTES)
			copy(f.bytes, i.host, sizeof(i.host));
		else if (f.number == INFO && f.type == PBWIRE_BYTES)
			i.value = f.bytes;
	}
	if (more < 0 || read_info(r, &i))
		return malformed(r);
	if (add_host(r, &i))
		return -1;
	if (*i.host && t->hosts[t->nhosts - 1].n4 + t->hosts[t->nhosts - 1].n6)
		return add_names(r, &i);
	t->nhosts--;
	return 0;
}

/* An entry that gives no name is work all the same. */
static int read_table(struct reading *r, struct pbwire names)
{
	struct pbwire_field f;
	unsigned entries = 0;
	int more;

	while ((more = pbwire_next(&names, &f)) > 0) {
		if (f.number != TABLE || f.type != PBWIRE_BYTES)
			continue;
		if (++entries > DNS_TABLE_NAMES_MAX)
			return err_set(
			    r->e, ERR_INVALID, "more than %d entries", DNS_TABLE_NAMES_MAX);
		if (read_entry(r, f.bytes))
			return -1;
	}
	return more < 0 ? malformed(r) : 0;
}

/* --- life --- */

static void destroy(struct dns_table *t)
{
	free(t->hosts);
	free(t->names);
	free(t->slots);
	free(t->addresses);
	free(t->text);
	free(t);
}

static bool is_equal(const void *a, const void *b, size_t size)
{
	return size == 0 || !memcmp(a, b, size);
}

/* The suffix of a pod's first search domain. */
static void write_search(char out[SUFFIX_SIZE], const struct dns_zone *z)
{
	snprintf(out, SUFFIX_SIZE, ".%s.svc.%s.", z->ns, z->cluster_domain);
}

bool dns_table_is_of(const struct dns_table *t, const struct dns_zone *z)
{
	char search[SUFFIX_SIZE];

	write_search(search, z);
	return !strcmp(t->search, search);
}

static struct dns_table *find_equal(const struct dns_table *t)
{
	struct dns_table *o;

	DL_FOREACH (tables, o)
		if (o->ntext == t->ntext && o->nnames == t->nnames && o->nhosts == t->nhosts &&
		    o->naddresses == t->naddresses && !strcmp(o->search, t->search) &&
		    is_equal(o->text, t->text, t->ntext) &&
		    is_equal(o->names, t->names, t->nnames * sizeof(*t->names)) &&
		    is_equal(o->hosts, t->hosts, t->nhosts * sizeof(*t->hosts)) &&
		    is_equal(o->addresses, t->addresses, t->naddresses * sizeof(*t->addresses)))
			return o;
	return NULL;
}

struct dns_table *dns_table_new(struct pbwire names, const struct dns_zone *z, struct err *e)
{
	struct dns_table *t = mem_zalloc(sizeof(*t)), *same;
	struct reading r = {.table = t, .zone = z, .e = e};

	snprintf(r.domain, sizeof(r.domain), "svc.%s", z->cluster_domain);
	write_search(t->search, z);
	if (read_table(&r, names)) {
		destroy(t);
		return NULL;
	}
	same = find_equal(t);
	if (same) {
		destroy(t);
		return dns_table_ref(same);
	}
	DL_APPEND(tables, t);
	return dns_table_ref(t);
}

struct dns_table *dns_table_ref(struct dns_table *t)
{
	if (t)
		t->refs++;
	return t;
}

void dns_table_unref(struct dns_table **tp)
{
	struct dns_table *t = take(*tp);

	if (!t || --t->refs)
		return;
	DL_DELETE(tables, t);
	destroy(t);
}

size_t dns_table_names(const struct dns_table *t)
{
	return t->nnames;
}

/* --- a question --- */

/* The name without the search domain, when that makes it an alias: a name of its own that does not
 * end so, and whose host is not called by the whole one, too. */
static const struct name *find_target(const struct dns_table *t, const char *name)
{
	char bare[DNS_NAME_SIZE];
	size_t n = strlen(name), m = strlen(t->search);
	const struct name *target, *whole;

	if (n <= m || n >= sizeof(bare) || !ends_with(name, t->search))
		return NULL;
	memcpy(bare, name, n - m);
	bare[n - m] = '.';
	bare[n - m + 1] = '\0';
	target = find(t, bare);
	if (!target || ends_with(bare, t->search + 1))
		return NULL;
	whole = find(t, name);
	return whole && whole->host == target->host ? NULL : target;
}

static bool find_one(const struct dns_table *t, const char *name, struct dns_found *out)
{
	const struct name *target = find_target(t, name);
	const struct name *n = target ? target : find(t, name);

	if (!n)
		return false;
	const struct host *h = &t->hosts[n->host];
	snprintf(out->alias, sizeof(out->alias), "%s", target ? text_of(t, target) : "");
	out->v4 = t->addresses + h->first4;
	out->n4 = h->n4;
	out->v6 = t->addresses + h->first6;
	out->n6 = h->n6;
	return true;
}

/* The nearest wildcard: "*.b.c." before "*.c.". */
bool dns_table_find(const struct dns_table *t, const char *name, struct dns_found *out)
{
	char wildcard[DNS_NAME_SIZE + 1] = "*";

	if (find_one(t, name, out))
		return true;
	for (const char *dot = strchr(name, '.'); dot && dot[1]; dot = strchr(dot + 1, '.')) {
		snprintf(wildcard + 1, sizeof(wildcard) - 1, "%s", dot);
		if (find_one(t, wildcard, out))
			return true;
	}
	return false;
}

/* --- for when nobody answers --- */

static void put_bits(__u64 *set, __u64 ended)
{
	for (__u32 i = 0; i < NAMES_PROBES; i++) {
		__u32 bit = names_bit(ended, i);
		set[bit / 64] |= 1ull << (bit % 64);
	}
}

/* But for its final dot, which is the first one of `name`'s text here. */
static __u64 hash_backwards(const char *name, __u64 salt)
{
	__u64 h = names_hash_begin(salt);

	for (size_t n = strlen(name); n > 1; n--)
		h = names_hash_add(h, (__u8)name[n - 2]);
	return names_hash_end(names_hash_add(h, '.'));
}

uint64_t dns_table_salt(const struct dns_table *t, uint64_t of_bytes)
{
	__u64 h = names_hash_begin(of_bytes);

	for (const char *c = t->search; *c; c++)
		h = names_hash_add(h, (__u8)*c);
	return names_hash_end(h);
}

void dns_table_know(const struct dns_table *t, uint64_t salt, struct redirect_names *out)
{
	for (uint32_t i = 0; i < t->nnames; i++) {
		__u64 h = hash_backwards(text_of(t, &t->names[i]), salt);

		put_bits(out->known, h);
		if (!t->hosts[t->names[i].host].cluster)
			put_bits(out->istiods, h);
	}
}
