/* err.c - messages are composed on the stack and shortened to fit; nothing here allocates or fails.
 *
 * A message is one line of ASCII whatever went into it: other bytes become '?', so that even a
 * forgotten err_printable() cannot start a second log line, and no cut splits a character.
 */
#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { COMPOSED_SIZE = 4 * ERR_MSG_SIZE };

/* Composed apart from `e`, since arguments may point into its old message. */
static void fill(struct err *e, int code, const char *fmt, va_list ap, const char *tail)
{
	char msg[COMPOSED_SIZE];
	const size_t room = sizeof(msg) - (tail ? strnlen(tail, ERR_MSG_SIZE) + strlen(": ") : 0);

	vsnprintf(msg, room, fmt, ap);
	size_t n = strlen(msg);
	if (tail)
		snprintf(msg + n, sizeof(msg) - n, ": %s", tail);
	err_excerpt(e->msg, sizeof(e->msg), msg, (unsigned)strlen(msg));
	e->code = code;
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(e, code, fmt, ap, NULL);
	va_end(ap);
	return -1;
}

int err_sys(struct err *e, const char *fmt, ...)
{
	int code = errno;
	const char *why = strerrordesc_np(code);
	char number[32];
	va_list ap;

	snprintf(number, sizeof(number), "error %d", code);
	va_start(ap, fmt);
	fill(e, code, fmt, ap, why ? why : number);
	va_end(ap);
	return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fill(e, e->code, fmt, ap, e->msg);
	va_end(ap);
	return -1;
}

char *err_printable(char *out, unsigned size, const char *bytes, unsigned n)
{
	unsigned i;

	if (size == 0)
		return out;
	for (i = 0; i < n && i < size - 1; i++)
		out[i] = bytes[i] >= 0x20 && bytes[i] < 0x7f ? bytes[i] : '?';
	out[i] = '\0';
	return out;
}

/* The length of the end is fixed: a text that is wrapped, and shortened again, keeps it. */
char *err_excerpt(char *out, unsigned size, const char *bytes, unsigned n)
{
	enum { GAP = 5 };
	const unsigned end = size / 2;

	err_printable(out, size, bytes, n);
	if (n < size || end <= GAP + 1)
		return out;
	err_printable(out + size - 1 - end - GAP, GAP + 1, " ... ", GAP);
	err_printable(out + size - 1 - end, end + 1, bytes + n - end, end);
	return out;
}
