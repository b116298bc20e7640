/* store_test.c - what is written is read; what is anything else is not. */
#include "common/err.h"
#include "common/mem.h"
#include "worker/certs/store.h"
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char key[] = "-----KEY-----\nc2VjcmV0\n", chain[] = "leaf\nbetween one\nroots, many\n";

static struct cert_stored example(void)
{
	struct cert_stored s;

	memset(&s, 0, sizeof(s));
	strcpy(s.origin.name, "istiod");
	strcpy(s.origin.address, "istiod.istio-system.svc:15012");
	strcpy(s.spec.trust_domain, "cluster.local");
	strcpy(s.spec.ns, "demo");
	strcpy(s.spec.sa, "web");
	s.spec.key = (struct x509_key_params){X509_RSA_3072, true};
	s.spec.ttl_s = 86400;
	s.spec.ratio = 0.1 + 0.2; /* its last bit too */
	s.spec.jitter = 1.0 / 3;
	s.spec.pod.bytes[3] = 7;
	s.issued_ms = 1700000000123;
	s.issued_uptime_ms = 4711;
	s.renew_at_ms = 1700043200123;
	s.key_pem = key;
	s.chain_pem = chain;
	s.n = 3;
	s.element_size[0] = 5;
	s.element_size[1] = 12;
	s.element_size[2] = strlen(chain) - 17;
	return s;
}

static char *example_text(size_t *size)
{
	const struct cert_stored s = example();

	return cert_store_write(&s, size);
}

/* The head with a right digest behind any body, as another release might write it. */
static char *text_with(const char *version, const char *body)
{
	uint8_t digest[X509_SHA256_SIZE];
	char hex[2 * X509_SHA256_SIZE + 1];

	x509_sha256(body, strlen(body), digest);
	for (int i = 0; i < X509_SHA256_SIZE; i++)
		sprintf(hex + 2 * (ptrdiff_t)i, "%02x", digest[i]);
	return mem_printf("version: %s\nsha256: %s\n%s", version, hex, body);
}

static const char *body_of(const char *text)
{
	return strchr(strchr(text, '\n') + 1, '\n') + 1;
}

/* `body` with the first `from` replaced by `to`. */
static char *replaced(const char *body, const char *from, const char *to)
{
	const char *at = strstr(body, from);

	assert_non_null(at);
	return mem_printf("%.*s%s%s", (int)(at - body), body, to, at + strlen(from));
}

static int read_code(const char *text, size_t size, struct err *e)
{
	struct cert_stored s;

	if (!cert_store_read(&s, text, size, e)) {
		cert_stored_clear(&s);
		return 0;
	}
	assert_null(s.key_pem);
	assert_null(s.chain_pem);
	return e->code;
}

static void what_is_written_is_read(void **state)
{
	const struct cert_stored s = example();
	struct cert_stored got;
	struct err e;
	size_t size;
	auto_free char *text = cert_store_write(&s, &size);

	(void)state;
	assert_int_equal(strlen(text), size);
	assert_memory_equal(text, "version: 1\nsha256: ", 19);
	assert_int_equal(cert_store_read(&got, text, size, &e), 0);
	assert_memory_equal(&got.origin, &s.origin, sizeof(s.origin));
	assert_memory_equal(&got.spec, &s.spec, sizeof(s.spec)); /* it is a hash key */
	assert_int_equal(got.issued_ms, s.issued_ms);
	assert_int_equal(got.issued_uptime_ms, s.issued_uptime_ms);
	assert_int_equal(got.renew_at_ms, s.renew_at_ms);
	assert_string_equal(got.key_pem, key);
	assert_string_equal(got.chain_pem, chain);
	assert_int_equal(got.n, 3);
	assert_memory_equal(got.element_size, s.element_size, sizeof(s.element_size));
	cert_stored_clear(&got);
}

/* Truncated at every length, one bit flipped at every place. */
static void damaged_is_ignored(void **state)
{
	struct err e;
	size_t size;
	auto_free char *text = example_text(&size);

	(void)state;
	for (size_t n = 0; n < size; n++)
		assert_int_equal(read_code(text, n, &e), ERR_INVALID);
	for (size_t at = 0; at < size; at++) {
		for (int bit = 0; bit < 8; bit++) {
			text[at] = (char)(text[at] ^ 1 << bit);
			int code = read_code(text, size, &e);
			/* "version: 3" is what a newer release would write, for all we know. */
			if (code != ERR_INVALID &&
			    (at != strlen("version: ") || code != EPROTONOSUPPORT))
				fail_msg("bit %d of byte %zu: %d", bit, at, code);
			text[at] = (char)(text[at] ^ 1 << bit);
		}
	}
	assert_int_equal(read_code(text, size, &e), 0);
	auto_free char *more = mem_printf("%s\n", text);
	assert_int_equal(read_code(more, size + 1, &e), ERR_INVALID);
}

/* The entry of another release is told from a damaged one, by name. */
static void another_release_is_named(void **state)
{
	static const struct {
		const char *version, *from, *to;
		int code;
		const char *says;
	} table[] = {
	    {"1", "namespace: demo", "namespace: demo", 0, ""},
	    {"2", "namespace: demo", "anything at all", EPROTONOSUPPORT, "version 2"},
	    {"17", "namespace: demo", "", EPROTONOSUPPORT, "version 17"},
	    {"0", "namespace: demo", "namespace: demo", ERR_INVALID, "version"},
	    {"01", "namespace: demo", "namespace: demo", ERR_INVALID, "version"},
	    {"", "namespace: demo", "namespace: demo", ERR_INVALID, "version"},
	    {"1", "namespace: demo\n", "colour: red\nnamespace: demo\n", EPROTONOSUPPORT,
		"\"colour\""},
	    {"1", "\n\n", "\ncolour: red\n\n", EPROTONOSUPPORT, "\"colour\""},
	    {"1", "namespace: demo\n", "", ERR_INVALID, "namespace"},
	    {"1", "namespace: demo\n", "namespace: demo\nnamespace: demo\n", ERR_INVALID,
		"service"},
	    {"1", "pkcs8: true", "pkcs8: yes", ERR_INVALID, "spelling"},
	    {"1", "ttl_s: 86400", "ttl_s: 086400", ERR_INVALID, "spelling"},
	    {"1", "ttl_s: 86400", "ttl_s: -1", ERR_INVALID, "ttl_s"},
	    {"1", "ttl_s: 86400", "ttl_s: 99999999999999999999", ERR_INVALID, "ttl_s"},
	    {"1", "grace_ratio: ", "grace_ratio: nan", ERR_INVALID, "grace_ratio"},
	    {"1", "key_type: RSA-3072", "key_type: DSA", ERR_INVALID, "key_type"},
	    {"1", "element_bytes: 23 5 12", "element_bytes: 23 5 13", ERR_INVALID, "sizes"},
	    {"1", "element_bytes: 23 5 12", "element_bytes: 23 -5 12", ERR_INVALID,
		"element_bytes"},
	    {"1", "issued_ms: ", "issued_ms: x", ERR_INVALID, "issued_ms"},
	};
	size_t size;
	auto_free char *text = example_text(&size);

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		auto_free char *body = replaced(body_of(text), table[i].from, table[i].to);
		auto_free char *other = text_with(table[i].version, body);
		struct err e = {0};
		int code = read_code(other, strlen(other), &e);
		if (code != table[i].code || !strstr(e.msg, table[i].says))
			fail_msg("row %zu: %d %s", i, code, e.msg);
	}
}

static void hostile_sizes_are_bounded(void **state)
{
	auto_free char *large = mem_zalloc((1 << 20) + 2);
	struct cert_stored s = example();
	struct err e;
	size_t size;

	(void)state;
	memset(large, 'x', (1 << 20) + 1);
	assert_int_equal(read_code(large, (1 << 20) + 1, &e), ERR_INVALID);
	assert_int_equal(read_code("", 0, &e), ERR_INVALID);
	assert_int_equal(read_code("\0\0", 2, &e), ERR_INVALID);
	s.chain_pem = large;
	assert_null(cert_store_write(&s, &size));
}

/* Everything that shapes a certificate names it, and nothing else does. */
static void an_entry_is_named_by_what_shaped_it(void **state)
{
	struct cert_stored s = example(), t;
	uint8_t a[X509_SHA256_SIZE], b[X509_SHA256_SIZE];

	(void)state;
	cert_store_id(&s.origin, &s.spec, a);
	cert_store_id(&s.origin, &s.spec, b);
	assert_memory_equal(a, b, sizeof(a));
	for (int i = 0; i < 12; i++) {
		char *const texts[] = {t.origin.name, t.origin.address, t.origin.trust_domain,
		    t.spec.trust_domain, t.spec.ns, t.spec.sa, t.spec.cert_signer};
		t = s;
		if (i < 7)
			strcat(texts[i], "x");
		else if (i == 7)
			t.spec.key.type = X509_EC_P384;
		else if (i == 8)
			t.spec.key.pkcs8 = false;
		else if (i == 9)
			t.spec.ttl_s++;
		else if (i == 10)
			t.spec.jitter = 0.5;
		else
			t.spec.pod.bytes[0]++;
		cert_store_id(&t.origin, &t.spec, b);
		assert_memory_not_equal(a, b, sizeof(a));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(what_is_written_is_read),
	    cmocka_unit_test(damaged_is_ignored),
	    cmocka_unit_test(another_release_is_named),
	    cmocka_unit_test(hostile_sizes_are_bounded),
	    cmocka_unit_test(an_entry_is_named_by_what_shaped_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
