/* table.h - the names that istiod sent for a pod, and their addresses (istio-agent.md 7.2 to 7.4).
 *
 * Immutable; a push makes a new one.  Equal tables are shared: most pods of a namespace get the
 * same one (security-rules.md G3: equal to the last byte, so no pod learns another's names).
 */
#pragma once
#include "base/dns/message.h"
#include "base/pbwire.h"

struct dns_table;
struct err;

enum {
	DNS_TABLE_NAMES_MAX = 200000,
	DNS_TABLE_ADDRESSES_MAX = 400000,
	DNS_TABLE_TEXT_MAX = 16 << 20,
};

struct dns_zone {
	const char *ns;             /* the pod's namespace */
	const char *cluster_domain; /* "cluster.local" */
};
/* From the bytes of a NameTable.  NULL: the table is not usable, `e` says why. */
struct dns_table *dns_table_new(struct pbwire names, const struct dns_zone *z, struct err *e);
struct dns_table *dns_table_ref(struct dns_table *t); /* NULL: NULL */
void dns_table_unref(struct dns_table **t);

struct dns_found {
	char alias[DNS_NAME_SIZE]; /* the name asked is an alias of this one; "": it is not */
	const struct dns_address *v4, *v6;
	size_t n4, n6;
};
/* `name` is in lower case, with its final dot.  False: istiod did not send this name. */
bool dns_table_find(const struct dns_table *t, const char *name, struct dns_found *out);
bool dns_table_is_of(const struct dns_table *t, const struct dns_zone *z);
size_t dns_table_names(const struct dns_table *t);

/* Adds its names, under its salt, to what the eBPF programs know (ebpf/names.h). */
struct redirect_names;
void dns_table_know(const struct dns_table *t, uint64_t salt, struct redirect_names *out);
/* Of a table that was read from bytes with this digest, in its zone. */
uint64_t dns_table_salt(const struct dns_table *t, uint64_t of_bytes);
