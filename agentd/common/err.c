/* err.c - messages are composed on the stack and cut to fit; nothing here allocates or fails.
 *
 * A message is one line of ASCII whatever went into it: other bytes become '?', so that even a
 * forgotten err_printable() cannot start a second log line, and no cut splits a character.
 */
#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Composed apart from `e`, since arguments may point into its old message. */
static void fill(struct err *e, int code, const char *fmt, va_list ap, const char *tail)
{
	char msg[ERR_MSG_SIZE];

	vsnprintf(msg, sizeof(msg), fmt, ap);
	size_t n = strlen(msg);
	if (tail)
		snprintf(msg + n, sizeof(msg) - n, ": %s", tail);
	for (char *p = msg; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p >= 0x7f)
			*p = '?';
	memcpy(e->msg, msg, strlen(msg) + 1);
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
