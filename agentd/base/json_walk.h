/* json_walk.h - a JSON text, token by token, without a tree: jansson takes ten times the bytes of
 * an Envoy's dump.  Pure; the memory is that of the struct, the work is one pass.
 *
 * RFC 8259, with UTF-8 checked.  What of an escape is no character (half a surrogate) is let
 * through, as it is written.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { JSON_WALK_DEPTH_MAX = 512 };

enum json_token {
	JSON_WALK_BAD, /* no JSON, or too deep; so is each one after it */
	JSON_WALK_OBJECT,
	JSON_WALK_ARRAY,
	JSON_WALK_CLOSE, /* of either */
	JSON_WALK_KEY,
	JSON_WALK_STRING,
	JSON_WALK_SCALAR, /* a number, true, false, null */
	JSON_WALK_END,    /* of the text */
};

struct json_walk {
	const char *token; /* as it is written, with quotes; a bracket */
	size_t len;
	unsigned depth; /* behind this token */
	const char *at, *end;
	enum { JSON_WALK_WANTS_VALUE, JSON_WALK_WANTS_FIRST, JSON_WALK_WANTS_NEXT } wants;
	bool in_object[JSON_WALK_DEPTH_MAX];
};

/* Borrows `text`, which needs no NUL. */
void json_walk_begin(struct json_walk *w, const char *text, size_t len);
enum json_token json_walk_next(struct json_walk *w);
/* To the end of the value that begins with `first`, which was read; false: it is bad. */
bool json_walk_skip(struct json_walk *w, enum json_token first);
/* Is the token, a key or a string, this word, written without an escape? */
bool json_walk_is(const struct json_walk *w, const char *word);
/* An object, whole? */
bool json_walk_is_object(const char *text, size_t len);

/* The character at `at`, in UTF-8; its length, 0: it is none. */
unsigned json_walk_char(const char *at, const char *end, uint32_t *c);
