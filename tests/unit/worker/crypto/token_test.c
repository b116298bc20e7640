/* token_test.c - a token is used for its own pod only, and is never quoted.
 *
 * Tokens are made here from their JSON; the signature is any text, as it is not ours to check.
 */
#include "common/err.h"
#include "common/mem.h"
#include "worker/crypto/token.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
/* after the four above */
#include <cmocka.h>

#define UID "11111111-2222-3333-4444-555555555555"
#define HEADER "eyJhbGciOiJSUzI1NiJ9"
#define SIGNATURE "c2lnbmF0dXJl-_"
#define K8S(ns, sa, uid)                                                                           \
	"\"kubernetes.io\":{\"namespace\":\"" ns "\",\"pod\":{\"name\":\"p\",\"uid\":\"" uid       \
	"\"},\"serviceaccount\":{\"name\":\"" sa "\",\"uid\":\"u\"}}"
#define SUB(ns, sa) "\"sub\":\"system:serviceaccount:" ns ":" sa "\""
#define GOOD                                                                                       \
	"{\"aud\":[\"istio-ca\"],\"exp\":2000,\"iat\":1,"                                          \
	"\"iss\":\"k\"," K8S("demo", "web", UID) "," SUB("demo", "web") "}"

static const int64_t NOW = 1000;

/* HEADER.base64url(payload).SIGNATURE */
static char *jwt_of(const char *payload, size_t len)
{
	static const char digits[] =
	    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
	char *jwt = mem_zalloc(len * 4 / 3 + 100);
	char *out = jwt + sprintf(jwt, "%s.", HEADER);
	for (size_t bit = 0; bit < len * 8; bit += 6) {
		unsigned byte = (unsigned char)payload[bit / 8] << 8;
		byte |= bit / 8 + 1 < len ? (unsigned char)payload[bit / 8 + 1] : 0;
		*out++ = digits[byte >> (10 - bit % 8) & 63];
	}
	sprintf(out, ".%s", SIGNATURE);
	return jwt;
}

/* No eight characters of the token in a row may show up in a message. */
static void assert_not_quoted(const char *jwt, size_t len, const char *msg)
{
	for (size_t at = 0; at + 8 <= len; at++)
		assert_null(memmem(msg, strlen(msg), jwt + at, 8));
}

static int parse_json(struct token *t, const char *payload, struct err *e)
{
	auto_free char *jwt = jwt_of(payload, strlen(payload));
	*e = (struct err){0};
	int rc = token_parse(t, jwt, strlen(jwt), e);
	assert_not_quoted(jwt, strlen(jwt), e->msg);
	return rc;
}

static int check(const struct token *t, const char *ns, const char *sa, const char *uid,
    int64_t now, struct err *e)
{
	struct uuid pod;
	struct token_holder h = {ns, sa, &pod, .unbound = false};
	assert_true(uuid_parse(&pod, uid));
	return token_check(t, &h, now, e);
}

static void test_claims(void **state)
{
	(void)state;
	struct token t;
	struct err e;
	assert_int_equal(parse_json(&t, GOOD, &e), 0);
	assert_int_equal(t.expires, 2000);
	assert_string_equal(t.ns, "demo");
	assert_string_equal(t.sa, "web");
	assert_int_equal(t.issued, 1);
	assert_string_equal(t.account_uid, "u");
	assert_string_equal(t.pod_uid, UID);
	assert_string_equal(t.audience, "istio-ca");
	assert_true(t.for_istio);
	assert_int_equal(check(&t, "demo", "web", UID, NOW, &e), 0);
	token_clear(&t);
	assert_null(t.jwt);
	token_clear(&t); /* again is fine */
}

/* The kubelet writes no line end, people do; the bytes sent are the trimmed ones. */
static void test_trimmed(void **state)
{
	(void)state;
	struct token t;
	struct err e;
	auto_free char *jwt = jwt_of(GOOD, strlen(GOOD));
	auto_free char *text = mem_zalloc(strlen(jwt) + 20);
	sprintf(text, " \t\r\n%s\r\n\v\f ", jwt);
	assert_int_equal(token_parse(&t, text, strlen(text), &e), 0);
	assert_string_equal(t.jwt, jwt);
	token_clear(&t);
}

static void test_audiences(void **state)
{
	(void)state;
	struct token t;
	struct err e;
	const char *rest = ",\"exp\":2000," K8S("demo", "web", UID) "," SUB("demo", "web") "}";
	char json[4096];
	sprintf(json, "{\"aud\":\"istio-ca\"%s", rest);
	assert_int_equal(parse_json(&t, json, &e), 0);
	assert_true(t.for_istio);
	token_clear(&t);

	sprintf(json, "{\"aud\":[\"vault\\n\",\"istio-ca\"]%s", rest);
	assert_int_equal(parse_json(&t, json, &e), 0);
	assert_string_equal(t.audience, "vault?");
	assert_true(t.for_istio);
	token_clear(&t);

	sprintf(json, "{\"aud\":[\"istio-ca\",\"vault\"]%s", rest);
	assert_int_equal(parse_json(&t, json, &e), 0);
	assert_string_equal(t.audience, "istio-ca");
	assert_true(t.for_istio);
	token_clear(&t);

	sprintf(json, "{\"aud\":\"istio-ca2\"%s", rest);
	assert_int_equal(parse_json(&t, json, &e), 0);
	assert_false(t.for_istio);
	assert_int_equal(check(&t, "demo", "web", UID, NOW, &e), -1);
	assert_string_equal(e.msg, "token: its audience is \"istio-ca2\", not \"istio-ca\"");
	token_clear(&t);

	static const char *const bad[] = {"[]", "5", "null", "\"\"", "[\"istio-ca\",5]", "{}",
	    ("[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"10\",\"11\",\"12\",\"13\","
	     "\"14\",\"15\",\"16\",\"istio-ca\"]")};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		sprintf(json, "{\"aud\":%s%s", bad[i], rest);
		assert_int_equal(parse_json(&t, json, &e), -1);
		assert_non_null(strstr(e.msg, "claim aud"));
	}
}

static void test_bad_claims(void **state)
{
	(void)state;
	static const struct {
		const char *json, *why;
	} bad[] = {
#define AUD "\"aud\":\"istio-ca\""
#define EXP "\"exp\":2000"
#define POD K8S("demo", "web", UID)
#define WEB SUB("demo", "web")
	    {"{" EXP "," POD "," WEB "}", "claim aud"},
	    {"{" AUD "," POD "," WEB "}", "claim exp"},
	    {"{" AUD ",\"exp\":\"2000\"," POD "," WEB "}", "claim exp"},
	    {"{" AUD ",\"exp\":2000.0," POD "," WEB "}", "claim exp"},
	    {"{" AUD ",\"exp\":0," POD "," WEB "}", "claim exp"},
	    {"{" AUD ",\"exp\":-5," POD "," WEB "}", "claim exp"},
	    {"{" AUD ",\"exp\":99999999999999999999," POD "," WEB "}", "JSON object"},
	    {"{" AUD "," EXP "," POD "}", "claim sub is missing"},
	    {"{" AUD "," EXP "," POD ",\"sub\":5}", "claim sub is missing"},
	    {"{" AUD "," EXP "," POD "," SUB("demo", "other") "}", "claim sub is not"},
	    {"{" AUD "," EXP "," POD "," SUB("other", "web") "}", "claim sub is not"},
	    {"{" AUD "," EXP "," POD ",\"sub\":\"web\"}", "claim sub is not"},
	    {"{" AUD "," EXP "," WEB "}", "kubernetes.io.namespace is missing"},
	    {"{" AUD "," EXP ",\"kubernetes.io\":[]," WEB "}",
		"kubernetes.io.namespace is missing"},
	    {"{" AUD "," EXP ",\"kubernetes.io\":{\"namespace\":\"demo\",\"pod\":{\"uid\":\"" UID
	     "\"}}," WEB "}",
		"serviceaccount.name is missing"},
	    {"{" AUD "," EXP ",\"kubernetes.io\":{\"namespace\":\"demo\",\"serviceaccount\":{"
	     "\"name\":\"web\"},\"pod\":{}}," WEB "}",
		"pod.uid is missing"},
	    {"{" AUD "," EXP "," K8S("Demo", "web", UID) "," SUB("Demo", "web") "}",
		"namespace is not valid"},
	    {"{" AUD "," EXP "," K8S("a:b", "web", UID) "," SUB("a:b", "web") "}",
		"namespace is not valid"},
	    {"{" AUD "," EXP "," K8S("demo", "a/b", UID) "," SUB("demo", "a/b") "}",
		"service account is not valid"},
	    {"{" AUD "," EXP "," K8S("demo", "web", "x") "," WEB "}", "pod uid is not valid"},
	    {"{" AUD "," EXP "," K8S("demo", "web", UID "6") "," WEB "}", "pod.uid is too long"},
	    /* which of two would istiod believe? */
	    {"{" AUD "," EXP "," POD "," WEB "," SUB("demo", "other") "}", "JSON object"},
	    {"{" AUD "," EXP "," POD "," WEB "}{}", "JSON object"},
	    {"[\"aud\"]", "JSON object"},
	    {"5", "JSON object"},
	    {"{", "JSON object"},
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		struct token t;
		struct err e;
		if (parse_json(&t, bad[i].json, &e) == 0 || !strstr(e.msg, bad[i].why))
			fail_msg("%s: \"%s\"", bad[i].json, e.msg);
		assert_null(t.jwt);
	}
}

/* jansson would recurse 2048 deep; brackets inside strings are no depth. */
static void test_depth(void **state)
{
	(void)state;
	struct token t;
	struct err e;
	char json[4096] = "{\"a\":\"[[[[[[[[[[[[[[[[[[[[\\\"[[[[[[[[[[[[[[[[[[[[\","
			  "\"b\":[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]],";
	strcat(json, &GOOD[1]);
	assert_int_equal(parse_json(&t, json, &e), 0);
	token_clear(&t);
	strcpy(json, "{\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]],");
	strcat(json, &GOOD[1]);
	assert_int_equal(parse_json(&t, json, &e), -1);
	assert_non_null(strstr(e.msg, "plain JSON"));
}

static void refuse_text(const char *text, size_t len, const char *why)
{
	struct token t;
	struct err e = {0};
	assert_int_equal(token_parse(&t, text, len, &e), -1);
	if (!strstr(e.msg, why))
		fail_msg("\"%s\" instead of \"%s\"", e.msg, why);
	assert_not_quoted(text, len, e.msg);
	assert_null(t.jwt);
}

static void test_bad_form(void **state)
{
	(void)state;
	static const char *const bad[] = {"x", "a.b", "a..c", ".b.c", "a.b.", "a.b.c.d",
	    "a.b.c\n.d", "a.b=.c", "a.b+.c", "a b.c.d", "a.b.c\x01", "a.b.\xc3\xa4", "..", "."};
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		refuse_text(bad[i], strlen(bad[i]), "three parts");
	refuse_text("", 0, "empty");
	refuse_text(" \n\t", 3, "empty");

	/* a character that no header may carry, in each part, in a token that is good without it */
	auto_free char *jwt = jwt_of(GOOD, strlen(GOOD));
	size_t len = strlen(jwt);
	static const char evil[] = {'\0', '\r', '\n', ' ', '\x7f', '\x80', '"'};
	for (size_t i = 0; i < sizeof(evil); i++) {
		for (size_t at = 3; at < len; at += 7) {
			char kept = jwt[at];
			jwt[at] = evil[i];
			refuse_text(jwt, len, "three parts");
			jwt[at] = kept;
		}
	}
	struct token t;
	struct err e;
	assert_int_equal(token_parse(&t, jwt, len, &e), 0);
	token_clear(&t);
	/* a NUL and more behind the signature */
	auto_free char *longer = mem_zalloc(len + 3);
	memcpy(longer, jwt, len);
	longer[len + 1] = 'x';
	refuse_text(longer, len + 2, "three parts");
}

/* One payload has one spelling: stray bits in its last character, or a lone character, are refused.
 */
static void test_base64_is_strict(void **state)
{
	(void)state;
	refuse_text("a.e30.c", 7, "claim exp"); /* {} */
	refuse_text("a.e31.c", 7, "base64url");
	refuse_text("a.e30A.c", 8, "JSON object"); /* {} and a NUL */
	refuse_text("a.e30gA.c", 9, "base64url");  /* a lone character, its bits all 0 */
}

static void test_size(void **state)
{
	(void)state;
	auto_free char *big = mem_zalloc(TOKEN_SIZE_MAX + 2);
	memset(big, 'a', TOKEN_SIZE_MAX + 1);
	big[1] = big[3] = '.';
	refuse_text(big, TOKEN_SIZE_MAX + 1, "more than 16384");
	refuse_text(big, TOKEN_SIZE_MAX, "base64url"); /* one byte: never a payload */
}

static void test_other_pod(void **state)
{
	(void)state;
	struct token t;
	struct err e;
	assert_int_equal(parse_json(&t, GOOD, &e), 0);
	assert_int_equal(check(&t, "prod", "web", UID, NOW, &e), -1);
	assert_string_equal(e.msg, "token: its namespace is \"demo\", the pod's is \"prod\"");
	assert_int_equal(e.code, ERR_DENIED);
	assert_int_equal(check(&t, "demo", "we", UID, NOW, &e), -1);
	assert_string_equal(e.msg, "token: its service account is \"web\", the pod's is \"we\"");
	assert_int_equal(
	    check(&t, "demo", "web", "11111111-2222-3333-4444-555555555556", NOW, &e), -1);
	assert_string_equal(e.msg, "token: its pod uid is \"" UID
				   "\", the pod's is \"11111111-2222-3333-4444-555555555556\"");
	token_clear(&t);
}

/* As `istioctl x workload entry configure` makes it. */
static void test_of_no_pod(void **state)
{
	(void)state;
	struct token t;
	struct err e;
	assert_int_equal(
	    parse_json(&t,
		"{" AUD "," EXP ",\"kubernetes.io\":{\"namespace\":\"demo\",\"serviceaccount\":{"
		"\"name\":\"web\",\"uid\":\"u\"}}," WEB "}",
		&e),
	    0);
	assert_string_equal(t.pod_uid, "");
	assert_int_equal(check(&t, "demo", "web", UID, NOW, &e), -1);
	assert_string_equal(e.msg, "token: it names no pod");
	assert_int_equal(e.code, ERR_DENIED);
	token_clear(&t);
}

static void test_expiry(void **state)
{
	(void)state;
	struct token t;
	struct err e;
	assert_int_equal(parse_json(&t, GOOD, &e), 0);
	assert_int_equal(check(&t, "demo", "web", UID, 1999, &e), 0);
	assert_int_equal(check(&t, "demo", "web", UID, 2000, &e), -1);
	assert_int_equal(check(&t, "demo", "web", UID, 2030, &e), -1);
	assert_string_equal(e.msg, "token: expired 30 s ago");
	token_clear(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_claims),
	    cmocka_unit_test(test_trimmed),
	    cmocka_unit_test(test_audiences),
	    cmocka_unit_test(test_bad_claims),
	    cmocka_unit_test(test_depth),
	    cmocka_unit_test(test_bad_form),
	    cmocka_unit_test(test_base64_is_strict),
	    cmocka_unit_test(test_size),
	    cmocka_unit_test(test_other_pod),
	    cmocka_unit_test(test_of_no_pod),
	    cmocka_unit_test(test_expiry),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
