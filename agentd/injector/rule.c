/* rule.c - hostNetwork, Kubernetes' namespaces, label and annotation (inject.h) -> never -> always
 * -> policy.
 *
 * A selector is Kubernetes' own: matchLabels and matchExpressions, all of which must hold.  An
 * empty one matches nothing (injection.md 2).
 */
#include "rule.h"
#include "common/err.h"
#include "inject/config.h"
#include <string.h>

#define NEVER "sidecarInjectorWebhook.neverInjectSelector"
#define ALWAYS "sidecarInjectorWebhook.alwaysInjectSelector"
#define ANNOTATIONS "sidecarInjectorWebhook.injectedAnnotations"
#define POLICY "global.proxy.autoInject"

/* --- one selector --- */

static const char *text_of(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));

	return text ? text : "";
}

static bool holds(const json_t *expression, const json_t *labels)
{
	const json_t *label = json_object_get(labels, text_of(expression, "key")), *v;
	const char *operator= text_of(expression, "operator");
	bool listed = false;
	size_t i;

	json_array_foreach (json_object_get(expression, "values"), i, v)
		listed = listed || (label && json_equal(v, label));
	if (!strcmp(operator, "Exists"))
		return label;
	if (!strcmp(operator, "DoesNotExist"))
		return !label;
	return !strcmp(operator, "In") ? listed : !listed;
}

static bool matches(json_t *selector, const json_t *labels)
{
	json_t *wanted = json_object_get(selector, "matchLabels"), *v;
	json_t *expressions = json_object_get(selector, "matchExpressions");
	const char *key;
	size_t i;

	if (!json_object_size(wanted) && !json_array_size(expressions))
		return false;
	json_object_foreach (wanted, key, v)
		if (!json_equal(json_object_get(labels, key), v))
			return false;
	json_array_foreach (expressions, i, v)
		if (!holds(v, labels))
			return false;
	return true;
}

static bool any_matches(const struct inject_config *c, const char *path, const json_t *labels)
{
	json_t *selector;
	size_t i;

	json_array_foreach (inject_at(c->values, path), i, selector)
		if (matches(selector, labels))
			return true;
	return false;
}

/* --- the rule --- */

struct inject_rule rule_of(const struct inject_config *c, const json_t *pod, const char *ns)
{
	struct inject_rule rule = inject_rule_of(pod, ns);
	const json_t *labels = inject_at(pod, "metadata.labels");
	const json_t *policy = inject_at(c->values, POLICY);

	if (!rule.by_default)
		return rule;
	if (any_matches(c, NEVER, labels))
		return (struct inject_rule){.why = "neverInjectSelector"};
	if (any_matches(c, ALWAYS, labels))
		return (struct inject_rule){.yes = true, .why = "alwaysInjectSelector"};
	if (policy && strcmp(json_string_value(policy), "enabled") != 0)
		return (struct inject_rule){.why = "autoInject is not enabled"};
	return rule;
}

/* --- is the configuration one --- */

static bool are_texts(const json_t *list)
{
	const json_t *v;
	size_t i;

	json_array_foreach (list, i, v)
		if (!json_is_string(v))
			return false;
	return json_is_array(list);
}

static bool is_map_of_texts(json_t *map)
{
	const char *key;
	json_t *v;

	json_object_foreach (map, key, v)
		if (!json_is_string(v))
			return false;
	return json_is_object(map);
}

static bool is_expression(const json_t *e)
{
	static const char *const listing[] = {"In", "NotIn"};
	static const char *const bare[] = {"Exists", "DoesNotExist"};
	const json_t *values = json_object_get(e, "values");
	const char *operator= text_of(e, "operator");

	if (!*text_of(e, "key"))
		return false;
	for (unsigned i = 0; i < 2; i++) {
		if (!strcmp(operator, listing[i]))
			return are_texts(values) && json_array_size(values);
		if (!strcmp(operator, bare[i]))
			return !json_array_size(values);
	}
	return false;
}

static bool is_selector(json_t *selector)
{
	json_t *v, *labels = json_object_get(selector, "matchLabels");
	const json_t *expressions = json_object_get(selector, "matchExpressions");
	const char *key;
	size_t i;

	json_object_foreach (selector, key, v)
		if (strcmp(key, "matchLabels") != 0 && strcmp(key, "matchExpressions") != 0)
			return false;
	json_array_foreach (expressions, i, v)
		if (!is_expression(v))
			return false;
	return json_is_object(selector) && (!labels || is_map_of_texts(labels)) &&
	       (!expressions || json_is_array(expressions));
}

static int check_selectors(const struct inject_config *c, const char *path, struct err *e)
{
	json_t *list = inject_at(c->values, path), *v;
	size_t i;

	if (list && !json_is_array(list))
		return err_set(e, ERR_INVALID, "values: %s: must be a list of selectors", path);
	json_array_foreach (list, i, v)
		if (!is_selector(v))
			return err_set(e, ERR_INVALID,
			    "values: %s[%zu]: must be a selector: matchLabels, matchExpressions "
			    "(In, NotIn, Exists, DoesNotExist)",
			    path, i);
	return 0;
}

int rule_check(const struct inject_config *c, struct err *e)
{
	json_t *annotations = inject_at(c->values, ANNOTATIONS);
	const json_t *policy = inject_at(c->values, POLICY);

	if (check_selectors(c, NEVER, e) || check_selectors(c, ALWAYS, e))
		return -1;
	if (annotations && !is_map_of_texts(annotations))
		return err_set(e, ERR_INVALID, "values: %s: must be a map of texts", ANNOTATIONS);
	if (policy && !json_is_string(policy))
		return err_set(
		    e, ERR_INVALID, "values: %s: must be \"enabled\" or \"disabled\"", POLICY);
	return 0;
}
