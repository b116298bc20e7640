/* cidr_test.c - lists of ranges as text, and flattened ones against istio's rules read one by one.
 */
#include "../../../agentd/base/err.h"
#include "../../../agentd/redirect/cidr.h"
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { EXCLUDE = REDIRECT_CIDR_EXCLUDE, INCLUDE = REDIRECT_CIDR_INCLUDE, DNS = REDIRECT_CIDR_DNS };
enum { ROUNDS = 3000, RANGES = 12, PROBES = 40 };

static struct redirect_address address(const char *text)
{
	struct redirect_address a;

	assert_int_equal(cidr_parse_address(&a, text), 0);
	return a;
}

static uint32_t flags_of(const struct redirect_rules *r, const char *text)
{
	struct redirect_address a = address(text);

	return cidr_look_up(r, &a);
}

static void add(struct redirect_rules *r, const char *list, uint32_t flag)
{
	struct err e;

	if (cidr_add(r, "list", list, flag, &e))
		fail_msg("%s: %s", list, e.msg);
}

static void test_texts(void **state)
{
	static const char *const wrong[] = {"10.0.0.0/33", "10.0.0.0/", "/8", "10.0.0.0/8/8",
	    "10.0.0/8", "10.0.0.0/-1", "10.0.0.0/ 8", "10.0.0.0/8x", "::1/129", "fd00::/4294967304",
	    "::ffff:10.0.0.0/104", "*", "localhost", " 10.0.0.1",
	    "ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255/128/1"};
	struct redirect_rules r = {0};
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		if (!cidr_add(&r, "list", wrong[i], EXCLUDE, &e))
			fail_msg("%s was taken", wrong[i]);
	add(&r, ",,10.1.2.3/8,,192.0.2.1,fd00::1/16,", EXCLUDE);
	assert_int_equal(r.ncidrs, 3);
	assert_int_equal(flags_of(&r, "10.255.0.0"), EXCLUDE);
	assert_int_equal(flags_of(&r, "192.0.2.1"), EXCLUDE);
	assert_int_equal(flags_of(&r, "192.0.2.2"), 0);
	assert_int_equal(flags_of(&r, "fd00:ffff::"), EXCLUDE);
}

static void test_same_range_twice(void **state)
{
	struct redirect_rules r = {0};

	(void)state;
	add(&r, "10.0.0.0/8", INCLUDE);
	add(&r, "10.1.0.0/8", EXCLUDE);
	assert_int_equal(r.ncidrs, 1);
	assert_int_equal(flags_of(&r, "10.0.0.1"), INCLUDE | EXCLUDE);
}

/* One range of IPv6 says nothing about IPv4, though the trie has both in one space. */
static void test_families(void **state)
{
	struct redirect_rules r = {0};

	(void)state;
	add(&r, "::/0", EXCLUDE);
	add(&r, "10.0.0.0/8", INCLUDE);
	cidr_flatten(&r);
	assert_int_equal(flags_of(&r, "192.0.2.1"), 0);
	assert_int_equal(flags_of(&r, "10.0.0.1"), INCLUDE);
	assert_int_equal(flags_of(&r, "fd00::1"), EXCLUDE);
	assert_int_equal(flags_of(&r, "::1"), EXCLUDE);
}

static void test_full(void **state)
{
	struct redirect_rules r = {0};
	struct err e;
	int added = 0;

	(void)state;
	add(&r, "::/0", EXCLUDE);
	for (char text[32]; added < REDIRECT_CIDRS_MAX; added++) {
		snprintf(text, sizeof(text), "10.0.%d.%d", added / 256, added % 256);
		if (cidr_add(&r, "list", text, INCLUDE, &e))
			break;
	}
	assert_int_equal(added, REDIRECT_CIDRS_MAX - 2); /* ::/0, and room for flattening */
	cidr_flatten(&r);
	assert_int_equal(r.ncidrs, REDIRECT_CIDRS_MAX);
	assert_int_equal(flags_of(&r, "192.0.2.1"), 0);
}

static void test_loopback(void **state)
{
	static const struct {
		const char *range;
		bool is;
	} cases[] = {{"127.1.2.3/32", true}, {"127.0.0.0/8", true}, {"::1/128", true},
	    {"0.0.0.0/0", false}, {"128.0.0.0/8", false}, {"::/0", false}, {"::2/128", false}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct redirect_rules r = {0};

		add(&r, cases[i].range, INCLUDE);
		assert_int_equal(cidr_has_loopback(&r, INCLUDE), cases[i].is);
		assert_int_equal(cidr_has_loopback(&r, EXCLUDE), 0);
	}
}

/* --- the rules of iptables, one after the other --- */

struct range {
	int family;
	uint8_t address[16];
	unsigned bits;
	uint32_t flag;
};

static bool matches(const struct range *c, int family, const uint8_t *address)
{
	if (c->family != family)
		return false;
	for (unsigned bit = 0; bit < c->bits; bit++)
		if ((c->address[bit / 8] ^ address[bit / 8]) & (0x80 >> bit % 8))
			return false;
	return true;
}

/* Few different bytes, so that ranges lie within each other. */
static void any_address(int family, uint8_t out[16])
{
	static const uint8_t bytes[] = {0, 0, 10, 127, 128, 255};

	memset(out, 0, 16);
	for (int i = 0; i < (family == AF_INET ? 4 : 16); i++)
		out[i] = bytes[rand() % 6];
	if (family == AF_INET6 && rand() % 2)
		memset(out, 0, 10 + rand() % 5);
}

static struct range any_range(void)
{
	struct range c = {.family = rand() % 2 ? AF_INET : AF_INET6, .flag = 1u << rand() % 2};

	if (rand() % 4 == 0)
		c.flag = DNS;
	any_address(c.family, c.address);
	c.bits = (unsigned)rand() % (c.family == AF_INET ? 33 : 129);
	if (rand() % 3 == 0)
		c.bits -= c.bits % 8;
	return c;
}

static bool is_mapped(const uint8_t a[16])
{
	return !memcmp(a, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
}

static void test_as_istio(void **state)
{
	(void)state;
	srand(17);
	for (int round = 0; round < ROUNDS; round++) {
		struct redirect_rules r = {0};
		struct range ranges[RANGES];
		char text[INET6_ADDRSTRLEN], whole[INET6_ADDRSTRLEN + 8];

		for (int i = 0; i < RANGES; i++) {
			struct range *c = &ranges[i];
			do
				*c = any_range();
			while (c->family == AF_INET6 && is_mapped(c->address));
			inet_ntop(c->family, c->address, text, sizeof(text));
			snprintf(whole, sizeof(whole), "%s/%u", text, c->bits);
			add(&r, whole, c->flag);
		}
		cidr_flatten(&r);
		for (int i = 0; i < PROBES; i++) {
			int family = rand() % 2 ? AF_INET : AF_INET6;
			uint32_t expected = 0;
			uint8_t a[16];

			do
				any_address(family, a);
			while (family == AF_INET6 && is_mapped(a));
			for (int k = 0; k < RANGES; k++)
				if (matches(&ranges[k], family, a))
					expected |= ranges[k].flag;
			inet_ntop(family, a, text, sizeof(text));
			if (flags_of(&r, text) != expected)
				fail_msg("round %d: %s is %u, must be %u", round, text,
				    flags_of(&r, text), expected);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts),
	    cmocka_unit_test(test_same_range_twice), cmocka_unit_test(test_families),
	    cmocka_unit_test(test_full), cmocka_unit_test(test_loopback),
	    cmocka_unit_test(test_as_istio)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
