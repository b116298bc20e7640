/* pack_test.c - versions of what there is, and the bytes of a response.
 * LINK: tests/fake/secrets.c tests/unit/worker/sds/shown.c
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/err.h"
#include "shown.h"
#include "tests/fake/secrets.h"
#include "worker/sds/pack.h"

enum { EXPIRY = 1000, BEFORE = EXPIRY - 1 };

static char key[] = "SECRET-KEY";
static const struct cert issued = {.leaf = {.serial = "s1", .not_after = EXPIRY},
    .key_pem = key,
    .chain_pem = "CHAIN",
    .root_pem = "ROOT"};

static struct sds_name named(const char *text)
{
	struct sds_name n = {0};
	struct err e;

	assert_int_equal(sds_names_read(&n, text, &e), 0);
	return n;
}

static struct sds_material with(const struct cert *cert, const char *roots, const char *crl)
{
	struct sds_material m = {.cert = cert, .roots = roots, .crl = crl};

	sds_pack_hash(&m);
	return m;
}

/* ---- versions ---- */

static void a_version_is_of_what_is_there(void **state)
{
	struct sds_name cert = named("default"), root = named("ROOTCA"),
			file = named("file-root:/r");
	const struct sds_material none = with(NULL, NULL, NULL), m = with(&issued, NULL, NULL);

	(void)state;
	assert_string_equal(sds_pack_version(&none, &cert, BEFORE), "");
	assert_string_equal(sds_pack_version(&none, &root, BEFORE), "");
	assert_string_equal(sds_pack_version(&none, &file, BEFORE), "file");
	assert_string_equal(sds_pack_version(&m, &cert, BEFORE), "s1");
	assert_string_equal(sds_pack_version(&m, &cert, EXPIRY), ""); /* its root is still good */
	assert_int_equal(strlen(sds_pack_version(&m, &root, EXPIRY)), 16);
	sds_names_clear(&cert);
	sds_names_clear(&root);
	sds_names_clear(&file);
}

static void a_roots_version_is_of_its_bytes(void **state)
{
	struct cert renewed = issued;
	struct sds_material a = with(&issued, NULL, NULL), b;

	(void)state;
	strcpy(renewed.leaf.serial, "s2");
	b = with(&renewed, NULL, NULL);
	assert_string_equal(a.root_version, b.root_version);
	b = with(&issued, "ROOT", NULL); /* from elsewhere, and the same */
	assert_string_equal(a.root_version, b.root_version);
	b = with(&issued, "ROOT+ANCHOR", NULL);
	assert_string_not_equal(a.root_version, b.root_version);
	b = with(&issued, NULL, "CRL");
	assert_string_not_equal(a.root_version, b.root_version);
}

/* ---- responses ---- */

static void assert_packed(const struct sds_material *m, const char *name, const char *version,
    const char *shown_sotw, const char *shown_delta)
{
	struct sds_name n = named(name);
	const struct sds_item item = {&n, version, m};

	for (int f = 0; f < 2; f++) {
		const struct sds_response r = {(enum discovery_flavour)f, "7", &item, 1};
		struct sds_packed p = sds_pack(&r);
		const struct shown *s = shown_response(p.bytes, p.len, r.flavour);

		assert_string_equal(s->text, f == DISCOVERY_SOTW ? shown_sotw : shown_delta);
		assert_string_equal(s->nonce, "7");
		assert_string_equal(s->version, version);
		sds_pack_wipe(&p);
		assert_null(p.bytes);
	}
	sds_names_clear(&n);
}

static void each_kind_is_packed_in_both_flavours(void **state)
{
	const struct sds_material m = with(&issued, NULL, NULL), t = with(&issued, "OTHER", "CRL"),
				  none = with(NULL, NULL, "CRL");

	(void)state;
	assert_packed(&m, "mine", "v", " mine=CHAIN+SECRET-KEY", " mine=CHAIN+SECRET-KEY@v");
	assert_packed(&m, "ROOTCA", "v", " ROOTCA=ROOT", " ROOTCA=ROOT@v");
	assert_packed(&t, "ROOTCA", "v", " ROOTCA=OTHER-CRL", " ROOTCA=OTHER-CRL@v");
	assert_packed(&none, "file-cert:/a~/b", "v", " file-cert:/a~/b=file:/a+file:/b",
	    " file-cert:/a~/b=file:/a+file:/b@v");
	assert_packed(
	    &none, "file-root:/r", "v", " file-root:/r=file:/r", " file-root:/r=file:/r@v");
}

static void a_response_may_have_many_or_none(void **state)
{
	struct sds_name cert = named("default"), root = named("ROOTCA");
	const struct sds_material m = with(&issued, NULL, NULL);
	const struct sds_item items[] = {{&cert, "a", &m}, {&root, "b", &m}};
	const struct sds_response many = {DISCOVERY_DELTA, "1", items, 2};
	const struct sds_response none = {DISCOVERY_SOTW, "2", NULL, 0};
	struct sds_packed p = sds_pack(&many);

	(void)state;
	assert_string_equal(shown_response(p.bytes, p.len, DISCOVERY_DELTA)->text,
	    " default=CHAIN+SECRET-KEY@a ROOTCA=ROOT@b");
	sds_pack_wipe(&p);
	p = sds_pack(&none);
	assert_string_equal(shown_response(p.bytes, p.len, DISCOVERY_SOTW)->text, "");
	sds_pack_wipe(&p);
	sds_names_clear(&cert);
	sds_names_clear(&root);
}

/* Those made on the way, and the response itself. */
static void copies_of_the_key_are_wiped(void **state)
{
	struct sds_name cert = named("default");
	const struct sds_material m = with(&issued, NULL, NULL);
	const struct sds_item item = {&cert, "v", &m};

	(void)state;
	if (!secrets_watched())
		skip();
	for (int f = 0; f < 2; f++) {
		const struct sds_response r = {(enum discovery_flavour)f, "1", &item, 1};
		struct sds_packed p;

		secrets_watch();
		p = sds_pack(&r);
		assert_non_null(memmem(p.bytes, p.len, key, strlen(key)));
		sds_pack_wipe(&p);
		assert_int_equal(secrets_freed(), 0);
	}
	sds_names_clear(&cert);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(a_version_is_of_what_is_there),
	    cmocka_unit_test(a_roots_version_is_of_its_bytes),
	    cmocka_unit_test(each_kind_is_packed_in_both_flavours),
	    cmocka_unit_test(a_response_may_have_many_or_none),
	    cmocka_unit_test(copies_of_the_key_are_wiped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
