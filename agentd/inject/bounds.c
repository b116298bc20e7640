/* bounds.c - each value and each key but the first has a bracket, a comma or a colon before it. */
#include "bounds.h"
#include "common/err.h"

/* Behind the closing quote of the text that begins at `at`. */
static size_t skip_text(const char *text, size_t len, size_t at)
{
	for (at++; at < len && text[at] != '"'; at++)
		at += text[at] == '\\';
	return at + 1;
}

int bounds_check(const char *text, size_t len, unsigned *values, struct err *e)
{
	unsigned depth = 0;

	++*values;
	for (size_t at = 0; at < len;) {
		char c = text[at];

		depth += c == '{' || c == '[';
		*values += c == '{' || c == '[' || c == ',' || c == ':';
		depth -= (c == '}' || c == ']') && depth;
		if (depth > BOUNDS_DEPTH_MAX)
			return err_set(
			    e, ERR_INVALID, "JSON: deeper than %d levels", BOUNDS_DEPTH_MAX);
		if (*values > BOUNDS_VALUES_MAX)
			return err_set(
			    e, ERR_INVALID, "JSON: more than %d values", BOUNDS_VALUES_MAX);
		at = c == '"' ? skip_text(text, len, at) : at + 1;
	}
	return 0;
}
