/* show.c - find things in an answer, print them as JSON or YAML. */
#include "show.h"
#include "base/json_walk.h"
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

/* jansson escapes all that a terminal could take for a command but DEL. */
static int print_piece(const char *piece, size_t len, void *ctx)
{
	(void)ctx;
	for (size_t i = 0; i < len; i++)
		if (piece[i] == 0x7f)
			fputs("\\u007f", stdout);
		else
			putchar(piece[i]);
	return 0;
}

static void print_json(const json_t *value)
{
	json_dump_callback(value, print_piece, NULL, JSON_INDENT(2) | JSON_ENSURE_ASCII);
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

/* --- a text, without a tree --- */

static void print_unit(uint32_t unit)
{
	printf("\\u%04x", unit);
}

/* As it is written, but nothing that is not ASCII, nor DEL. */
static void print_string(const struct json_walk *w)
{
	const char *end = w->token + w->len;
	uint32_t c;

	for (const char *at = w->token; at < end;) {
		at += json_walk_char(at, end, &c);
		if (c < 0x7f)
			putchar((int)c);
		else if (c < 0x10000)
			print_unit(c);
		else
			print_unit(0xd7c0 + (c >> 10)), print_unit(0xdc00 + (c & 0x3ff));
	}
}

static void print_token(const struct ctl *c, const struct json_walk *w, enum json_token t)
{
	json_t *v, *shown;

	if (t == JSON_WALK_SCALAR || !c->yaml)
		return print_string(w);
	v = json_loadb(w->token, w->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	shown = ctl_printable_string(v ? json_string_value(v) : "?");
	print_leaf(shown);
	json_decref(shown);
	json_decref(v);
}

/* An empty one is a leaf. */
static bool take_empty(struct json_walk *w)
{
	struct json_walk ahead = *w;

	if (json_walk_next(&ahead) != JSON_WALK_CLOSE)
		return false;
	*w = ahead;
	return true;
}

/* `t` begins a member, or an item. */
static void begin(const struct ctl *c, const struct json_walk *w, enum json_token t, bool first)
{
	const bool nested = t == JSON_WALK_OBJECT || t == JSON_WALK_ARRAY;
	const int depth = (int)(w->depth - nested);

	if (!depth)
		return;
	if (c->yaml) {
		printf("%*s%s", 2 * (depth - 1), "", t == JSON_WALK_KEY ? "" : "-");
		return;
	}
	printf("%s\n%*s", first ? "" : ",", 2 * depth, "");
}

/* True: its first member or item follows. */
static bool print_begun(const struct ctl *c, struct json_walk *w, enum json_token t)
{
	const bool object = t == JSON_WALK_OBJECT, nested = object || t == JSON_WALK_ARRAY;

	if (nested && !take_empty(w)) {
		if (!c->yaml)
			putchar(*w->token);
		else if (w->depth > 1)
			putchar('\n');
		return true;
	}
	if (c->yaml)
		putchar(' ');
	if (nested)
		fputs(object ? "{}" : "[]", stdout);
	else
		print_token(c, w, t);
	if (c->yaml)
		putchar('\n');
	return false;
}

void ctl_print_text(const struct ctl *c, const char *text, size_t len)
{
	bool first = true, keyed = false;
	struct json_walk w;
	enum json_token t;

	json_walk_begin(&w, text, len);
	while ((t = json_walk_next(&w)) != JSON_WALK_END && t != JSON_WALK_BAD) {
		if (t == JSON_WALK_CLOSE) {
			first = false;
			if (!c->yaml)
				printf("\n%*s%c", 2 * (int)w.depth, "", *w.token);
			continue;
		}
		if (!keyed)
			begin(c, &w, t, first);
		keyed = t == JSON_WALK_KEY;
		if (!keyed) {
			first = print_begun(c, &w, t);
			continue;
		}
		print_token(c, &w, t);
		fputs(c->yaml ? ":" : ": ", stdout);
	}
	if (!c->yaml)
		putchar('\n');
}
