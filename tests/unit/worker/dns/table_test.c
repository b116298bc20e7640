/* table_test.c - name tables as istiod sends them, and every rule of istio-agent.md 7.3, 7.4.
 */
#include "common/err.h"
#include "common/mem.h"
#include "ebpf/names.h"
#include "worker/dns/table.h"
#include <arpa/inet.h>
#include <event2/buffer.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const struct dns_zone zone = {"ns1", "cluster.local"};

struct entry {
	const char *host, *registry, *short_name, *ns;
	const char *ips[6], *alts[3];
};

static void put_text(struct evbuffer *out, uint32_t number, const char *text)
{
	if (text)
		pbwire_put_bytes(out, number, text, strlen(text));
}

static void put(struct evbuffer *out, uint32_t number, struct evbuffer *in)
{
	pbwire_put_bytes(out, number, evbuffer_pullup(in, -1), evbuffer_get_length(in));
	evbuffer_free(in);
}

static void put_entry(struct evbuffer *table, const struct entry *e)
{
	struct evbuffer *entry = evbuffer_new(), *info = evbuffer_new();

	for (int i = 0; e->ips[i]; i++)
		put_text(info, 1, e->ips[i]);
	put_text(info, 2, e->registry);
	put_text(info, 3, e->short_name);
	put_text(info, 4, e->ns);
	for (int i = 0; e->alts[i]; i++)
		put_text(info, 5, e->alts[i]);
	put_text(entry, 1, e->host);
	put(entry, 2, info);
	put(table, 1, entry);
}

static struct dns_table *table_read(struct evbuffer *bytes, struct err *e)
{
	struct iovec iov = {evbuffer_pullup(bytes, -1), evbuffer_get_length(bytes)};
	struct pbwire r;

	pbwire_init(&r, &iov, 1);
	return dns_table_new(r, &zone, e);
}

static struct dns_table *table_of(const struct entry *entries, size_t n)
{
	struct evbuffer *b = evbuffer_new();
	struct err e = {.msg = ""};
	struct dns_table *t;

	for (size_t i = 0; i < n; i++)
		put_entry(b, &entries[i]);
	t = table_read(b, &e);
	if (!t)
		fail_msg("%s", e.msg);
	evbuffer_free(b);
	return t;
}

#define KUBERNETES "Kubernetes"
#define E(host, ...)                                                                               \
	{                                                                                          \
		host, "External", NULL, NULL, {__VA_ARGS__},                                       \
		{                                                                                  \
			NULL                                                                       \
		}                                                                                  \
	}
#define K(host, name, ns, ...)                                                                     \
	{                                                                                          \
		host, KUBERNETES, name, ns, {__VA_ARGS__},                                         \
		{                                                                                  \
			NULL                                                                       \
		}                                                                                  \
	}
static const struct entry entries[] = {
    E("www.Google.com", "1.1.1.1"),
    K("productpage.ns1.svc.cluster.local", "productpage", "ns1", "9.9.9.9"),
    K("reviews.ns2.svc.cluster.local", "reviews", "ns2", "10.10.10.10", "2001:db8::1"),
    K("details.ns2.svc.cluster.remote", "details", "ns2", "11.11.11.11"),
    {"example.ns2.svc.cluster.local", KUBERNETES, "example", "ns2", {"12.12.12.12"},
	{"alt.example", "alt.ns2"}},
    E("dual.localhost", "2.2.2.2", "no address", "2001:db8::2", "2.2.2.3"),
    E("six.localhost", "2001:db8::3"),
    E("nowhere.localhost", "nothing", ""),
    E("*.wild.example", "3.3.3.1"),
    E("*.deep.wild.example", "3.3.3.2"),
    E("exact.deep.wild.example", "3.3.3.3"),
    E("dotted.example.", "4.4.4.4"),
    K("dotted.ns1.svc.cluster.local.", "dotted", "ns1", "4.4.4.5"),
    E("*", "5.5.5.5"),
    E("web.ns1.svc.cluster.local", "6.6.6.1"),
    E("web", "6.6.6.2"),
};
static struct dns_table *t;

static int setup(void **state)
{
	(void)state;
	t = table_of(entries, sizeof(entries) / sizeof(*entries));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	dns_table_unref(&t);
	return 0;
}

/* "alias 1.2.3.4 ::1" as found, "-" if not. */
static const char *found(const char *name)
{
	static char out[512];
	char text[INET6_ADDRSTRLEN];
	struct dns_found f;
	size_t n = 0;

	if (!dns_table_find(t, name, &f))
		return "-";
	n += (size_t)snprintf(out, sizeof(out), "%s", f.alias);
	for (size_t i = 0; i < f.n4; i++)
		n += (size_t)snprintf(out + n, sizeof(out) - n, " %s",
		    inet_ntop(AF_INET, f.v4[i].bytes, text, sizeof(text)));
	for (size_t i = 0; i < f.n6; i++)
		n += (size_t)snprintf(out + n, sizeof(out) - n, " %s",
		    inet_ntop(AF_INET6, f.v6[i].bytes, text, sizeof(text)));
	return out;
}

static void names_and_what_they_are(void **state)
{
	static const char *const rows[][2] = {
	    {"www.google.com.", " 1.1.1.1"},
	    /* The services of the cluster by all their names... */
	    {"productpage.ns1.svc.cluster.local.", " 9.9.9.9"},
	    {"productpage.ns1.svc.", " 9.9.9.9"},
	    {"productpage.ns1.", " 9.9.9.9"},
	    {"productpage.", " 9.9.9.9"},
	    {"reviews.ns2.svc.cluster.local.", " 10.10.10.10 2001:db8::1"},
	    {"reviews.ns2.svc.", " 10.10.10.10 2001:db8::1"},
	    {"reviews.ns2.", " 10.10.10.10 2001:db8::1"},
	    {"alt.example.", " 12.12.12.12"},
	    {"alt.ns2.", " 12.12.12.12"},
	    /* ... but by the short one only in their own namespace, and others by the full one
	       only. */
	    {"reviews.", "-"},
	    {"details.ns2.svc.cluster.remote.", " 11.11.11.11"},
	    {"details.ns2.", "-"},
	    {"details.ns2.svc.", "-"},
	    /* A dot at the end is the same name; istio has none for such a service. */
	    {"dotted.example.", " 4.4.4.4"},
	    {"dotted.ns1.svc.cluster.local.", "-"},
	    {"dotted.ns1.", "-"},
	    /* Families; what is no address is left out, and who has none is not there. */
	    {"dual.localhost.", " 2.2.2.2 2.2.2.3 2001:db8::2"},
	    {"six.localhost.", " 2001:db8::3"},
	    {"nowhere.localhost.", "-"},
	    {"other.example.", "-"},
	    {"google.com.", "-"},
	    {".", "-"},
	    {"", "-"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (strcmp(found(rows[i][0]), rows[i][1]) != 0)
			fail_msg("%s: \"%s\"", rows[i][0], found(rows[i][0]));
}

/* libc tries the first search domain before the bare name. */
static void aliases(void **state)
{
	static const char *const rows[][2] = {
	    {"www.google.com.ns1.svc.cluster.local.", "www.google.com. 1.1.1.1"},
	    {"reviews.ns2.ns1.svc.cluster.local.", "reviews.ns2. 10.10.10.10 2001:db8::1"},
	    {"reviews.ns2.svc.cluster.local.ns1.svc.cluster.local.",
		"reviews.ns2.svc.cluster.local. 10.10.10.10 2001:db8::1"},
	    /* The expanded short name is a name of the same service. */
	    {"productpage.ns1.svc.cluster.local.", " 9.9.9.9"},
	    {"productpage.ns1.ns1.svc.cluster.local.", "productpage.ns1. 9.9.9.9"},
	    /* A name that ends so already is not expanded. */
	    {"productpage.ns1.svc.cluster.local.ns1.svc.cluster.local.", "-"},
	    /* Of another service: the alias comes first. */
	    {"web.ns1.svc.cluster.local.", "web. 6.6.6.2"},
	    /* Not the first search domain. */
	    {"www.google.com.svc.cluster.local.", "-"},
	    {"ns1.svc.cluster.local.", "-"},
	    {".ns1.svc.cluster.local.", "-"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (strcmp(found(rows[i][0]), rows[i][1]) != 0)
			fail_msg("%s: \"%s\"", rows[i][0], found(rows[i][0]));
}

static void wildcards(void **state)
{
	static const char *const rows[][2] = {
	    {"a.wild.example.", " 3.3.3.1"},
	    {"a.b.wild.example.", " 3.3.3.1"},
	    {"a.deep.wild.example.", " 3.3.3.2"},
	    {"a.b.deep.wild.example.", " 3.3.3.2"},
	    {"deep.wild.example.", " 3.3.3.1"},
	    {"exact.deep.wild.example.", " 3.3.3.3"},
	    {"*.wild.example.", " 3.3.3.1"},
	    {"wild.example.", "-"},
	    {"notwild.example.", "-"},
	    {"a.wild.example.ns1.svc.cluster.local.", "*.wild.example. 3.3.3.1"},
	    /* "*" is no host: every name there is would be its. */
	    {"anything.", "-"},
	    {"anything.ns1.svc.cluster.local.", "-"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
		if (strcmp(found(rows[i][0]), rows[i][1]) != 0)
			fail_msg("%s: \"%s\"", rows[i][0], found(rows[i][0]));
}

static void many_names(void **state)
{
	struct evbuffer *b = evbuffer_new();
	struct err e = {.msg = ""};
	struct dns_table *all;
	struct dns_found f;
	char host[64];

	(void)state;
	for (int i = 0; i < 5000; i++) {
		snprintf(host, sizeof(host), "h%d.example", i);
		put_entry(b, &(struct entry)E(host, i % 2 ? "1.2.3.4" : "::1"));
	}
	all = table_read(b, &e);
	assert_non_null(all);
	assert_int_equal(dns_table_names(all), 5000);
	for (int i = 0; i < 5000; i++) {
		snprintf(host, sizeof(host), "h%d.example.", i);
		assert_true(dns_table_find(all, host, &f));
		assert_int_equal(f.n4, i % 2);
		assert_int_equal(f.n6, !(i % 2));
	}
	dns_table_unref(&all);
	evbuffer_free(b);
}

/* The last 16 bits of FNV-1a after one more character: all that a table of 65536 places looks at.
 */
static uint16_t after(uint16_t h, const char *s)
{
	for (; *s; s++)
		h = (uint16_t)((h ^ (uint8_t)*s) * 0x0193u);
	return h;
}

/* Two pieces of a name that make no difference to what follows. */
static uint16_t find_twins(uint16_t from, char twins[2][4])
{
	static char seen[65536][4];

	memset(seen, 0, sizeof(seen));
	for (int i = 0; i < 26 * 26 * 26; i++) {
		char piece[4] = {
		    (char)('a' + i % 26), (char)('a' + i / 26 % 26), (char)('a' + i / 676), '\0'};
		uint16_t to = after(from, piece);
		if (*seen[to]) {
			memcpy(twins[0], seen[to], sizeof(piece));
			memcpy(twins[1], piece, sizeof(piece));
			return to;
		}
		memcpy(seen[to], piece, sizeof(piece));
	}
	fail();
	return 0;
}

/* Hosts of a tenant's, chosen so that all would fall into one place of a hash without a key: it
 * took seconds, and the worker has one thread for all pods. */
static void names_that_want_one_place(void **state)
{
	enum { PIECES = 14 };
	char twins[PIECES][2][4], host[64];
	struct evbuffer *b = evbuffer_new();
	struct err e = {.msg = ""};
	uint16_t h = (uint16_t)2166136261u;
	struct dns_table *all;
	clock_t before;

	(void)state;
	for (int i = 0; i < PIECES; i++)
		h = find_twins(h, twins[i]);
	for (int n = 0; n < 1 << PIECES; n++) {
		for (int i = 0; i < PIECES; i++)
			memcpy(host + 3 * (size_t)i, twins[i][n >> i & 1], 3);
		strcpy(host + 3 * PIECES, ".x");
		put_entry(b, &(struct entry)E(host, "1.2.3.4"));
	}
	before = clock();
	all = table_read(b, &e);
	assert_non_null(all);
	assert_int_equal(dns_table_names(all), 1 << PIECES);
	assert_true(clock() - before < CLOCKS_PER_SEC);
	dns_table_unref(&all);
	evbuffer_free(b);
}

static void equal_tables_are_one(void **state)
{
	struct dns_table *same = table_of(entries, sizeof(entries) / sizeof(*entries));
	struct dns_table *other = table_of(entries, 3), *none = table_of(entries, 0);
	struct dns_found f;

	(void)state;
	assert_ptr_equal(same, t);
	assert_ptr_not_equal(other, t);
	dns_table_unref(&same);
	assert_true(dns_table_find(t, "productpage.", &f));
	assert_int_equal(dns_table_names(none), 0);
	assert_false(dns_table_find(none, "productpage.", &f));
	dns_table_unref(&other);
	dns_table_unref(&none);
}

/* As names.bpf.h walks: from the end, looking at each dot. */
static int known(const struct redirect_names *n, uint64_t salt, const char *text)
{
	__u64 h = names_hash_begin(salt), ended;
	int found = 0;

	for (size_t i = strlen(text); i-- > 0;) {
		h = names_hash_add(h, (__u8)text[i]);
		if (text[i] != '.')
			continue;
		ended = names_hash_end(i ? names_hash_wildcard(h) : h);
		found |= (int)(names_has(n->known, ended) | names_has(n->istiods, ended) << 1);
	}
	return found;
}

/* What the programs believe of nobody else while no proxy answers. */
static void names_without_a_proxy(void **state)
{
	static const struct entry some[] = {E("Api.Partner.example", "1.2.3.4"),
	    E("*.shop.example", "1.2.3.4"),
	    K("web.ns1.svc.cluster.local", "web", "ns1", "1.2.3.4")};
	enum { NOT = 0, CLUSTERS = 1, ISTIODS = 3 };
	auto_free struct redirect_names *n = mem_zalloc(sizeof(*n));
	struct dns_table *some_names = table_of(some, 3), *other = table_of(some, 1);

	(void)state;
	dns_table_know(some_names, 7, n);
	assert_int_equal(known(n, 7, ".api.partner.example"), ISTIODS);
	assert_int_equal(known(n, 7, ".any.shop.example"), ISTIODS);
	assert_int_equal(known(n, 7, ".and.any.shop.example"), ISTIODS);
	assert_int_equal(known(n, 7, ".web.ns1.svc.cluster.local"), CLUSTERS);
	assert_int_equal(known(n, 7, ".web"), CLUSTERS);
	assert_int_equal(known(n, 7, ".shop.example"), NOT);
	assert_int_equal(known(n, 7, ".x.api.partner.example"), NOT);
	assert_int_equal(known(n, 7, ".partner.example"), NOT);
	assert_int_equal(known(n, 8, ".api.partner.example"), NOT); /* another table's */
	assert_int_equal(dns_table_salt(some_names, 1), dns_table_salt(other, 1));
	assert_int_not_equal(dns_table_salt(some_names, 1), dns_table_salt(some_names, 2));
	dns_table_unref(&some_names);
	dns_table_unref(&other);
}

static void broken_ones(void **state)
{
	static const char *const broken[] = {"\x0a\x05\x0a", "\x0a\x02\x0a\x05",
	    "\x0a\x04\x12\x02\x0a\x09", "\x0b", "\x0a\xff\xff\xff\xff\x7f"};

	(void)state;
	for (size_t i = 0; i < sizeof(broken) / sizeof(*broken); i++) {
		struct evbuffer *b = evbuffer_new();
		struct err e = {.msg = ""};

		evbuffer_add(b, broken[i], strlen(broken[i]));
		assert_null(table_read(b, &e));
		assert_non_null(strstr(e.msg, "malformed NameTable"));
		evbuffer_free(b);
	}
}

/* They give no name, and yet each is looked at. */
static void entries_are_counted(void **state)
{
	struct evbuffer *b = evbuffer_new();
	struct err e = {.msg = ""};

	(void)state;
	for (int i = 0; i < DNS_TABLE_NAMES_MAX; i++)
		evbuffer_add(b, "\x0a", 2);
	struct dns_table *read = table_read(b, &e);
	assert_non_null(read);
	dns_table_unref(&read);
	evbuffer_add(b, "\x0a", 2);
	assert_null(table_read(b, &e));
	assert_string_equal(e.msg, "more than 200000 entries");
	evbuffer_free(b);
}

/* Texts that are none, or too long, are no names. */
static void odd_texts(void **state)
{
	char huge[600];
	struct err e = {.msg = ""};
	struct evbuffer *b = evbuffer_new();

	(void)state;
	memset(huge, 'a', sizeof(huge) - 1);
	huge[sizeof(huge) - 1] = '\0';
	put_entry(b, &(struct entry)E(huge, "1.1.1.1"));
	put_entry(b, &(struct entry)E("\xff\xfe", "1.1.1.1"));
	put_entry(b, &(struct entry)E("", "1.1.1.1"));
	put_entry(
	    b, &(struct entry){"a.svc.cluster.local", KUBERNETES, huge, huge, {"1.1.1.1"}, {huge}});
	struct dns_table *odd = table_read(b, &e);
	assert_non_null(odd);
	assert_int_equal(dns_table_names(odd), 1);
	dns_table_unref(&odd);
	evbuffer_free(b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test_setup_teardown(names_and_what_they_are, setup, teardown),
	    cmocka_unit_test_setup_teardown(aliases, setup, teardown),
	    cmocka_unit_test_setup_teardown(wildcards, setup, teardown),
	    cmocka_unit_test(many_names),
	    cmocka_unit_test(names_that_want_one_place),
	    cmocka_unit_test_setup_teardown(equal_tables_are_one, setup, teardown),
	    cmocka_unit_test(names_without_a_proxy),
	    cmocka_unit_test(broken_ones),
	    cmocka_unit_test(entries_are_counted),
	    cmocka_unit_test(odd_texts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
