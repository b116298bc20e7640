/* err.c - messages are composed on the stack and cut to fit; nothing here allocates or fails.
 *
 * A message is one line whatever went into it: control bytes become '?', so that even a forgotten
 * err_printable() cannot start a second log line.
 */
#include "err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void flatten(char *s)
{
	for (; *s; s++)
		if ((unsigned char)*s < 0x20 || *s == 0x7f)
			*s = '?';
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
	va_list ap;

	e->code = code;
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	flatten(e->msg);
	return -1;
}

int err_sys(struct err *e, const char *fmt, ...)
{
	int code = errno;
	const char *why = strerrordesc_np(code);
	va_list ap;

	e->code = code;
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	size_t n = strlen(e->msg);
	if (why)
		snprintf(e->msg + n, sizeof(e->msg) - n, ": %s", why);
	else
		snprintf(e->msg + n, sizeof(e->msg) - n, ": error %d", code);
	flatten(e->msg);
	return -1;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
	char inner[ERR_MSG_SIZE];
	va_list ap;

	memcpy(inner, e->msg, sizeof(inner));
	va_start(ap, fmt);
	vsnprintf(e->msg, sizeof(e->msg), fmt, ap);
	va_end(ap);
	size_t n = strlen(e->msg);
	snprintf(e->msg + n, sizeof(e->msg) - n, ": %s", inner);
	flatten(e->msg);
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
