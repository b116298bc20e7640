/* roots_test.c - one text for one set of roots, and what of a bundle is none.
 *
 * LINK: tests/unit/worker/crypto/authority.c
 */
#include "authority.h"
#include "common/err.h"
#include "common/mem.h"
#include "worker/crypto/roots.h"
#include "worker/crypto/x509.h"
#include <openssl/err.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PEM(x) "-----BEGIN CERTIFICATE-----\n" x "\n-----END CERTIFICATE-----\n"
#define DAMAGED PEM("MIIBszCCAVmgAwIBAgIUdamagedBlock")
#define ANOTHER                                                                                    \
	"-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcD\n-----END PUBLIC KEY-----\n"

enum { NOW = 1700000000, DAY = 86400 };
static struct authority old, renewed, other, longest;

static int make(void **state)
{
	struct authority_wish w = {.name = "root", .begins = NOW - 9 * DAY, .ends = NOW - DAY};

	(void)state;
	old = authority_make(&w);
	w.again = &old;
	w.ends = NOW + 30 * DAY;
	renewed = authority_make(&w);
	w = (struct authority_wish){.name = "other", .begins = NOW, .ends = NOW + 30 * DAY};
	other = authority_make(&w);
	w.name = "longest";
	w.ends += DAY;
	longest = authority_make(&w);
	return 0;
}

static int drop(void **state)
{
	(void)state;
	authority_drop(&old);
	authority_drop(&renewed);
	authority_drop(&other);
	authority_drop(&longest);
	return 0;
}

static void same(const char *a, const char *b, const char *expected)
{
	auto_free char *got = roots_union(a, b);

	assert_string_equal(got, expected);
}

/* What is no certificate has no end. */
static void sorted_and_each_once(void **state)
{
	(void)state;
	same(PEM("b"), NULL, PEM("b"));
	same(PEM("b") PEM("a"), NULL, PEM("a") PEM("b"));
	same(PEM("b"), PEM("a"), PEM("a") PEM("b"));
	same(PEM("a"), PEM("b"), PEM("a") PEM("b"));
	same(PEM("c") PEM("a") PEM("c"), PEM("b") PEM("a"), PEM("a") PEM("b") PEM("c"));
	same(PEM("a"), PEM("aa"), PEM("a") PEM("aa")); /* a beginning is not the same */
	same(PEM("a"), "", PEM("a"));
	same("", "", "");
}

/* Envoy takes the first that fits: an expired one beside its renewal would be an outage. */
static void what_ends_last_comes_first(void **state)
{
	bool in_order = strcmp(renewed.pem, other.pem) < 0;
	auto_free char *all = mem_printf("%s%s%s%s", longest.pem,
	    in_order ? renewed.pem : other.pem, in_order ? other.pem : renewed.pem, old.pem);
	auto_free char *one = mem_printf("%s%s", old.pem, other.pem);
	auto_free char *two = mem_printf("%s%s%s", renewed.pem, old.pem, longest.pem);

	(void)state;
	same(one, two, all);
	same(two, one, all);
}

/* --- bundles --- */

static char *read_it(const char *text, char *note)
{
	struct err e = {0};
	char *got = roots_read(text, strlen(text), note, &e);

	assert_true(got || *e.msg);
	if (!got)
		strcpy(note, e.msg);
	assert_int_equal(ERR_peek_error(), 0);
	return got;
}

/* Of the text these two count, and this is said. */
static void good_are(const char *text, const char *expected, const char *said)
{
	char note[ROOTS_NOTE_SIZE];
	auto_free char *got = read_it(text, note);

	assert_string_equal(got, expected);
	if (*said ? !strstr(note, said) : *note)
		fail_msg("\"%s\" lacks \"%s\"", note, said);
}

static void what_is_no_certificate_is_left_out_and_named(void **state)
{
	auto_free char *both = mem_printf("%s%s", longest.pem, other.pem);
	const struct {
		const char *first, *second, *third, *said;
	} texts[] = {
	    {longest.pem, other.pem, "", ""},
	    {other.pem, "# words\n", longest.pem, ""},
	    {other.pem, DAMAGED, longest.pem, "block 2 is left out: not a PEM certificate"},
	    {DAMAGED, longest.pem, other.pem, "block 1 is left out: not a PEM certificate"},
	    {other.pem, longest.pem, ANOTHER, "block 3 is left out: PUBLIC KEY"},
	    /* one without its end does not take the next along */
	    {other.pem, "-----BEGIN CERTIFICATE-----\nMIIB\n", longest.pem, "block 2 is left out"},
	    {other.pem, "-----BEGIN X\n", longest.pem, "block 2 is left out: X"},
	    {longest.pem, other.pem, "-----BEGIN ", "block 3 is left out: "},
	    {longest.pem, other.pem, longest.pem, ""},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		auto_free char *text =
		    mem_printf("%s%s%s", texts[i].first, texts[i].second, texts[i].third);

		good_are(text, both, texts[i].said);
	}
}

static void many_are_counted_and_not_named(void **state)
{
	auto_free char *text = mem_printf("%s%s" ANOTHER ANOTHER ANOTHER, DAMAGED, other.pem);
	char note[ROOTS_NOTE_SIZE];
	auto_free char *got = read_it(text, note);

	(void)state;
	assert_string_equal(got, other.pem);
	assert_non_null(strstr(note, "block 1 is left out: not a PEM"));
	assert_non_null(strstr(note, "; block 4 is left out: PUBLIC KEY; and 1 more"));
}

static void nothing_good_is_an_error(void **state)
{
	char why[ROOTS_NOTE_SIZE];

	(void)state;
	assert_null(read_it("", why));
	assert_string_equal(why, "no certificate in it");
	assert_null(read_it("words", why));
	assert_string_equal(why, "no certificate in it");
	assert_null(read_it(DAMAGED, why));
	assert_non_null(strstr(why, "no certificate in it: block 1 is left out: not a PEM"));
}

static void bundles_are_bounded(void **state)
{
	size_t n = strlen(other.pem), block = strlen(ANOTHER);
	auto_free char *many = mem_zalloc(65 * n + 1), *blocks = mem_zalloc(130 * block + n + 1);
	auto_free char *big = mem_zalloc(256 * 1024 + 2);
	char note[ROOTS_NOTE_SIZE];

	(void)state;
	for (unsigned i = 0; i < 65; i++)
		memcpy(many + i * n, other.pem, n);
	assert_null(read_it(many, note));
	assert_string_equal(note, "more than 64 certificates");
	many[64 * n] = '\0';
	auto_free char *most = read_it(many, note);
	assert_string_equal(most, other.pem);
	memcpy(blocks, other.pem, n);
	for (unsigned i = 0; i < 130; i++)
		memcpy(blocks + n + i * block, ANOTHER, block);
	assert_null(read_it(blocks, note));
	assert_string_equal(note, "more than 128 PEM blocks");
	memset(big, '\n', 256 * 1024 + 1);
	memcpy(big, other.pem, n);
	assert_null(read_it(big, note));
	assert_non_null(strstr(note, "bytes are more than"));
}

/* --- which Envoy can confuse --- */

static void roots_of_one_name_without_key_ids_are_named(void **state)
{
	struct authority_wish w = {
	    .name = "root", .begins = NOW, .ends = NOW + DAY, .no_key_id = true};
	struct authority a = authority_make(&w), b = authority_make(&w), c;
	auto_free char *both = mem_printf("%s%s", a.pem, b.pem), *again = NULL;
	char note[ROOTS_NOTE_SIZE];
	auto_free char *read = read_it(both, note);

	(void)state;
	assert_non_null(read);
	assert_non_null(strstr(note, "2 roots have one name, other keys and no key identifier"));
	w.again = &a;
	w.ends += DAY;
	c = authority_make(&w); /* its renewal can be no wrong one */
	again = mem_printf("%s%s", a.pem, c.pem);
	auto_free char *fine = read_it(again, note);
	assert_string_equal(note, "");
	assert_int_equal(strncmp(fine, c.pem, strlen(c.pem)), 0);
	authority_drop(&a);
	authority_drop(&b);
	authority_drop(&c);
}

/* One that a later one renews is not what ends first. */
static void a_renewed_root_does_not_end(void **state)
{
	auto_free char *both = mem_printf("%s%s", old.pem, renewed.pem);
	auto_free char *stranger = mem_printf("%s%s", old.pem, other.pem);
	struct x509_life life;

	(void)state;
	x509_pem_life(both, &life);
	assert_int_equal(life.n, 2);
	assert_int_equal(life.first_end, NOW + 30 * DAY);
	x509_pem_life(stranger, &life);
	assert_int_equal(life.first_end, NOW - DAY);
	assert_int_equal(life.last_end, NOW + 30 * DAY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(sorted_and_each_once),
	    cmocka_unit_test(what_ends_last_comes_first),
	    cmocka_unit_test(what_is_no_certificate_is_left_out_and_named),
	    cmocka_unit_test(many_are_counted_and_not_named),
	    cmocka_unit_test(nothing_good_is_an_error),
	    cmocka_unit_test(bundles_are_bounded),
	    cmocka_unit_test(roots_of_one_name_without_key_ids_are_named),
	    cmocka_unit_test(a_renewed_root_does_not_end),
	};

	return cmocka_run_group_tests(tests, make, drop);
}
