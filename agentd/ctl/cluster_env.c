/* cluster_env.c - line by line: a key, '=', the parts of its value -> put under the key. */
#include "cluster_env.h"
#include "common/err.h"
#include "common/mem.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>

enum { KEYS_MAX = 256, KEY_MAX = 128, VALUE_MAX = 64 << 10 };

static const char key_characters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
/* What a shell takes as it is. */
static const char bare_characters[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.,:/@%+=*-";

struct line {
	const char *at, *end;
	unsigned number;
};

static int refuse(const struct line *l, const char *why, struct err *e)
{
	return err_set(e, EINVAL, "cluster.env: line %u: %s", l->number, why);
}

static size_t span(const struct line *l, const char *characters)
{
	size_t n = 0;

	while (l->at + n < l->end && l->at[n] && strchr(characters, l->at[n]))
		n++;
	return n;
}

/* The bytes of a quoted part, up to its closing quote; -1: there is none. */
static ssize_t quoted(const struct line *l)
{
	const char *close = memchr(l->at, '\'', (size_t)(l->end - l->at));

	return close ? close - l->at : -1;
}

/* The next part of the value goes to `out`; returns its length, -1: it is none. */
static ssize_t take_part(struct line *l, char *out)
{
	ssize_t n = (ssize_t)span(l, bare_characters), skipped = 0;

	if (*l->at == '\'') {
		l->at++;
		n = quoted(l);
		skipped = 1; /* the closing one */
	} else if (l->end - l->at >= 2 && l->at[0] == '\\' && l->at[1] == '\'') {
		l->at++;
		n = 1;
	}
	if (n < 0 || (!n && !skipped))
		return -1;
	memcpy(out, l->at, (size_t)n);
	l->at += n + skipped;
	return n;
}

static bool has_controls(const char *s, size_t n)
{
	const unsigned char *u = (const unsigned char *)s;

	for (size_t i = 0; i < n; i++)
		if (u[i] < 0x20 || u[i] == 0x7f ||
		    (u[i] == 0xc2 && i + 1 < n && u[i + 1] < 0xa0)) /* U+0080 to U+009F */
			return true;
	return false;
}

/* NULL: refused. */
static json_t *read_value(struct line *l, struct err *e)
{
	auto_free char *value = mem_zalloc((size_t)(l->end - l->at) + 1);
	size_t n = 0;
	json_t *text;

	while (l->at < l->end) {
		ssize_t part = take_part(l, value + n);

		if (part < 0) {
			refuse(l, "the value must be KEY='VALUE', with '\\'' for a quote", e);
			return NULL;
		}
		n += (size_t)part;
	}
	if (n > VALUE_MAX || has_controls(value, n)) {
		refuse(l, n > VALUE_MAX ? "a value of more than 64 KiB" : "a control character", e);
		return NULL;
	}
	if (!(text = json_stringn(value, n)))
		refuse(l, "not UTF-8", e);
	return text;
}

static int read_line(json_t *env, struct line *l, struct err *e)
{
	size_t n = span(l, key_characters);
	char key[KEY_MAX + 1];
	json_t *value;

	if (l->at == l->end || *l->at == '#')
		return 0;
	if (!n || n > KEY_MAX || l->at + n == l->end || l->at[n] != '=')
		return refuse(l, "not KEY='VALUE'", e);
	memcpy(key, l->at, n);
	key[n] = '\0';
	l->at += n + 1;
	if (json_object_get(env, key))
		return refuse(l, "a key that is given twice", e);
	if (json_object_size(env) == KEYS_MAX)
		return refuse(l, "more than 256 keys", e);
	if (!(value = read_value(l, e)))
		return -1;
	json_object_set_new(env, key, value);
	return 0;
}

json_t *cluster_env_parse(const char *text, size_t len, struct err *e)
{
	json_t *env = json_object();
	struct line l = {.number = 0};

	for (size_t at = 0; at < len;) {
		const char *stop = memchr(text + at, '\n', len - at);

		l.at = text + at;
		l.end = stop ? stop : text + len;
		l.number++;
		at = (size_t)(l.end - text) + 1;
		if (read_line(env, &l, e)) {
			json_decref(env);
			return NULL;
		}
	}
	return env;
}
