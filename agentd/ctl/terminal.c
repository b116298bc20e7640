/* terminal.c - printf() -> a stream of our own -> bytes that are harmless -> the descriptor. */
#include "terminal.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 4096 };

static FILE *raw;

void terminal_clean(char *text, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if ((text[i] < ' ' || text[i] > '~') && text[i] != '\n' && text[i] != '\t')
			text[i] = '?';
}

/* How many were written; fewer than `len`: errno. */
static ssize_t write_safe(void *cookie, const char *bytes, size_t len)
{
	size_t done = 0;

	while (done < len) {
		char piece[PIECE];
		size_t n = len - done < PIECE ? len - done : PIECE;
		ssize_t written;

		memcpy(piece, bytes + done, n);
		terminal_clean(piece, n);
		written = write(*(const int *)cookie, piece, n);
		if (written <= 0)
			break;
		done += (size_t)written;
	}
	return (ssize_t)done;
}

static FILE *guarded(int *fd, int buffered)
{
	FILE *f = fopencookie(fd, "w", (cookie_io_functions_t){.write = write_safe});

	if (!f)
		abort();
	setvbuf(f, NULL, buffered, BUFSIZ);
	return f;
}

void terminal_guard(void)
{
	static int out = STDOUT_FILENO, err = STDERR_FILENO;

	raw = stdout;
	stdout = guarded(&out, isatty(out) ? _IOLBF : _IOFBF);
	stderr = guarded(&err, _IONBF);
}

FILE *terminal_raw(void)
{
	return raw ? raw : stdout;
}
