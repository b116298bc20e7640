/* cidr_test.c - lists of ranges: what is one, what is none, and what one answer has to say. */
#include "cidr_look_up.h"
#include "common/err.h"
#include "mesh/cidr.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct redirect_rules r;
static struct err e;

static int setup(void **state)
{
	(void)state;
	memset(&r, 0, sizeof(r));
	return 0;
}

static void add(const char *list, uint32_t flag)
{
	if (cidr_add(&r, "list", list, flag, &e))
		fail_msg("%s", e.msg);
}

static uint32_t look_up(const char *text)
{
	struct redirect_address a;

	assert_int_equal(cidr_parse_address(&a, text), 0);
	return cidr_look_up(&r, &a);
}

static void test_both_families_and_single_addresses(void **state)
{
	(void)state;
	add("10.1.2.3/8,,fd00::5/16,192.0.2.1,2001:db8::1,0.0.0.0/0,", REDIRECT_CIDR_INCLUDE);
	assert_int_equal(r.ncidrs, 5);
	assert_int_equal(r.cidrs[0].bits, 96 + 8);
	assert_int_equal(r.cidrs[1].bits, 16);
	assert_int_equal(r.cidrs[2].bits, 128);
	assert_int_equal(r.cidrs[3].bits, 128);
	assert_int_equal(r.cidrs[4].bits, 96); /* of IPv4 alone */
	assert_int_equal(look_up("10.255.0.1"), REDIRECT_CIDR_INCLUDE);
	assert_int_equal(look_up("fd00:1::"), REDIRECT_CIDR_INCLUDE);
	assert_int_equal(look_up("fe00::"), 0);
}

/* Bits behind the prefix would make two keys of one range. */
static void test_a_range_is_there_once(void **state)
{
	(void)state;
	add("10.1.2.3/8,10.9.9.9/8", REDIRECT_CIDR_INCLUDE);
	add("10.0.0.0/8", REDIRECT_CIDR_EXCLUDE);
	assert_int_equal(r.ncidrs, 1);
	assert_int_equal(r.cidrs[0].flags, REDIRECT_CIDR_INCLUDE | REDIRECT_CIDR_EXCLUDE);
}

static void test_what_is_no_range(void **state)
{
	static const char *const bad[] = {"10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1",
	    "10.0.0.0/+8", "10.0.0.0/8 ", " 10.0.0.0/8", "fd00::/129", "fd00::/1x", "*", "web",
	    "10.0.0.0/99999999999999999999", "10.0.0.0/0x8", "/8", "10.0.0.0/8/8",
	    "1111:2222:3333:4444:5555:6666:7777:8888:9999/128", "::ffff:1.2.3.4/1280000000"};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (!cidr_add(&r, "the list", bad[i], REDIRECT_CIDR_INCLUDE, &e))
			fail_msg("\"%s\" is taken for a range", bad[i]);
		assert_non_null(strstr(e.msg, "the list: "));
	}
	assert_int_equal(r.ncidrs, 0);
}

static void test_names_are_made_printable(void **state)
{
	(void)state;
	assert_int_equal(cidr_add(&r, "l", "\033[31m", REDIRECT_CIDR_INCLUDE, &e), -1);
	assert_null(strchr(e.msg, '\033'));
}

static void test_more_than_fit(void **state)
{
	char text[32];

	(void)state;
	for (unsigned i = 0; i < REDIRECT_CIDRS_MAX - 1; i++) { /* one is for 0.0.0.0/0 */
		snprintf(text, sizeof(text), "10.0.%u.%u", i / 256, i % 256);
		add(text, REDIRECT_CIDR_INCLUDE);
	}
	add("10.0.0.7", REDIRECT_CIDR_EXCLUDE); /* is there */
	assert_int_equal(cidr_add(&r, "l", "10.9.0.0", REDIRECT_CIDR_INCLUDE, &e), -1);
	assert_non_null(strstr(e.msg, "more than 511"));
}

/* ebpf-redirect.md 2: exclude wins whatever its length. */
static void test_an_answer_has_what_its_wider_ranges_have(void **state)
{
	(void)state;
	add("10.0.0.0/8", REDIRECT_CIDR_EXCLUDE);
	add("10.1.0.0/16,192.168.0.0/16", REDIRECT_CIDR_INCLUDE);
	add("10.1.1.1", REDIRECT_CIDR_DNS);
	cidr_flatten(&r);
	assert_int_equal(look_up("10.1.2.2"), REDIRECT_CIDR_INCLUDE | REDIRECT_CIDR_EXCLUDE);
	assert_int_equal(
	    look_up("10.1.1.1"), REDIRECT_CIDR_INCLUDE | REDIRECT_CIDR_EXCLUDE | REDIRECT_CIDR_DNS);
	assert_int_equal(look_up("10.2.2.2"), REDIRECT_CIDR_EXCLUDE);
	assert_int_equal(look_up("192.168.1.1"), REDIRECT_CIDR_INCLUDE);
	assert_int_equal(look_up("11.0.0.1"), 0);
}

/* The property itself: the flattened longest match says what the union of all matches says. */
static void test_flattening_loses_nothing(void **state)
{
	char text[64];
	uint32_t seed = 1;

	(void)state;
	for (int round = 0; round < 200; round++) {
		memset(&r, 0, sizeof(r));
		for (int i = 0; i < 12; i++) {
			seed = seed * 1103515245 + 12345;
			snprintf(text, sizeof(text), "10.%u.%u.%u/%u", seed >> 16 & 3,
			    seed >> 18 & 3, seed >> 20 & 3, 8 + (seed >> 22 & 31) % 25);
			add(text, 1u << (seed >> 27 & 1));
		}
		struct redirect_rules raw = r;
		cidr_flatten(&r);
		for (unsigned a = 0; a < 64; a++) {
			snprintf(text, sizeof(text), "10.%u.%u.%u", a >> 4, a >> 2 & 3, a & 3);
			uint32_t all = 0;
			for (uint32_t i = 0; i < raw.ncidrs; i++) {
				struct redirect_rules one = {.ncidrs = 1, .cidrs = {raw.cidrs[i]}};
				struct redirect_address at;
				cidr_parse_address(&at, text);
				all |= cidr_look_up(&one, &at);
			}
			assert_int_equal(look_up(text), all);
		}
	}
}

/* IPv4 lies in ::/0 as the trie sees it, and has nothing to do with it. */
static void test_families_are_apart(void **state)
{
	(void)state;
	add("::/0", REDIRECT_CIDR_EXCLUDE);
	add("10.0.0.0/8", REDIRECT_CIDR_INCLUDE);
	cidr_flatten(&r);
	assert_int_equal(look_up("2001:db8::1"), REDIRECT_CIDR_EXCLUDE);
	assert_int_equal(look_up("10.0.0.1"), REDIRECT_CIDR_INCLUDE);
	assert_int_equal(look_up("192.0.2.1"), 0);
}

static void test_loopback(void **state)
{
	(void)state;
	add("10.0.0.0/8,126.0.0.0/8,::2/128", REDIRECT_CIDR_INCLUDE);
	add("127.1.2.3/32", REDIRECT_CIDR_EXCLUDE);
	assert_false(cidr_has_loopback(&r, REDIRECT_CIDR_INCLUDE));
	add("127.1.2.3/32", REDIRECT_CIDR_INCLUDE);
	assert_true(cidr_has_loopback(&r, REDIRECT_CIDR_INCLUDE));
	memset(&r, 0, sizeof(r));
	add("::1", REDIRECT_CIDR_INCLUDE);
	assert_true(cidr_has_loopback(&r, REDIRECT_CIDR_INCLUDE));
}

#define CIDR_TEST(f) cmocka_unit_test_setup(f, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
	    CIDR_TEST(test_both_families_and_single_addresses),
	    CIDR_TEST(test_a_range_is_there_once),
	    CIDR_TEST(test_what_is_no_range),
	    CIDR_TEST(test_names_are_made_printable),
	    CIDR_TEST(test_more_than_fit),
	    CIDR_TEST(test_an_answer_has_what_its_wider_ranges_have),
	    CIDR_TEST(test_flattening_loses_nothing),
	    CIDR_TEST(test_families_are_apart),
	    CIDR_TEST(test_loopback),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
