/* objects_test.c - what is written is what was read but for what was meant, and names its version.
 */
#include "common/err.h"
#include "common/mem.h"
#include "common/secret.h"
#include "injector/kube/objects.h"
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* after the four above */
#include <cmocka.h>

static struct err e;

static json_t *must_read(const char *text, const char *kind)
{
	json_t *v = kube_object_read(text, strlen(text), kind, &e);

	if (!v)
		fail_msg("%s", e.msg);
	return v;
}

#define SECRET                                                                                     \
	"{\"kind\":\"Secret\",\"metadata\":{\"name\":\"s\",\"resourceVersion\":\"7\",\"labels\":"  \
	"{\"a\":\"b\"}},\"type\":\"Opaque\""

static void test_a_secret(void **state)
{
	static const char *const keys[] = {"ca.crt", "old.crt", "none"};
	json_t *v =
	    must_read(SECRET ",\"data\":{\"old.crt\":\"b2xk\",\"note\":\"bm90ZQ==\"}}", "Secret");
	char *new_text = secret_new("new", 3), *texts[] = {new_text, NULL, NULL};
	char *body, *text = kube_secret_text(v, "note");

	(void)state;
	assert_string_equal(text, "note");
	assert_null(kube_secret_text(v, "ca.crt"));
	body = kube_secret_with(v, keys, texts, 3);
	assert_string_equal(body, SECRET ",\"data\":{\"note\":\"bm90ZQ==\",\"ca.crt\":\"bmV3\"}}");
	secret_free(text);
	secret_free(body);
	secret_free(new_text);
	json_decref(v);
}

static void test_an_empty_secret(void **state)
{
	static const char *const keys[] = {"k"};
	char *texts[] = {NULL}, *body;
	json_t *v = must_read(SECRET "}", "Secret");

	(void)state;
	assert_null(kube_secret_text(v, "k"));
	body = kube_secret_with(v, keys, texts, 1);
	assert_string_equal(body, SECRET ",\"data\":{}}");
	secret_free(body);
	json_decref(v);
}

/* None of them is a text: as if the key were there, and said nothing. */
static void test_values_that_are_no_text(void **state)
{
	static const char *const bad[] = {"\"\"", "7", "null", "\"x\"", "\"====\"", "\"eA=\"",
	    "\"AAAA\"", "\"eAB5\"", "\"e*==\""};

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		auto_free char *text = mem_printf(SECRET ",\"data\":{\"k\":%s}}", bad[i]);
		json_t *v = must_read(text, "Secret");
		char *value = kube_secret_text(v, "k");

		assert_string_equal(value, "");
		secret_free(value);
		json_decref(v);
	}
}

static void test_answers_that_are_something_else(void **state)
{
	static const char *const bad[] = {"", "{", "[]", "null", "{\"kind\":\"Status\"}",
	    "{\"kind\":\"Secret\"}", "{\"kind\":\"Secret\",\"metadata\":{}}",
	    "{\"kind\":\"Secret\",\"metadata\":{\"resourceVersion\":7}}",
	    "{\"kind\":\"Secret\",\"metadata\":{\"resourceVersion\":\"\"}}",
	    "{\"kind\":\"SecretList\",\"metadata\":{\"resourceVersion\":\"7\"}}",
	    SECRET ",\"kind\":\"Secret\"}"};

	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_null(kube_object_read(bad[i], strlen(bad[i]), "Secret", &e));
		assert_string_equal(e.msg, "the answer is no Secret");
	}
}

#define CONFIGURATION                                                                              \
	"{\"kind\":\"MutatingWebhookConfiguration\",\"metadata\":{\"resourceVersion\":\"9\"},"     \
	"\"webhooks\":["

static void test_bundles(void **state)
{
	json_t *v = must_read(CONFIGURATION "{\"clientConfig\":{\"caBundle\":\"b2xk\"}},{},"
					    "{\"clientConfig\":{\"caBundle\":7}}]}",
	    "MutatingWebhookConfiguration");
	char *bundles[KUBE_WEBHOOKS_MAX], *mended[] = {NULL, "new", NULL}, *patch;

	(void)state;
	assert_int_equal(kube_bundles_read(v, bundles, &e), 3);
	assert_string_equal(bundles[0], "old");
	assert_string_equal(bundles[1], "");
	assert_string_equal(bundles[2], "");
	patch = kube_bundles_patch(v, mended, 3);
	assert_string_equal(patch,
	    "[{\"op\":\"test\",\"path\":\"/metadata/resourceVersion\",\"value\":\"9\"},"
	    "{\"op\":\"add\",\"path\":\"/webhooks/1/clientConfig/caBundle\",\"value\":\"bmV3\"}]");
	secret_free(patch);
	for (unsigned i = 0; i < 3; i++)
		secret_free(bundles[i]);
	json_decref(v);
}

static void test_too_few_and_too_many_webhooks(void **state)
{
	static const char *const bad[] = {"]}", "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}"};
	char *bundles[KUBE_WEBHOOKS_MAX];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		auto_free char *text = mem_printf(CONFIGURATION "%s", bad[i]);
		json_t *v = must_read(text, "MutatingWebhookConfiguration");

		assert_int_equal(kube_bundles_read(v, bundles, &e), -1);
		assert_non_null(strstr(e.msg, "1 to 16 are worked with"));
		json_decref(v);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(test_a_secret),
	    cmocka_unit_test(test_an_empty_secret),
	    cmocka_unit_test(test_values_that_are_no_text),
	    cmocka_unit_test(test_answers_that_are_something_else),
	    cmocka_unit_test(test_bundles),
	    cmocka_unit_test(test_too_few_and_too_many_webhooks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
