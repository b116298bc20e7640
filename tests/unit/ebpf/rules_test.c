/* rules_test.c - the decisions (ebpf/rules.h) on a table in memory: all of istio-agent.md 11.9 in
 * both its columns and both families, then every rule by itself and before the next one.
 */
#include "ebpf/rules.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { APP = 1000, ENVOY = 1337, TCP = 6, UDP = 17, ROWS = 16 };

static struct {
	struct redirect_pod pod;
	unsigned nports, ncidrs;
	struct redirect_port_key ports[ROWS];
	struct {
		struct redirect_address address;
		unsigned bits;
		uint32_t flags;
	} cidrs[ROWS];
} t;

static inline int rules_listed(__u32 index, enum redirect_port_kind kind, __u32 number)
{
	for (unsigned i = 0; i < t.nports; i++)
		if (t.ports[i].index == index && t.ports[i].kind == kind &&
		    t.ports[i].number == number)
			return 1;
	return 0;
}

static bool covers(const struct redirect_address *net, unsigned bits, const uint8_t *a)
{
	const uint8_t *n = (const uint8_t *)net;

	for (unsigned i = 0; i < bits; i++)
		if ((n[i / 8] ^ a[i / 8]) >> (7 - i % 8) & 1)
			return false;
	return true;
}

/* As a trie does: the longest prefix answers alone. */
static inline __u32 rules_cidr(__u32 index, const struct redirect_address *a)
{
	uint32_t flags = 0, longest = 0;

	assert_int_equal(index, t.pod.index);
	for (unsigned i = 0; i < t.ncidrs; i++)
		if (t.cidrs[i].bits >= longest &&
		    covers(&t.cidrs[i].address, t.cidrs[i].bits, (const uint8_t *)a)) {
			longest = t.cidrs[i].bits;
			flags = t.cidrs[i].flags;
		}
	return flags;
}

static struct redirect_address address(const char *text)
{
	struct redirect_address a = {{0}};

	if (inet_pton(AF_INET, text, &a.word[3]) == 1)
		a.word[2] = htonl(0xffff);
	else
		assert_int_equal(inet_pton(AF_INET6, text, &a), 1);
	return a;
}

static void port(enum redirect_port_kind kind, uint32_t number)
{
	t.ports[t.nports++] = (struct redirect_port_key){t.pod.index, kind, number};
}

static void cidr(const char *text, unsigned bits, uint32_t flags)
{
	t.cidrs[t.ncidrs].address = address(text);
	t.cidrs[t.ncidrs].bits = bits + (strchr(text, ':') ? 0 : 96);
	t.cidrs[t.ncidrs++].flags = flags;
}

/* -u/-g 1337 -i * -b * -d 15090,15021,15020 -o 9999, as 11.9 was measured. */
static int setup(void **state)
{
	(void)state;
	memset(&t, 0, sizeof(t));
	t.pod = (struct redirect_pod){.index = 0x30007,
	    .flags = REDIRECT_OUTBOUND_ALL | REDIRECT_INBOUND_ALL,
	    .proxy_uid = ENVOY,
	    .proxy_gid = ENVOY,
	    .outbound_port = 15001,
	    .inbound_port = 15006,
	    .tunnel_port = 15008,
	    .dns_port = 15053};
	port(REDIRECT_PORT_OUTBOUND_EXCLUDE, 9999);
	port(REDIRECT_PORT_INBOUND_EXCLUDE, 15090);
	port(REDIRECT_PORT_INBOUND_EXCLUDE, 15021);
	port(REDIRECT_PORT_INBOUND_EXCLUDE, 15020);
	cidr("10.77.0.2", 32, REDIRECT_CIDR_LOCAL);
	cidr("fd77::2", 128, REDIRECT_CIDR_LOCAL);
	return 0;
}

static enum redirect_verdict from(
    const char *source, uint32_t uid, uint32_t gid, int protocol, const char *to, uint16_t number)
{
	const struct redirect_flow f = {.address = address(to),
	    .source = source ? address(source) : (struct redirect_address){{0}},
	    .uid = uid,
	    .gid = gid,
	    .port = number,
	    .protocol = (__u8)protocol};

	return rules_outbound(&t.pod, &f);
}

static enum redirect_verdict tcp(uint32_t uid, uint32_t gid, const char *to, uint16_t number)
{
	return from(NULL, uid, gid, TCP, to, number);
}

static enum redirect_verdict udp(uint32_t uid, uint32_t gid, const char *to, uint16_t number)
{
	return from(NULL, uid, gid, UDP, to, number);
}

static enum redirect_verdict arrives(const char *source, const char *to, uint16_t number)
{
	const struct redirect_arrival a = {
	    .source = address(source), .address = address(to), .port = number, .ifindex = 2};

	return rules_inbound(&t.pod, &a);
}

/* --- istio-agent.md 11.9 --- */

struct family {
	const char *own, *peer;
	bool v4;
};
static const struct family v4 = {"10.77.0.2", "10.77.0.1", true},
			   v6 = {"fd77::2", "fd77::1", false};

/* Where a row of the table ends. */
enum end { DIRECT, OUT = 15001, IN = 15006, DNS = 15053 };

static enum end end_of(enum redirect_verdict v)
{
	switch (v) {
	case REDIRECT_TO_SELF:
	case REDIRECT_TO_INBOUND:
		return IN;
	case REDIRECT_TO_DNS:
		return DNS;
	case REDIRECT_TO_OUTBOUND:
	case REDIRECT_TO_OUTBOUND_PORT:
		return OUT;
	default:
		return DIRECT;
	}
}

/* `to`: 'p' the peer, 'o' the pod itself, 'l' 127.0.0.1 or ::1, '9' 127.0.0.9, '6' 127.0.0.6 */
struct row {
	uint32_t uid, gid;
	char to;
	uint16_t port;
	int protocol;
	enum end without, with; /* DNS */
	const char *source;
};
static const struct row rows[] = {
    {APP, APP, 'p', 80, TCP, OUT, OUT, NULL},
    {APP, APP, 'p', 9999, TCP, DIRECT, DIRECT, NULL},
    {APP, APP, 'l', 8080, TCP, DIRECT, DIRECT, NULL},
    {APP, APP, '9', 8080, TCP, DIRECT, DIRECT, NULL},
    {APP, APP, 'o', 8080, TCP, DIRECT, DIRECT, NULL},
    {APP, APP, 'l', 53, TCP, DIRECT, DNS, NULL},
    {APP, APP, 'p', 53, TCP, OUT, DNS, NULL},
    {APP, APP, 'p', 53, UDP, DIRECT, DNS, NULL},
    {APP, APP, 'l', 53, UDP, DIRECT, DNS, NULL},
    {APP, APP, 'o', 53, UDP, DIRECT, DNS, NULL},
    {ENVOY, ENVOY, 'p', 80, TCP, DIRECT, DIRECT, NULL},
    {ENVOY, ENVOY, 'p', 53, TCP, DIRECT, DIRECT, NULL},
    {ENVOY, ENVOY, 'p', 53, UDP, DIRECT, DIRECT, NULL},
    {ENVOY, ENVOY, 'o', 8080, TCP, IN, IN, NULL},
    {ENVOY, ENVOY, 'o', 15020, TCP, IN, IN, NULL},
    {ENVOY, ENVOY, 'o', 15008, TCP, DIRECT, DIRECT, NULL},
    {ENVOY, ENVOY, 'o', 53, TCP, IN, DIRECT, NULL},
    {ENVOY, ENVOY, 'l', 8080, TCP, DIRECT, DIRECT, NULL},
    {ENVOY, ENVOY, '9', 8080, TCP, IN, IN, NULL},
    {APP, APP, 'o', 8080, TCP, DIRECT, DIRECT, "127.0.0.6"},
    {ENVOY, ENVOY, 'o', 8080, TCP, DIRECT, DIRECT, "127.0.0.6"},
    {ENVOY, APP, 'p', 80, TCP, DIRECT, DIRECT, NULL},
    {APP, ENVOY, 'p', 80, TCP, DIRECT, DIRECT, NULL},
    {APP, ENVOY, 'p', 53, UDP, DIRECT, DIRECT, NULL},
    {ENVOY, APP, 'o', 8080, TCP, IN, IN, NULL},
    {APP, ENVOY, 'o', 8080, TCP, DIRECT, DIRECT, NULL},
    {APP, ENVOY, 'o', 53, TCP, DIRECT, IN, NULL},
    {ENVOY, ENVOY, '6', 15002, TCP, IN, IN, "127.0.0.1"}, /* what istio-validation asks */
    {0, 0, '6', 15002, TCP, DIRECT, DIRECT, "127.0.0.1"},
};

static void expect_table(const struct family *f)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *r = &rows[i];
		const char *to = r->to == 'p'   ? f->peer
				 : r->to == 'o' ? f->own
				 : r->to == '9' ? "127.0.0.9"
				 : r->to == '6' ? "127.0.0.6"
				 : f->v4        ? "127.0.0.1"
						: "::1";
		const char *source = r->source && !f->v4 ? "::6" : r->source;
		enum end wanted = t.pod.flags & REDIRECT_DNS ? r->with : r->without;

		if (!f->v4 && (r->to == '9' || r->to == '6'))
			continue; /* there is no such range */
		if (end_of(from(source, r->uid, r->gid, r->protocol, to, r->port)) != wanted)
			fail_msg("row %zu: %u/%u to %s:%u ends at %d, not at %d", i, r->uid, r->gid,
			    to, r->port,
			    end_of(from(source, r->uid, r->gid, r->protocol, to, r->port)), wanted);
	}
}

static void test_table_without_dns(void **state)
{
	(void)state;
	expect_table(&v4);
	expect_table(&v6);
}

static void test_table_with_dns(void **state)
{
	(void)state;
	t.pod.flags |= REDIRECT_DNS | REDIRECT_DNS_ALL;
	expect_table(&v4);
	expect_table(&v6);
}

static void test_table_of_arrivals(void **state)
{
	const struct family *families[] = {&v4, &v6};
	const uint16_t captured[] = {8080, 53, 15001, 1, 65535},
		       direct[] = {15008, 15020, 15021, 15090};

	(void)state;
	for (int f = 0; f < 2; f++) {
		const char *peer = families[f]->peer, *own = families[f]->own;
		for (int i = 0; i < 5; i++)
			assert_int_equal(arrives(peer, own, captured[i]), REDIRECT_TO_INBOUND);
		for (int i = 0; i < 4; i++)
			assert_int_equal(end_of(arrives(peer, own, direct[i])), DIRECT);
	}
}

/* --- each rule, and what it comes before --- */

static void test_an_excluded_interface_is_before_all(void **state)
{
	(void)state;
	cidr("10.88.0.0", 16, REDIRECT_CIDR_INTERFACE);
	assert_int_equal(tcp(APP, APP, "10.88.1.1", 9999), REDIRECT_PASS_INTERFACE);
	port(REDIRECT_PORT_INTERFACE, 2);
	assert_int_equal(arrives("10.77.0.1", "10.77.0.2", 15008), REDIRECT_PASS_INTERFACE);
	assert_int_equal(arrives("10.77.0.2", "10.77.0.2", 80), REDIRECT_PASS_INBOUND_LOCAL);
}

/* That of the default route, too: what stays on lo does not leave by it. */
static void test_an_excluded_interface_is_not_lo(void **state)
{
	(void)state;
	cidr("0.0.0.0", 0, REDIRECT_CIDR_INTERFACE);
	cidr("::", 0, REDIRECT_CIDR_INTERFACE);
	assert_int_equal(tcp(APP, APP, "10.88.1.1", 80), REDIRECT_PASS_INTERFACE);
	assert_int_equal(tcp(APP, APP, "fd88::1", 80), REDIRECT_PASS_INTERFACE);
	assert_int_equal(tcp(APP, APP, "127.0.0.9", 80), REDIRECT_PASS_LOCAL);
	assert_int_equal(tcp(APP, APP, "::1", 80), REDIRECT_PASS_LOCAL);
	assert_int_equal(tcp(ENVOY, ENVOY, "127.0.0.9", 80), REDIRECT_TO_SELF);
	/* istio-validation's probe */
	assert_int_equal(
	    from("127.0.0.1", ENVOY, ENVOY, TCP, "127.0.0.6", 15002), REDIRECT_TO_SELF);
}

static void test_an_excluded_port_is_before_the_proxy_and_dns(void **state)
{
	(void)state;
	t.pod.flags |= REDIRECT_DNS | REDIRECT_DNS_ALL;
	port(REDIRECT_PORT_OUTBOUND_EXCLUDE, 53);
	assert_int_equal(udp(APP, APP, "10.77.0.1", 53), REDIRECT_PASS_PORT_EXCLUDED);
	assert_int_equal(tcp(ENVOY, ENVOY, "10.77.0.2", 9999), REDIRECT_PASS_PORT_EXCLUDED);
	assert_int_equal(udp(APP, APP, "10.77.0.1", 9999), REDIRECT_PASS_PORT_EXCLUDED);
}

/* Only over lo: a socket bound to it that goes elsewhere is nobody's exception. */
static void test_passthrough_is_of_the_pod_itself(void **state)
{
	(void)state;
	assert_int_equal(
	    from("127.0.0.6", APP, APP, TCP, "10.77.0.2", 80), REDIRECT_PASS_PROXY_PASSTHROUGH);
	assert_int_equal(
	    from("::6", ENVOY, ENVOY, TCP, "fd77::2", 80), REDIRECT_PASS_PROXY_PASSTHROUGH);
	assert_int_equal(from("127.0.0.6", APP, APP, TCP, "10.77.0.1", 80), REDIRECT_TO_OUTBOUND);
	assert_int_equal(arrives("127.0.0.6", "10.77.0.2", 80), REDIRECT_PASS_INBOUND_LOCAL);
	assert_int_equal(arrives("::6", "fd77::2", 80), REDIRECT_PASS_INBOUND_LOCAL);
}

static void test_the_proxy_is_known_by_its_lower_16_bits(void **state)
{
	(void)state;
	assert_int_equal(
	    tcp(5 * 65536 + ENVOY, 5 * 65536 + APP, "10.77.0.1", 80), REDIRECT_PASS_PROXY_UID);
	assert_int_equal(
	    tcp(5 * 65536 + APP, 5 * 65536 + ENVOY, "10.77.0.1", 80), REDIRECT_PASS_PROXY_GID);
	assert_int_equal(tcp(ENVOY + 1, APP, "10.77.0.1", 80), REDIRECT_TO_OUTBOUND);
	t.pod.proxy_uid = 4242;
	assert_int_equal(tcp(4242, APP, "10.77.0.1", 80), REDIRECT_PASS_PROXY_UID);
	assert_int_equal(tcp(ENVOY, APP, "10.77.0.1", 80), REDIRECT_TO_OUTBOUND);
}

/* 3b is not there when loopback is included: the app's 127.0.0.2 goes to Envoy, 127.0.0.1 stays. */
static void test_an_included_loopback_range(void **state)
{
	(void)state;
	t.pod.flags = REDIRECT_LOOPBACK_INCLUDED | REDIRECT_INBOUND_ALL;
	cidr("127.1.2.3", 32, REDIRECT_CIDR_INCLUDE);
	assert_int_equal(tcp(APP, APP, "127.1.2.3", 80), REDIRECT_TO_OUTBOUND);
	assert_int_equal(tcp(APP, APP, "127.0.0.1", 80), REDIRECT_PASS_LOOPBACK);
	assert_int_equal(tcp(APP, APP, "127.0.0.2", 80), REDIRECT_PASS_NOT_INCLUDED);
	assert_int_equal(tcp(APP, ENVOY, "10.77.0.2", 80), REDIRECT_TO_SELF); /* 4a at last */
}

static void test_groups(void **state)
{
	(void)state;
	t.pod.flags |= REDIRECT_DNS | REDIRECT_DNS_ALL;
	port(REDIRECT_PORT_GROUP, 202);
	assert_int_equal(tcp(APP, 202, "10.77.0.1", 80), REDIRECT_PASS_GROUP);
	assert_int_equal(udp(APP, 202, "10.77.0.1", 53), REDIRECT_PASS_GROUP); /* before DNS */
	assert_int_equal(tcp(APP, APP, "10.77.0.1", 80), REDIRECT_TO_OUTBOUND);
	t.pod.flags |= REDIRECT_GROUPS_INCLUDE;
	assert_int_equal(tcp(APP, 202, "10.77.0.1", 80), REDIRECT_TO_OUTBOUND);
	assert_int_equal(tcp(APP, APP, "10.77.0.1", 80), REDIRECT_PASS_GROUP);
	assert_int_equal(tcp(APP, ENVOY, "10.77.0.1", 80), REDIRECT_PASS_PROXY_GID); /* before */
}

/* Only servers of the resolv.conf, also on a loopback address. */
static void test_dns_of_listed_servers(void **state)
{
	(void)state;
	t.pod.flags |= REDIRECT_DNS;
	cidr("10.77.0.98", 32, REDIRECT_CIDR_DNS);
	cidr("127.0.0.53", 32, REDIRECT_CIDR_DNS);
	assert_int_equal(udp(APP, APP, "10.77.0.98", 53), REDIRECT_TO_DNS);
	assert_int_equal(udp(APP, APP, "127.0.0.53", 53), REDIRECT_TO_DNS);
	assert_int_equal(udp(APP, APP, "10.77.0.99", 53), REDIRECT_PASS_NOT_TCP);
	assert_int_equal(tcp(APP, APP, "10.77.0.99", 53), REDIRECT_TO_OUTBOUND);
	assert_int_equal(udp(APP, APP, "127.0.0.1", 53), REDIRECT_PASS_LOOPBACK);
	assert_int_equal(udp(APP, APP, "10.77.0.98", 5353), REDIRECT_PASS_NOT_TCP);
}

static void test_ranges_and_ports_in_their_order(void **state)
{
	(void)state;
	t.pod.flags = REDIRECT_INBOUND_ALL;
	cidr("10.0.0.0", 8, REDIRECT_CIDR_INCLUDE);
	cidr("10.1.0.0", 16, REDIRECT_CIDR_INCLUDE | REDIRECT_CIDR_EXCLUDE);
	port(REDIRECT_PORT_OUTBOUND_INCLUDE, 443);
	assert_int_equal(tcp(APP, APP, "10.2.0.1", 80), REDIRECT_TO_OUTBOUND);
	assert_int_equal(tcp(APP, APP, "10.1.0.1", 80), REDIRECT_PASS_CIDR_EXCLUDED);
	assert_int_equal(tcp(APP, APP, "10.1.0.1", 443), REDIRECT_PASS_CIDR_EXCLUDED); /* 8, 9 */
	assert_int_equal(tcp(APP, APP, "192.0.2.1", 443), REDIRECT_TO_OUTBOUND_PORT);
	assert_int_equal(tcp(APP, APP, "192.0.2.1", 80), REDIRECT_PASS_NOT_INCLUDED);
	assert_int_equal(udp(APP, APP, "192.0.2.1", 443), REDIRECT_PASS_NOT_TCP);
	assert_int_equal(tcp(APP, APP, "2001:db8::1", 443), REDIRECT_TO_OUTBOUND_PORT);
}

/* What was DNS, while nobody answers, goes on by the rules that follow. */
static void test_beyond_dns(void **state)
{
	struct redirect_flow f = {.address = address("10.77.0.1"), .port = 53, .protocol = TCP};

	(void)state;
	assert_int_equal(rules_beyond_dns(&t.pod, &f, 0), REDIRECT_TO_OUTBOUND);
	assert_int_equal(rules_beyond_dns(&t.pod, &f, REDIRECT_CIDR_EXCLUDE | REDIRECT_CIDR_DNS),
	    REDIRECT_PASS_CIDR_EXCLUDED);
	f.protocol = UDP;
	assert_int_equal(rules_beyond_dns(&t.pod, &f, 0), REDIRECT_PASS_NOT_TCP);
}

/* 0.0.0.0 and :: end at the own machine. */
static void test_a_dial_of_no_address_is_local(void **state)
{
	(void)state;
	assert_int_equal(tcp(APP, APP, "0.0.0.0", 80), REDIRECT_PASS_LOCAL);
	assert_int_equal(tcp(APP, APP, "::", 80), REDIRECT_PASS_LOCAL);
	assert_int_equal(tcp(ENVOY, ENVOY, "0.0.0.0", 80), REDIRECT_PASS_PROXY_UID);
}

static void test_arrivals(void **state)
{
	(void)state;
	assert_int_equal(arrives("10.77.0.2", "10.77.0.2", 80), REDIRECT_PASS_INBOUND_LOCAL);
	assert_int_equal(
	    arrives("10.66.0.1", "10.66.0.1", 80), /* not seen yet, its own all the same */
	    REDIRECT_PASS_INBOUND_LOCAL);
	assert_int_equal(arrives("127.0.0.1", "127.0.0.9", 80), REDIRECT_PASS_INBOUND_LOCAL);
	assert_int_equal(arrives("::1", "::1", 80), REDIRECT_PASS_INBOUND_LOCAL);
	cidr("10.99.0.2", 32, REDIRECT_CIDR_LOCAL); /* its second address */
	assert_int_equal(arrives("10.99.0.2", "10.77.0.2", 80), REDIRECT_PASS_INBOUND_LOCAL);
	assert_int_equal(arrives("10.77.0.1", "10.77.0.2", 15008), REDIRECT_PASS_TUNNEL);
	assert_int_equal(arrives("10.77.0.1", "10.77.0.2", 15021), REDIRECT_PASS_INBOUND_EXCLUDED);
	t.pod.flags &= ~(__u32)REDIRECT_INBOUND_ALL;
	port(REDIRECT_PORT_INBOUND_INCLUDE, 8080);
	port(REDIRECT_PORT_INBOUND_INCLUDE, 15021);
	assert_int_equal(arrives("10.77.0.1", "10.77.0.2", 8080), REDIRECT_TO_INBOUND);
	assert_int_equal(arrives("10.77.0.1", "10.77.0.2", 15021), REDIRECT_TO_INBOUND);
	assert_int_equal(
	    arrives("10.77.0.1", "10.77.0.2", 8081), REDIRECT_PASS_INBOUND_NOT_INCLUDED);
	assert_int_equal(arrives("10.77.0.1", "10.77.0.2", 15008), REDIRECT_PASS_TUNNEL);
}

#define RULES_TEST(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    RULES_TEST(test_table_without_dns),
	    RULES_TEST(test_table_with_dns),
	    RULES_TEST(test_table_of_arrivals),
	    RULES_TEST(test_an_excluded_interface_is_before_all),
	    RULES_TEST(test_an_excluded_interface_is_not_lo),
	    RULES_TEST(test_an_excluded_port_is_before_the_proxy_and_dns),
	    RULES_TEST(test_passthrough_is_of_the_pod_itself),
	    RULES_TEST(test_the_proxy_is_known_by_its_lower_16_bits),
	    RULES_TEST(test_an_included_loopback_range),
	    RULES_TEST(test_groups),
	    RULES_TEST(test_dns_of_listed_servers),
	    RULES_TEST(test_ranges_and_ports_in_their_order),
	    RULES_TEST(test_beyond_dns),
	    RULES_TEST(test_a_dial_of_no_address_is_local),
	    RULES_TEST(test_arrivals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
