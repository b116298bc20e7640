/* json_text.c - jansson writes -> outside of strings each real number is written again, if shorter.
 */
#include "json_text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_LEAST = 15, DIGITS_MOST = 17, NUMBER_SIZE = 32 };

/* Its length in `out`; it stays a real number: 1.0 is not 1. */
static size_t shortest(char out[static NUMBER_SIZE], const char *number)
{
	const double value = strtod(number, NULL);
	int n = 0;

	for (int digits = DIGITS_LEAST; digits <= DIGITS_MOST; digits++) {
		n = snprintf(out, NUMBER_SIZE - 2, "%.*g", digits, value);
		if (strtod(out, NULL) == value)
			break;
	}
	if (!strpbrk(out, ".e"))
		n += snprintf(out + n, 3, ".0");
	return (size_t)n;
}

/* Behind the string whose first quote is at `s`. */
static const char *behind_string(const char *s)
{
	for (s++; *s != '"'; s++)
		s += *s == '\\';
	return s + 1;
}

static void shorten(char *text)
{
	char number[NUMBER_SIZE], *to = text;
	const char *from = text, *end;

	for (; *from; from = end) {
		const size_t digits = strspn(from, "+-0123456789.eE");
		size_t n;

		end = *from == '"' ? behind_string(from) : from + (digits ? digits : 1);
		n = (size_t)(end - from);
		if (digits && strcspn(from, ".eE") < digits) {
			const size_t less = shortest(number, from);

			if (less < n)
				from = number, n = less;
		}
		memmove(to, from, n);
		to += n;
	}
	*to = '\0';
}

char *json_text(const json_t *v, size_t flags)
{
	char *text = json_dumps(v, flags);

	if (text)
		shorten(text);
	return text;
}
