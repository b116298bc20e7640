/* regex.c - by recursive descent: alternatives of sequences of repeated atoms.
 *
 * Each part tells how large its program is and whether it counts repetitions.
 */
#include "regex.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum {
	DEPTH_MAX = 16,
	REPEAT_MAX = 1000, /* RE2's own */
	SIZE_MAX_OF_ALL = 16384,
	SIZE_OF_SET = 16, /* a set of characters is bytes of UTF-8 in the program */
};

struct part {
	unsigned long size;
	bool counts; /* has {n} in it */
};

struct reader {
	const char *at;
	unsigned depth;
};

static bool read_alternatives(struct reader *r, struct part *out);

/* Backslash and one character; `set`: it stands for several. */
static bool read_escape(struct reader *r, bool in_class, bool *set)
{
	char c = r->at[1];

	*set = c && strchr("dDwWsS", c);
	if (!*set && (!ispunct((unsigned char)c) || c == '_') &&
	    !(!in_class && c && strchr("bB", c)))
		return false;
	r->at += 2;
	return true;
}

/* [:digit:] */
static bool read_name(struct reader *r)
{
	static const char *const names[] = {"alnum", "alpha", "ascii", "blank", "cntrl", "digit",
	    "graph", "lower", "print", "punct", "space", "upper", "word", "xdigit"};

	for (unsigned i = 0; i < sizeof(names) / sizeof(*names); i++) {
		size_t n = strlen(names[i]);

		if (!strncmp(r->at + 2, names[i], n) && !strncmp(r->at + 2 + n, ":]", 2)) {
			r->at += n + 4;
			return true;
		}
	}
	return false;
}

/* A character of a class, maybe escaped. */
static bool read_end(struct reader *r, char *c, bool *set)
{
	*set = false;
	*c = *r->at == '\\' ? r->at[1] : *r->at;
	if (*r->at == '\\')
		return read_escape(r, true, set);
	if (!*r->at || *r->at == '[')
		return false;
	r->at++;
	return true;
}

static bool read_range(struct reader *r)
{
	char from, to;
	bool set;

	if (!read_end(r, &from, &set))
		return false;
	if (*r->at != '-' || r->at[1] == ']')
		return true;
	r->at++;
	return !set && read_end(r, &to, &set) && !set && from <= to;
}

static bool read_class(struct reader *r)
{
	r->at += r->at[1] == '^' ? 2 : 1;
	do { /* the first ']' is a character of it */
		bool good = !strncmp(r->at, "[:", 2) ? read_name(r) : read_range(r);

		if (!good)
			return false;
	} while (*r->at != ']');
	r->at++;
	return true;
}

static bool read_group(struct reader *r, struct part *out)
{
	bool good;

	r->at += !strncmp(r->at, "(?:", 3) ? 3 : 1;
	good = ++r->depth <= DEPTH_MAX && read_alternatives(r, out) && *r->at == ')';
	r->depth--;
	r->at += good;
	out->size += 2;
	return good;
}

static bool read_atom(struct reader *r, struct part *out)
{
	bool set = true;

	*out = (struct part){.size = SIZE_OF_SET};
	if (*r->at == '(')
		return read_group(r, out);
	if (*r->at == '[')
		return read_class(r);
	if (*r->at == '\\')
		return read_escape(r, false, &set);
	if (!*r->at || strchr("*+?{}])", *r->at))
		return false;
	r->at++;
	return true;
}

/* At most four digits, no more than REPEAT_MAX; -1: none. */
static long read_number(struct reader *r)
{
	size_t n = strspn(r->at, "0123456789");
	long v = n && n <= 4 ? strtol(r->at, NULL, 10) : -1;

	r->at += n;
	return v <= REPEAT_MAX ? v : -1;
}

/* {n}, {n,}, {n,m} */
static bool read_count(struct reader *r, struct part *p)
{
	long least, most;

	r->at++;
	least = most = read_number(r);
	if (*r->at == ',') {
		r->at++;
		most = *r->at == '}' ? least + 1 : read_number(r);
	}
	if (p->counts || least < 0 || most < least || *r->at != '}')
		return false;
	r->at++;
	p->counts = true;
	p->size *= (unsigned long)most + 1;
	return true;
}

static bool read_repeated(struct reader *r, struct part *out)
{
	if (!read_atom(r, out))
		return false;
	if (*r->at == '{') {
		if (!read_count(r, out))
			return false;
	} else if (*r->at && strchr("*+?", *r->at)) {
		r->at++;
		out->size += 2;
	} else {
		return true;
	}
	r->at += *r->at == '?'; /* as little as possible */
	return true;
}

static bool read_alternatives(struct reader *r, struct part *out)
{
	*out = (struct part){0};
	while (*r->at && *r->at != ')') {
		struct part one = {0};

		if (*r->at == '|')
			r->at++;
		else if (!read_repeated(r, &one))
			return false;
		out->size += one.size + 1;
		out->counts |= one.counts;
		if (out->size > SIZE_MAX_OF_ALL)
			return false;
	}
	return true;
}

bool regex_is_safe(const char *pattern)
{
	struct reader r = {.at = pattern};
	struct part all;

	for (const char *at = pattern; *at; at++)
		if (*at < ' ' || *at > '~')
			return false;
	return read_alternatives(&r, &all) && !*r.at;
}
