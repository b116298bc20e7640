/* show.c - find things in an answer, print them as JSON or YAML. */
#include "show.h"
#include "common/err.h"
#include "common/mem.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *ctl_string(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	return s ? s : "";
}

char *ctl_count(const json_t *object, const char *key)
{
	return mem_printf("%lld", (long long)json_integer_value(json_object_get(object, key)));
}

static void print_json(const json_t *value)
{
	json_dumpf(value, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII);
	putchar('\n');
}

static bool is_leaf(const json_t *v)
{
	return !(json_is_object(v) && json_object_size(v)) &&
	       !(json_is_array(v) && json_array_size(v));
}

/* What YAML 1.1 and 1.2 read as this text, and as nothing else. */
static bool is_plain(const char *s)
{
	static const char *const words[] = {
	    "true", "false", "null", "yes", "no", "on", "off", "y", "n", NULL};
	static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
				   " _.-/@,;()=+";
	const size_t n = strlen(s);

	for (const char *const *w = words; *w; w++)
		if (!strcasecmp(*w, s))
			return false;
	return n && (isalpha((unsigned char)*s) || *s == '/') && s[n - 1] != ' ' &&
	       strspn(s, safe) == n;
}

/* JSON's other scalars, its quoted strings, {} and [] are YAML's. */
static void print_leaf(const json_t *v)
{
	if (json_is_string(v) && is_plain(json_string_value(v)))
		fputs(json_string_value(v), stdout);
	else
		json_dumpf(v, stdout, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
}

static void print_key(const char *key)
{
	json_t *text = json_string(key);

	print_leaf(text);
	json_decref(text);
	putchar(':');
}

/* Everything a string may hold is text of pods and peers in the end; none of it steers a terminal.
 */
json_t *ctl_printable_string(const char *s)
{
	size_t size = strlen(s) + 1;
	auto_free char *copy = mem_zalloc(size);

	return json_string(err_printable(copy, (unsigned)size, s, (unsigned)size - 1));
}

json_t *ctl_printable(json_t *v)
{
	json_t *copy, *inner;
	const char *key;
	size_t i;

	if (json_is_string(v))
		return ctl_printable_string(json_string_value(v));
	if (!json_is_array(v) && !json_is_object(v))
		return json_incref(v);
	copy = json_is_array(v) ? json_array() : json_object();
	json_array_foreach (v, i, inner)
		json_array_append_new(copy, ctl_printable(inner));
	json_object_foreach (v, key, inner) {
		json_t *name = ctl_printable_string(key);

		json_object_set_new(copy, json_string_value(name), ctl_printable(inner));
		json_decref(name);
	}
	return copy;
}

static void print_yaml(const json_t *value, int indent);

static void print_value(const json_t *v, int indent)
{
	putchar(is_leaf(v) ? ' ' : '\n');
	if (!is_leaf(v))
		return print_yaml(v, indent + 2);
	print_leaf(v);
	putchar('\n');
}

static void print_yaml(const json_t *value, int indent)
{
	const char *key;
	json_t *v;
	size_t i;

	json_array_foreach (value, i, v) {
		printf("%*s-", indent, "");
		print_value(v, indent);
	}
	json_object_foreach ((json_t *)value, key, v) {
		printf("%*s", indent, "");
		print_key(key);
		print_value(v, indent);
	}
}

void ctl_print_yaml(const json_t *value)
{
	print_yaml(value, 0);
}

void ctl_print_answer(const struct ctl *c, const json_t *value)
{
	json_t *safe = c->yaml ? ctl_printable((json_t *)value) : NULL;

	if (safe)
		ctl_print_yaml(safe);
	else
		print_json(value); /* which escapes them itself */
	json_decref(safe);
}
