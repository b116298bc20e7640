/* broker_log.c - a line is composed on the stack and written at once. */
#include "log.h"
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1024 };

struct line {
	char text[LINE_BYTES];
	size_t len;
};

/* One byte is always left for the newline. */
static void put(struct line *l, const char *s)
{
	while (*s && l->len + 1 < sizeof(l->text))
		l->text[l->len++] = *s++;
}

/* Quoted only when it has to be, as common/log.c does it. */
static void put_value(struct line *l, const char *value)
{
	bool plain = *value && !strpbrk(value, " \"=\\");
	char esc[8];

	for (const char *s = value; *s; s++)
		if ((unsigned char)*s < 0x20 || (unsigned char)*s >= 0x7f)
			plain = false;
	put(l, plain ? "" : "\"");
	for (const char *s = value; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c < 0x20 || c >= 0x7f)
			snprintf(esc, sizeof(esc), "\\x%02x", c);
		else
			snprintf(esc, sizeof(esc), c == '"' || c == '\\' ? "\\%c" : "%c", c);
		put(l, esc);
	}
	put(l, plain ? "" : "\"");
}

static void put_time(struct line *l)
{
	struct timespec now;
	struct tm tm;
	char text[48];
	size_t n;

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &tm);
	n = strftime(text, sizeof(text), "time=%Y-%m-%dT%H:%M:%S", &tm);
	snprintf(text + n, sizeof(text) - n, ".%03dZ", (int)(now.tv_nsec / 1000000));
	put(l, text);
}

void broker_log(enum broker_level level, const char *subject, const char *fmt, ...)
{
	static const struct {
		const char *name, *journald; /* sd-daemon(3) */
	} levels[] = {
	    [BROKER_ERROR] = {"error", "<3>"},
	    [BROKER_WARN] = {"warn", "<4>"},
	    [BROKER_INFO] = {"info", "<6>"},
	};
	struct line l = {.len = 0};
	int saved = errno;
	char msg[512];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(msg, sizeof(msg), fmt, ap);
	va_end(ap);
	put(&l, getenv("JOURNAL_STREAM") ? levels[level].journald : "");
	put_time(&l);
	put(&l, " level=");
	put(&l, levels[level].name);
	put(&l, " scope=broker");
	if (subject) {
		put(&l, " subject=");
		put_value(&l, subject);
	}
	put(&l, " msg=");
	put_value(&l, msg);
	l.text[l.len++] = '\n';
	while (write(STDERR_FILENO, l.text, l.len) < 0 && errno == EINTR)
		;
	errno = saved;
}

int broker_refuse(struct broker_why *w, int code, const char *fmt, ...)
{
	va_list ap;

	w->code = code;
	va_start(ap, fmt);
	vsnprintf(w->text, sizeof(w->text), fmt, ap);
	va_end(ap);
	return -1;
}

int broker_refuse_sys(struct broker_why *w, const char *fmt, ...)
{
	va_list ap;
	size_t n;

	w->code = errno;
	va_start(ap, fmt);
	vsnprintf(w->text, sizeof(w->text), fmt, ap);
	va_end(ap);
	n = strlen(w->text);
	snprintf(w->text + n, sizeof(w->text) - n, ": %s", strerror(w->code));
	return -1;
}

void *broker_zalloc(size_t size)
{
	void *p = calloc(1, size);

	if (!p) {
		broker_log(BROKER_ERROR, NULL, "out of memory");
		abort();
	}
	return p;
}
