/* mem.c - memory is there, or the process ends: a restart costs less than code that limps on. */
#include "mem.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void *there(void *p)
{
	/* No log line: it could want memory itself.  The core dump says who asked. */
	if (!p)
		abort();
	return p;
}

void *mem_zalloc(size_t size)
{
	return there(calloc(1, size ? size : 1));
}

void *mem_realloc(void *p, size_t size)
{
	return there(realloc(p, size ? size : 1));
}

void *mem_dup(const void *data, size_t size)
{
	void *copy = there(malloc(size ? size : 1));

	if (size)
		memcpy(copy, data, size);
	return copy;
}

char *mem_strdup(const char *s)
{
	return s ? mem_dup(s, strlen(s) + 1) : NULL;
}

char *mem_printf(const char *fmt, ...)
{
	char *s = NULL;
	va_list ap;

	va_start(ap, fmt);
	int n = vasprintf(&s, fmt, ap);
	va_end(ap);
	return n < 0 ? there(NULL) : s;
}

void mem_wipe_free(char *secret)
{
	if (!secret)
		return;
	explicit_bzero(secret, strlen(secret));
	free(secret);
}

void mem_wipe_free_block(void *p)
{
	if (p)
		explicit_bzero(p, malloc_usable_size(p));
	free(p);
}
