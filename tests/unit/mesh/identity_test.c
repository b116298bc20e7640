/* identity_test.c - one identity has one spelling; every other one is refused. */
#include "common/err.h"
#include "mesh/identity.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
/* after the four above */
#include <cmocka.h>

#define LABEL63 "a23456789-123456789-123456789-123456789-123456789-123456789-123"
#define DOMAIN250                                                                                  \
	LABEL63 "." LABEL63 "." LABEL63 "."                                                        \
		"123456789-123456789-123456789-123456789-123456789-12345678"

static int parse(struct identity *id, const char *uri)
{
	struct err e = {0};
	int rc = identity_parse(id, uri, strlen(uri), &e);
	assert_true(rc == 0 || e.msg[0]);
	return rc;
}

static void test_round_trip(void **state)
{
	(void)state;
	static const char *const good[] = {
	    "spiffe://cluster.local/ns/default/sa/web",
	    "spiffe://td/ns/n/sa/s",
	    "spiffe://my_td-1.example/ns/0/sa/a.b-c.9",
	    "spiffe://td/ns/" LABEL63 "/sa/" DOMAIN250,
	};
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		struct identity id;
		char out[IDENTITY_URI_SIZE];
		assert_int_equal(parse(&id, good[i]), 0);
		assert_string_equal(identity_uri(&id, out), good[i]);
	}
}

static void test_parts(void **state)
{
	(void)state;
	struct identity id;
	assert_int_equal(parse(&id, "spiffe://cluster.local/ns/default/sa/web"), 0);
	assert_string_equal(id.trust_domain, "cluster.local");
	assert_string_equal(id.ns, "default");
	assert_string_equal(id.sa, "web");
}

static void test_other_spellings(void **state)
{
	(void)state;
	static const char *const bad[] = {
	    "",
	    "spiffe://",
	    "spiffe:///ns/n/sa/s",
	    "SPIFFE://td/ns/n/sa/s",
	    "https://td/ns/n/sa/s",
	    " spiffe://td/ns/n/sa/s",
	    "spiffe://td/ns/n/sa/s ",
	    "spiffe://td/ns/n/sa/s/",
	    "spiffe://td/ns/n/sa/s/x",
	    "spiffe://td/ns/n/sa/s?x",
	    "spiffe://td/ns/n/sa/s#x",
	    "spiffe://td/ns/n/sa/",
	    "spiffe://td/ns/n/sa",
	    "spiffe://td/ns/n",
	    "spiffe://td/ns//sa/s",
	    "spiffe://td//ns/n/sa/s",
	    "spiffe://td/sa/s/ns/n",
	    "spiffe://td/ns/n/x/sa/s",
	    "spiffe://td/ns/n%2dx/sa/s", /* nothing is decoded */
	    "spiffe://TD/ns/n/sa/s",     /* or folded */
	    "spiffe://td/ns/N/sa/s",
	    "spiffe://td/ns/n/sa/S",
	    "spiffe://user@td/ns/n/sa/s",
	    "spiffe://td:80/ns/n/sa/s",
	    "spiffe://t\xc3\xa4/ns/n/sa/s",
	    "spiffe://td/ns/-n/sa/s",
	    "spiffe://td/ns/n-/sa/s",
	    "spiffe://td/ns/n.m/sa/s", /* a namespace is one label */
	    "spiffe://td/ns/n/sa/.s",
	    "spiffe://td/ns/n/sa/s.",
	    "spiffe://td/ns/n/sa/a..b",
	    "spiffe://td/ns/n/sa/a.-b",
	    "spiffe://td/ns/n/sa/a_b",
	    "spiffe://td/ns/../sa/s",
	    "spiffe://td/ns/" LABEL63 "4/sa/s",
	    "spiffe://td/ns/n/sa/" DOMAIN250 "1234",
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct identity id = {.ns = "untouched"};
		if (parse(&id, bad[i]) == 0)
			fail_msg("accepted: %s", bad[i]);
		assert_string_equal(id.ns, "untouched");
	}
}

/* A certificate's URI is a counted string: what a C string hides behind a NUL must not pass. */
static void test_nul_inside(void **state)
{
	(void)state;
	struct identity id;
	struct err e;
	static const char uri[] = "spiffe://td/ns/n/sa/s\0.evil";
	assert_int_equal(identity_parse(&id, uri, sizeof(uri) - 1, &e), -1);
	assert_int_equal(identity_parse(&id, uri, strlen(uri) + 1, &e), -1);
	assert_int_equal(identity_parse(&id, uri, strlen(uri), &e), 0);
}

static void test_lengths(void **state)
{
	(void)state;
	char td[257], uri[700];
	struct identity id;
	struct err e;
	memset(td, 'a', sizeof(td));
	td[255] = '\0';
	assert_int_equal(identity_set(&id, td, "n", "s", &e), 0);
	assert_int_equal(identity_set(&id, td, LABEL63, DOMAIN250 "123", &e), 0);
	identity_uri(&id, uri);
	assert_int_equal(parse(&id, uri), 0); /* the longest one there is */
	td[255] = 'a', td[256] = '\0';
	assert_int_equal(identity_set(&id, td, "n", "s", &e), -1);
	memset(uri, 'a', sizeof(uri));
	memcpy(uri, "spiffe://", 9);
	assert_int_equal(identity_parse(&id, uri, sizeof(uri), &e), -1);
}

static void test_equal(void **state)
{
	(void)state;
	struct identity a, b;
	static const char *const other[] = {
	    "spiffe://te/ns/n/sa/s",
	    "spiffe://td/ns/m/sa/s",
	    "spiffe://td/ns/n/sa/t",
	};
	parse(&a, "spiffe://td/ns/n/sa/s");
	parse(&b, "spiffe://td/ns/n/sa/s");
	assert_true(identity_equal(&a, &b));
	assert_memory_equal(&a, &b, sizeof(a)); /* part of a memcmp-able key */
	for (size_t i = 0; i < 3; i++) {
		parse(&b, other[i]);
		assert_false(identity_equal(&a, &b));
	}
}

/* What a peer wrote gets into the message only as printable text. */
static void test_message(void **state)
{
	(void)state;
	struct identity id;
	struct err e;
	assert_int_equal(identity_set(&id, "td", "n\n\x1b[2J", "s", &e), -1);
	assert_string_equal(e.msg, "namespace \"n??[2J\" is not valid");
	assert_int_equal(e.code, ERR_INVALID);
	assert_int_equal(identity_set(&id, "", "n", "s", &e), -1);
	assert_string_equal(e.msg, "trust domain \"\" is not valid");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_round_trip),
	    cmocka_unit_test(test_parts),
	    cmocka_unit_test(test_other_spellings),
	    cmocka_unit_test(test_nul_inside),
	    cmocka_unit_test(test_lengths),
	    cmocka_unit_test(test_equal),
	    cmocka_unit_test(test_message),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
