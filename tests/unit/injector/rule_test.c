/* rule_test.c - Istio's order: the pod, never, always, the policy; and selectors that are none.
 *
 * LINK: tests/unit/json_rig.c
 */
#include "common/err.h"
#include "common/mem.h"
#include "inject/config.h"
#include "injector/rule.h"
#include "tests/unit/json_rig.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct err e;

static struct inject_config *config(const char *values_text)
{
	json_t *values = rig_json(values_text);
	struct inject_config *c = inject_config_new(values, NULL, NULL, &e);

	json_decref(values);
	assert_non_null(c);
	return c;
}

static const char *why(const char *values, const char *labels, bool yes)
{
	struct inject_config *c = config(values);
	auto_free char *text =
	    mem_printf("{'metadata':{'labels':%s},'spec':{'containers':[{'name':'a'}]}}", labels);
	json_t *pod = rig_json(text);
	struct inject_rule rule;

	assert_int_equal(rule_check(c, &e), 0);
	rule = rule_of(c, pod, "demo");
	assert_int_equal(rule.yes, yes);
	json_decref(pod);
	inject_config_free(&c);
	return rule.why;
}

#define WEBHOOK(text) "{'sidecarInjectorWebhook':{" text "}}"
#define NEVER(selector) WEBHOOK("'neverInjectSelector':[" selector "]")
#define IN(key, op, values) "{'matchExpressions':[{'key':'" key "','operator':'" op "'" values "}]}"

static void the_order(void **state)
{
	(void)state;
	assert_string_equal(why("{}", "{}", true), "by default");
	assert_string_equal(
	    why(NEVER("{'matchLabels':{'a':'b'}}"), "{'a':'b'}", false), "neverInjectSelector");
	assert_string_equal(why(NEVER("{'matchLabels':{'a':'b'}}"),
				"{'a':'b','sidecar.istio.io/inject':'true'}", true),
	    "sidecar.istio.io/inject is \"true\"");
	assert_string_equal(
	    why("{'global':{'proxy':{'autoInject':'disabled'}},'sidecarInjectorWebhook':{"
		"'alwaysInjectSelector':[{'matchLabels':{'a':'b'}}]}}",
		"{'a':'b'}", true),
	    "alwaysInjectSelector");
	assert_string_equal(why(WEBHOOK("'alwaysInjectSelector':[{'matchLabels':{'a':'b'}}],"
					"'neverInjectSelector':[{'matchLabels':{'a':'b'}}]"),
				"{'a':'b'}", false),
	    "neverInjectSelector");
	assert_string_equal(why("{'global':{'proxy':{'autoInject':'disabled'}}}", "{}", false),
	    "autoInject is not enabled");
	assert_string_equal(why("{'global':{'proxy':{'autoInject':'disabled'}}}",
				"{'sidecar.istio.io/inject':'true'}", true),
	    "sidecar.istio.io/inject is \"true\"");
	assert_string_equal(why("{}", "{'sidecar.istio.io/inject':''}", true), "by default");
}

static void selectors_match(void **state)
{
	static const struct {
		const char *selector, *labels;
		bool matches;
	} rows[] = {
	    {"{}", "{}", false},
	    {"{},{'matchLabels':{'a':'b'}}", "{'a':'b'}", true},
	    {"{'matchLabels':{'a':'b'}}", "{'a':'c'}", false},
	    {"{'matchLabels':{'a':'b','c':'d'}}", "{'a':'b'}", false},
	    {IN("a", "In", ",'values':['x','y']"), "{'a':'y'}", true},
	    {IN("a", "In", ",'values':['x']"), "{}", false},
	    {IN("a", "NotIn", ",'values':['x']"), "{}", true},
	    {IN("a", "NotIn", ",'values':['x']"), "{'a':'x'}", false},
	    {IN("a", "Exists", ""), "{'a':''}", true},
	    {IN("a", "Exists", ""), "{}", false},
	    {IN("a", "DoesNotExist", ""), "{}", true},
	    {IN("a", "DoesNotExist", ""), "{'a':''}", false},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		auto_free char *values = mem_printf(NEVER("%s"), rows[i].selector);

		why(values, rows[i].labels, !rows[i].matches);
	}
}

static void what_is_no_configuration(void **state)
{
	static const char *const rows[] = {
	    NEVER("'x'"),
	    NEVER("{'matchLabels':{'a':1}}"),
	    NEVER("{'matchLabel':{'a':'b'}}"),
	    NEVER("{'matchExpressions':{}}"),
	    NEVER(IN("a", "in", ",'values':['x']")),
	    NEVER(IN("a", "In", "")),
	    NEVER(IN("a", "Exists", ",'values':['x']")),
	    NEVER(IN("", "Exists", "")),
	    WEBHOOK("'alwaysInjectSelector':{}"),
	    WEBHOOK("'injectedAnnotations':{'a':1}"),
	    WEBHOOK("'injectedAnnotations':['a']"),
	    "{'global':{'proxy':{'autoInject':true}}}",
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
		struct inject_config *c = config(rows[i]);

		e.msg[0] = '\0';
		if (!rule_check(c, &e))
			fail_msg("%s", rows[i]);
		assert_ptr_equal(strstr(e.msg, "values: "), e.msg);
		inject_config_free(&c);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(the_order),
	    cmocka_unit_test(selectors_match),
	    cmocka_unit_test(what_is_no_configuration),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
