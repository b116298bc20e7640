/* json_walk.c - blanks -> a bracket that closes, or a comma where one is due -> a key and its
 * colon, or a value.
 */
#include "json_walk.h"
#include <ctype.h>
#include <string.h>

void json_walk_begin(struct json_walk *w, const char *text, size_t len)
{
	*w = (struct json_walk){.at = text, .end = text + len, .wants = JSON_WALK_WANTS_VALUE};
}

static enum json_token bad(struct json_walk *w)
{
	w->at = w->end;
	w->wants = JSON_WALK_WANTS_VALUE; /* and there is none */
	return JSON_WALK_BAD;
}

static int peek(const struct json_walk *w)
{
	return w->at < w->end ? (unsigned char)*w->at : -1;
}

/* --- characters --- */

unsigned json_walk_char(const char *at, const char *end, uint32_t *c)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const unsigned char *s = (const unsigned char *)at;
	const unsigned n = *s < 0x80             ? 1
			   : (*s & 0xe0) == 0xc0 ? 2
			   : (*s & 0xf0) == 0xe0 ? 3
			   : (*s & 0xf8) == 0xf0 ? 4
						 : 0;

	if (!n || end - at < n)
		return 0;
	*c = n == 1 ? *s : *s & (0x7fU >> n);
	for (unsigned i = 1; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		*c = *c << 6 | (s[i] & 0x3f);
	}
	return *c < least[n] || *c > 0x10ffff || (*c >= 0xd800 && *c < 0xe000) ? 0 : n;
}

/* The length of the escape at `at`; 0: it is none. */
static unsigned escape_at(const char *at, const char *end)
{
	if (end - at < 2)
		return 0;
	if (at[1] != 'u')
		return at[1] && strchr("\"\\/bfnrt", at[1]) ? 2 : 0;
	for (int i = 2; i < 6; i++)
		if (end - at <= i || !isxdigit((unsigned char)at[i]))
			return 0;
	return 6;
}

static bool take_string(struct json_walk *w)
{
	uint32_t c;

	w->token = w->at++;
	while (w->at < w->end && *w->at != '"') {
		const unsigned n =
		    *w->at == '\\' ? escape_at(w->at, w->end) : json_walk_char(w->at, w->end, &c);

		if (!n || (unsigned char)*w->at < ' ')
			return false;
		w->at += n;
	}
	if (w->at == w->end)
		return false;
	w->len = (size_t)(++w->at - w->token);
	return true;
}

/* --- numbers and words --- */

static bool take_digits(struct json_walk *w)
{
	const char *from = w->at;

	while (isdigit(peek(w)))
		w->at++;
	return w->at > from;
}

static bool take_number(struct json_walk *w)
{
	w->at += peek(w) == '-';
	if (peek(w) == '0')
		w->at++;
	else if (!take_digits(w))
		return false;
	if (peek(w) == '.' && (w->at++, !take_digits(w)))
		return false;
	if (peek(w) != 'e' && peek(w) != 'E')
		return true;
	w->at++;
	w->at += peek(w) == '+' || peek(w) == '-';
	return take_digits(w);
}

static bool take_scalar(struct json_walk *w)
{
	static const char *const words[] = {"true", "false", "null"};
	bool taken = false;

	w->token = w->at;
	for (unsigned i = 0; i < sizeof(words) / sizeof(*words) && !taken; i++) {
		const size_t n = strlen(words[i]);

		taken = (size_t)(w->end - w->at) >= n && !memcmp(w->at, words[i], n);
		w->at += taken ? n : 0;
	}
	if (!taken && !take_number(w))
		return false;
	w->len = (size_t)(w->at - w->token);
	return true;
}

/* --- structure --- */

static void skip_blanks(struct json_walk *w)
{
	while (w->at < w->end && *w->at && strchr(" \t\r\n", *w->at))
		w->at++;
}

static void take_bracket(struct json_walk *w)
{
	w->token = w->at++;
	w->len = 1;
}

static enum json_token open_one(struct json_walk *w)
{
	const bool object = *w->at == '{';

	if (w->depth == JSON_WALK_DEPTH_MAX)
		return bad(w);
	take_bracket(w);
	w->in_object[w->depth++] = object;
	w->wants = JSON_WALK_WANTS_FIRST;
	return object ? JSON_WALK_OBJECT : JSON_WALK_ARRAY;
}

static enum json_token value(struct json_walk *w)
{
	const int c = peek(w);

	if (c == '{' || c == '[')
		return open_one(w);
	if (c == '"' ? !take_string(w) : !take_scalar(w))
		return bad(w);
	w->wants = JSON_WALK_WANTS_NEXT;
	return c == '"' ? JSON_WALK_STRING : JSON_WALK_SCALAR;
}

static enum json_token key(struct json_walk *w)
{
	if (peek(w) != '"' || !take_string(w))
		return bad(w);
	skip_blanks(w);
	if (peek(w) != ':')
		return bad(w);
	w->at++;
	w->wants = JSON_WALK_WANTS_VALUE;
	return JSON_WALK_KEY;
}

enum json_token json_walk_next(struct json_walk *w)
{
	const bool in_object = w->depth && w->in_object[w->depth - 1];

	skip_blanks(w);
	if (w->wants == JSON_WALK_WANTS_VALUE)
		return value(w);
	if (!w->depth)
		return w->at == w->end ? JSON_WALK_END : bad(w);
	if (peek(w) == (in_object ? '}' : ']')) {
		take_bracket(w);
		w->depth--;
		w->wants = JSON_WALK_WANTS_NEXT;
		return JSON_WALK_CLOSE;
	}
	if (w->wants == JSON_WALK_WANTS_NEXT) {
		if (peek(w) != ',')
			return bad(w);
		w->at++;
		skip_blanks(w);
	}
	return in_object ? key(w) : value(w);
}

bool json_walk_skip(struct json_walk *w, enum json_token first)
{
	const bool nested = first == JSON_WALK_OBJECT || first == JSON_WALK_ARRAY;
	const unsigned outside = w->depth - nested;

	while (first != JSON_WALK_BAD && w->depth > outside)
		first = json_walk_next(w);
	return first != JSON_WALK_BAD;
}

bool json_walk_is(const struct json_walk *w, const char *word)
{
	const size_t n = strlen(word);

	return w->len == n + 2 && !memcmp(w->token + 1, word, n);
}

bool json_walk_is_object(const char *text, size_t len)
{
	struct json_walk w;

	json_walk_begin(&w, text, len);
	return json_walk_next(&w) == JSON_WALK_OBJECT && json_walk_skip(&w, JSON_WALK_OBJECT) &&
	       json_walk_next(&w) == JSON_WALK_END;
}
