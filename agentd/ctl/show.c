/* show.c - find things in an answer, print them as JSON or as a tree. */
#include "show.h"
#include "common/mem.h"
#include <stdbool.h>
#include <stdio.h>

const char *ctl_string(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	return s ? s : "";
}

char *ctl_count(const json_t *object, const char *key)
{
	return mem_printf("%lld", (long long)json_integer_value(json_object_get(object, key)));
}

void ctl_print_json(const json_t *value)
{
	json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
	putchar('\n');
}

static void print_scalar(const json_t *v)
{
	auto_free char *text = json_is_string(v) ? NULL : json_dumps(v, JSON_ENCODE_ANY);

	printf("%s\n", text ? text : json_string_value(v));
}

static bool is_leaf(const json_t *v)
{
	return !(json_is_object(v) && json_object_size(v)) &&
	       !(json_is_array(v) && json_array_size(v));
}

static void print_value(const json_t *v, int indent)
{
	if (is_leaf(v)) {
		print_scalar(v);
		return;
	}
	putchar('\n');
	ctl_print_tree(v, indent + 2);
}

void ctl_print_tree(const json_t *value, int indent)
{
	const char *key;
	json_t *v;
	size_t i;

	json_array_foreach (value, i, v) {
		printf("%*s- ", indent, "");
		print_value(v, indent);
	}
	json_object_foreach ((json_t *)value, key, v) {
		printf("%*s%s: ", indent, "", key);
		print_value(v, indent);
	}
}
